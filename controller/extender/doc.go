// Package extender answers the scheduler: on which nodes a pod fits card by card, and which of them is better. It
// binds a pod to a node together with the choice of its cards, in one write. Its cache is filled by watches and lasts
// for one term of leadership; until it is complete, the answer is 503. The package may not hold any state that is not
// in the API, touch a machine, or call the API while it holds a lock of the cache.
//
// The protocol is k8s.io/kube-scheduler/extender/v1 with names of nodes only (nodeCacheCapable: true), Kubernetes
// 1.29 to 1.37, as HTTPExtender of pkg/scheduler/extender.go implements it.
package extender
