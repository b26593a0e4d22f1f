// Package extender answers the scheduler: on which nodes a pod fits card by card, which of them is better, and the
// binding of a pod to a node together with the choice of its cards, in one write. Its books come from watches and are
// those of one term of leadership; until they are complete it answers 503. It may not hold anything that is not in the
// API, touch a machine, or call the API while it holds a lock of the books.
//
// The protocol is k8s.io/kube-scheduler/extender/v1 with names of nodes only (nodeCacheCapable: true), Kubernetes 1.29
// to 1.37, as HTTPExtender of pkg/scheduler/extender.go speaks it.
package extender
