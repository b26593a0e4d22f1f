// Package leader points the controller's Service to the leader, by an EndpointSlice that the leader writes. Two
// replicas that bind would give one card to two pods: the API server knows versions of pods, not of cards. So one
// answers the scheduler, and readiness, by which a Service with a selector chooses pods, is free to say of the others
// that they are well. It may not decide who is the leader.
package leader
