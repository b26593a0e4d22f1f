package policy

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// carryOut carries out a verdict in the safe order: withdraw the grants of slots that ended, write down the slots
// that are valid, then grant them to their nodes. A write that is refused leaves the rest for the next pass.
func (c *Controller) carryOut(ctx context.Context, v view, d *verdict, held map[string]bool, due *due) {
	due.on(d.next)
	ended := slices.Collect(maps.Keys(d.ended))
	freed := make([]bool, len(ended))
	each(len(ended), func(i int) { freed[i] = c.takeBack(ctx, v.nodes[ended[i].Node], ended[i], d.policy) })
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
	for _, s := range written {
		held[s.Node] = true
	}
	if !ok {
		for _, s := range slots {
			held[s.Node] = true // undo nothing on these nodes until the status is certain
		}
		return
	}
	if d.policy.Meta.DeletionTimestamp != nil || d.policy.Spec.Upgrade == nil {
		return
	}
	each(len(written), func(i int) {
		if _, over := d.ended[written[i]]; !over {
			c.grant(ctx, v.nodes[written[i].Node], written[i], d.policy)
		}
	})
}

// together is how many requests are in flight at a time.
const together = 16

// each calls do for 0 to n-1, several at a time, and returns when all calls have ended.
func each(n int, do func(i int)) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(n, together) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	group.Wait()
}

// takeBack withdraws the grant of a slot from its node. It reports whether the slot can be freed: the node does not
// act on it, and no controller with a stale read can grant it again.
func (c *Controller) takeBack(ctx context.Context, n *Node, s Slot, p *Policy) bool {
	if n == nil {
		return true
	}
	if n.acts(s.Kind) && p.Meta.DeletionTimestamp == nil {
		return false // the policy no longer orders this upgrade, but the node still finishes it
	}
	if g := n.granted(s.Kind); g.Version == "" && !g.Since.Before(s.Since) {
		return true // already withdrawn
	}
	err := c.patchNode(ctx, n, map[string]any{accel.GrantAnnotation + s.Kind: accel.Grant{Since: s.Since}.String()},
		nil)
	if err != nil {
		c.failed(ctx, "taking back a grant", n.Meta.Name, err)
		return false
	}
	c.o.Log.Info("slot ended", "policy", p.Meta.Name, "kind", s.Kind, "node", s.Node, "version", s.Version)
	return true
}

// tell writes the status. It returns the slots that are in it; ok is false if that is unknown.
func (c *Controller) tell(ctx context.Context, v view, d *verdict, slots []Slot, due *due) (written []Slot, ok bool) {
	before, want := d.policy.Status, v.status(d, slots)
	name := d.policy.Meta.Name
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
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	// A merge patch with a resourceVersion is accepted only if nobody has written since. A null removes the field.
	patch := map[string]any{
		"metadata": map[string]any{"resourceVersion": d.policy.Meta.ResourceVersion},
		"status": map[string]any{
			"observedGeneration": want.ObservedGeneration, "nodes": want.Nodes, "blocked": orNull(want.Blocked),
			"slots":    orNull(want.Slots),
			"lastSlot": orNull(want.LastSlot), "conditions": want.Conditions, "definitions": orNull(want.Definitions),
		},
	}
	answer := &Policy{}
	if err := c.o.API.Do(ctx, http.MethodPatch, kube.PoliciesPath+"/"+name+"/status", query(), patch,
		answer); err != nil {
		c.failed(ctx, "writing the status of a policy", name, err)
		return before.Slots, false
	}
	c.policies.Put(answer)
	c.lastWritten[name] = v.now
	for _, s := range d.given {
		if slices.ContainsFunc(answer.Status.Slots, s.equal) {
			c.metrics.slots.Inc()
			c.o.Log.Info("slot given", "policy", name, "kind", s.Kind, "node", s.Node, "version", s.Version)
		}
	}
	d.policy = answer
	return answer.Status.Slots, true
}

// grant gives a node its slot. If the policy asks for it, the node is cordoned and drained first.
func (c *Controller) grant(ctx context.Context, n *Node, s Slot, p *Policy) {
	if n == nil || p.Spec.DryRun {
		return
	}
	now := n.granted(s.Kind)
	if !now.Since.Before(s.Since) {
		return // already granted, or the slot is over and this read is stale
	}
	u := p.Spec.Upgrade
	if u.Drain == nil {
		c.drains.drop(n.Meta.Name, p.Meta.Name)
	}
	if (u.Cordon || u.Drain != nil) && !n.Spec.Unschedulable {
		if err := c.patchNode(ctx, n, map[string]any{cordonAnnotation: p.Meta.Name},
			map[string]any{"unschedulable": true}); err != nil {
			c.failed(ctx, "cordoning a node", n.Meta.Name, err)
			return
		}
		c.o.Log.Info("node cordoned", "policy", p.Meta.Name, "node", n.Meta.Name)
		n = c.node(n.Meta.Name)
	}
	if n == nil || u.Drain != nil && !c.drains.done(ctx, n.Meta.Name, p.Meta.Name, *u.Drain) {
		return // the end of the drain requests a pass
	}
	if err := c.patchNode(ctx, n, map[string]any{accel.GrantAnnotation + s.Kind: s.grant().String()}, nil); err != nil {
		c.failed(ctx, "granting an upgrade", n.Meta.Name, err)
	}
}

// policy returns the newest known version of a policy.
func (c *Controller) policy(p *Policy) *Policy {
	all, _ := c.policies.All()
	if newest := all[p.Meta.Name]; newest != nil && newest.Meta.UID == p.Meta.UID {
		return newest
	}
	return p
}

// node returns the newest known version of a node.
func (c *Controller) node(name string) *Node {
	all, _ := c.nodes.All()
	return all[name]
}

// patchNode changes annotations and fields of a node, only if the node has not changed since it was read. A nil value
// removes an annotation.
func (c *Controller) patchNode(ctx context.Context, n *Node, annotations, spec map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	patch := map[string]any{"metadata": map[string]any{
		"resourceVersion": n.Meta.ResourceVersion,
		"annotations":     annotations,
	}}
	if spec != nil {
		patch["spec"] = spec
	}
	answer := &Node{}
	if err := c.o.API.Do(ctx, http.MethodPatch, nodesPath+"/"+n.Meta.Name, query(), patch, answer); err != nil {
		return err
	}
	c.metrics.writes.Inc()
	c.nodes.Put(answer)
	return nil
}
