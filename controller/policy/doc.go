// Package policy carries out the policies of a cluster: it says when a node may replace its driver, keeps partitions,
// reads the definitions that policies name, validates nodes by pods, clears away what agents that have gone left
// behind, and tells people how far everything is. What it knows is in the API: the slots in the status of the policies,
// grants and marks of its own in annotations of the nodes. It never talks to hardware, and a node needs it for nothing
// but to begin an upgrade that a policy orders.
//
// A slot is written to the status, on the condition that nobody else has written there since it was read, before any
// node hears of it. It is freed after its grant was taken back, on the condition that the node is still the one that
// was seen not to act. A grant carries the time of its slot, and one that was taken back leaves that time on the node:
// a controller that has read something old can neither give a grant for a slot that is over nor free one that is acted
// on.
package policy
