// Package kube reports to the API server: it renders a Machine as labels, a condition and events of the own node,
// removes the startup taint when everything is ready, and repairs changes that others make to these. It writes at
// most one patch of the node and one of its status for a change, and nothing while nothing changes; another one of the
// status when acceld begins and ends to work on the node, for the conditions by which others know of that. It may not
// write to any object except the own node, events about it, the leases of builds and evictions of pods. It decides
// nothing: what it writes follows from the Machine, who builds follows from the leases, and the caller names the pods
// to evict.
//
// Rights that it needs: get, watch and patch of nodes, patch of nodes/status, create and patch of
// events.events.k8s.io; the first three can be bound to the own node by name. If builds are published: get, create,
// update and watch of leases.coordination.k8s.io in acceld's namespace. [Pods], [BoundPods], [Policies], [Reviewer]
// and callers of [Documents] need further rights for what they request.
package kube
