package policy

import (
	"context"
	"maps"
	"slices"

	"k8s.io/client-go/util/workqueue"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// carryOut carries out a verdict in the safe order: withdraw the grants of slots that ended, write down the slots
// that are valid, then grant them to their nodes. A write that is refused leaves the rest for the next pass. All are
// the verdicts of all policies.
func (c *Controller) carryOut(ctx context.Context, v view, d *verdict, all []*verdict, held map[string]bool,
	due *due,
) {
	due.on(d.next)
	ended := slices.Collect(maps.Keys(d.ended))
	freed := make([]bool, len(ended))
	workqueue.ParallelizeUntil(ctx, together, len(ended), func(i int) {
		freed[i] = c.takeBack(ctx, v.nodes[ended[i].Node], ended[i], d.policy)
	})
	slots := slices.Clone(d.slots)
	for i, s := range ended {
		if !freed[i] {
			slots = append(slots, s)
		}
	}
	if !slices.Contains(freed, false) { // new slots rely on the ended ones being free
		slots = append(slots, d.given...)
	}
	written, ok := c.tell(ctx, v, d, slots, due)
	for _, s := range repairs(written, false) {
		held[s.Node] = true
	}
	if !ok {
		for _, s := range repairs(slots, false) {
			held[s.Node] = true // undo nothing on these nodes until the status is certain
		}
		return
	}
	if d.policy.DeletionTimestamp != nil {
		return
	}
	untold := slices.DeleteFunc(slices.Clone(written), func(s Slot) bool {
		_, over := d.ended[s]
		return over || v.nodes[s.Node].knows(s) || s.Repair && d.policy.Spec.Repair == nil ||
			!s.Repair && d.policy.Spec.Upgrade == nil
	})
	if len(untold) == 0 || !c.current(ctx, all) {
		return
	}
	workqueue.ParallelizeUntil(ctx, together, len(untold), func(i int) {
		c.grant(ctx, v.nodes[untold[i].Node], untold[i], d.policy)
	})
}

// current reports whether no policy has other slots than those that this pass knows. A slot is written to one policy,
// but several policies may count the same nodes. So the slots of all are read once more after a slot was written and
// before its node is told: of two controllers that gave slots at the same moment, one at least then sees both.
func (c *Controller) current(ctx context.Context, all []*verdict) bool {
	if len(all) < 2 {
		return true // the write of its status was conditional
	}
	var list struct {
		Items []struct {
			Meta   kube.Meta `json:"metadata"`
			Status struct {
				Slots []Slot `json:"slots"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := c.api.get(ctx, kube.PoliciesPath, nil, &list); err != nil {
		c.failed(ctx, "reading the slots of all policies", kube.PoliciesPath, err)
		return false
	}
	slots := map[string][]Slot{}
	for _, p := range list.Items {
		slots[p.Meta.UID] = p.Status.Slots
	}
	for _, d := range all {
		if !slices.EqualFunc(slots[d.policy.UID], d.policy.Status.Slots, Slot.Equal) {
			c.again.Store(true)
			return false
		}
		delete(slots, d.policy.UID)
	}
	for _, unknown := range slots {
		if len(unknown) > 0 {
			c.again.Store(true)
			return false
		}
	}
	return true
}

// together is how many requests are in flight at a time.
const together = 16

// takeBack withdraws the grant of a slot from its node. It reports whether the slot can be freed: the node does not
// act on it, and no controller with a stale read can grant it again.
func (c *Controller) takeBack(ctx context.Context, n *Node, s Slot, p *Policy) bool {
	if n == nil {
		return true
	}
	if n.acts(s) && p.DeletionTimestamp == nil {
		return false // the policy no longer gives this slot, but the node still finishes
	}
	if !n.permitted(s) && n.knows(s) {
		return true // already withdrawn
	}
	if _, err := c.patchNode(ctx, n, object{"annotations": s.notice(false)}, nil); err != nil {
		c.failed(ctx, "taking back a grant", n.Name, err)
		return false
	}
	c.o.Log.Info("slot ended", "policy", p.Name, "kind", s.Kind, "node", s.Node, "version", s.Version, "repair",
		s.Repair)
	return true
}

// tell writes the status. It returns the slots that are in it; ok is false if that is unknown.
func (c *Controller) tell(ctx context.Context, v view, d *verdict, slots []Slot, due *due) (written []Slot, ok bool) {
	before, want := d.policy.Status, v.status(d, slots)
	name := d.policy.Name
	c.report(ctx, d.policy, want)
	if same(before, want) {
		return before.Slots, true
	}
	if sameSlots(before, want) {
		if next := c.lastWritten[name].Add(telling); v.now.Before(next) {
			due.on(next)
			return before.Slots, true
		}
	}
	patch := object{"metadata": object{"resourceVersion": d.policy.ResourceVersion}, "status": want}
	answer := &Policy{}
	if err := c.api.patch(ctx, kube.PoliciesPath+"/"+name+"/status", patch, answer); err != nil {
		c.failed(ctx, "writing the status of a policy", name, err)
		return before.Slots, false
	}
	c.policies.Put(answer)
	c.lastWritten[name] = v.now
	for _, s := range d.given {
		if slices.ContainsFunc(answer.Status.Slots, s.Equal) {
			c.metrics.slots.Inc()
			c.o.Log.Info("slot given", "policy", name, "kind", s.Kind, "node", s.Node, "version", s.Version,
				"repair", s.Repair)
		}
	}
	d.policy = answer
	return answer.Status.Slots, true
}

// grant gives a node its slot. If the policy asks for it, the node is cordoned and drained before an upgrade.
func (c *Controller) grant(ctx context.Context, n *Node, s Slot, p *Policy) {
	if n == nil || p.Spec.DryRun {
		return
	}
	if n.knows(s) {
		return // already granted, or the slot is over and this read is stale
	}
	u := p.Spec.Upgrade
	if s.Repair {
		u = &accel.Rollout{}
	}
	if u.Drain == nil && !s.Repair {
		c.drains.drop(n.Name, p.Name)
	}
	_, before := n.Annotations.find(cordonAnnotation) // whoever has ended that cordon does not want another one
	if (u.Cordon || u.Drain != nil) && !n.Spec.Unschedulable && !before {
		answer, err := c.patchNode(ctx, n, object{"annotations": object{cordonAnnotation: p.Name}},
			object{"unschedulable": true})
		if err != nil {
			c.failed(ctx, "cordoning a node", n.Name, err)
			return
		}
		c.o.Log.Info("node cordoned", "policy", p.Name, "node", n.Name)
		n = answer
	}
	if u.Drain != nil && !c.drains.done(ctx, n.Name, p.Name, *u.Drain) {
		c.markDrain(ctx, n)
		return // the end of the drain requests a pass
	}
	notes := s.notice(true)
	if n.Annotations.get(drainAnnotation) == string(accel.Draining) && !s.Repair {
		notes[drainAnnotation] = string(accel.DrainDone)
	}
	if _, err := c.patchNode(ctx, n, object{"annotations": notes}, nil); err != nil {
		c.failed(ctx, "granting a slot", n.Name, err)
	}
}

// patchNode changes the metadata and fields of the spec of a node, only if the node has not changed since it was read.
// A nil value removes a label, an annotation or a field. It returns the changed node.
func (c *Controller) patchNode(ctx context.Context, n *Node, changes, spec object) (*Node, error) {
	changes["resourceVersion"] = n.ResourceVersion
	patch := object{"metadata": changes}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	answer := &Node{}
	if err := c.api.patch(ctx, nodesPath+"/"+n.Name, patch, answer); err != nil {
		return nil, err
	}
	c.metrics.writes.Inc()
	c.nodes.Put(answer)
	return answer, nil
}
