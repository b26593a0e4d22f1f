// Package policy carries out the policies of a cluster. It decides when a node may replace its driver, maintains
// partitions, reads the definitions that policies name, validates nodes with pods, cleans up after agents that have
// gone, and reports progress. Its state is in the API: the slots in the status of the policies, and its grants and
// marks in annotations of the nodes. It never talks to hardware. A node needs it only to begin an upgrade that a
// policy orders.
//
// A slot is written to the status before its node sees a grant. The write is conditional: it fails if anyone else has
// written the status since it was read. A slot is freed after its grant was withdrawn from the node, again by a
// conditional write: it fails if the node has changed since it was seen idle. (When a policy is deleted, its slots end
// even if a node still acts on one.) A slot counts for every policy that governs its node. Since the policies are
// several objects, the slots of all are read once more between the write of a slot and its grant. A slot that is then
// one too many ends before its node has been told of it. A grant carries the time of its slot, and a withdrawn grant
// leaves that time on the node. A controller with a stale read can therefore neither grant a slot that is over nor
// free one that a node acts on.
package policy
