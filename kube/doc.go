// Package kube tells the API server: it renders a Machine as labels, a condition and events of the own node, takes the
// startup taint away when everything is ready, and repairs what others change of it. It writes at most one patch of
// the node and one of its status for a change, and nothing while nothing changes. It may not write to any other
// object than the own node, events about it and the leases of builds, and it decides nothing: what it writes follows
// from the Machine, and who builds from the leases.
//
// Rights that it needs: get, watch and patch of nodes, patch of nodes/status, create and patch of events.events.k8s.io;
// the first three can be bound to the own node by name. Where builds are published, get, create and update of
// leases.coordination.k8s.io in acceld's namespace. [Documents] hands on what others need: their rights are theirs to
// name.
package kube
