// Package leader points the controller's Service to the leader, by an EndpointSlice that the leader writes. If two
// replicas bound pods, they could give one card to two pods: the API server tracks versions of pods, not cards. So
// only one replica answers the scheduler. Readiness does not select it, so the other replicas can be ready too. The
// package may not decide who the leader is.
package leader
