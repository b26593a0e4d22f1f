// Package leader elects one leader among the replicas, and points the controller's Service to it, by an EndpointSlice
// that the leader writes. If two replicas bound pods, they could give one card to two pods: the API server tracks
// versions of pods, not cards. So only one replica answers the scheduler. Readiness does not select it, so the other
// replicas can be ready too.
//
// The lease alone does not prevent two leaders: a process may be stopped, a machine suspended, and the lease edited or
// deleted. So a leader has a [Proof], which lasts half as long as the lease from the start of its last renewal, on a
// clock that counts suspension. [Transport] refuses each write without it. A replica that gets the lease in any other
// way than by expiry or release waits as long as an earlier leader may have a proof.
//
// A process may also be stopped between the check of its proof and the write itself. So each write that gives
// something away is valid only for the object as it was read: a binding for the version of its pod, a slot for the
// version of its policy, a grant for the version of its node. One case remains: a binding that is sent late for a pod
// that nobody has written meanwhile. The scheduler notes in a pod that its binding has failed, unless it ended at the
// same time, or had noted the same sentence after an earlier attempt. The next leader counts such a pod when it sees
// it, and gives its card to no further pod.
package leader
