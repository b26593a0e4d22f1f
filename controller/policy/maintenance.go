package policy

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// drainAnnotation is the mark of a node that is drained for its slot. It stays until the slot ends: what has begun is
// finished, whoever works on the node. The node's agent says on the node what the mark means.
const drainAnnotation = accel.DrainAnnotation

// UnderMaintenance is why a node has no slot on which somebody else works.
const UnderMaintenance = Why(accel.UnderMaintenance)

// takeMaintenance takes the conditions of a node apart: what others say about their work on it, in bounded form, and
// the rest. Of acceld's own conditions it is enough that they are there.
func takeMaintenance(all []nodeCondition) ([]accel.Maintenance, []nodeCondition) {
	var raw []accel.RawCondition
	rest := slices.DeleteFunc(all, func(c nodeCondition) bool {
		if !slices.Contains(accel.MaintenanceConditions(), accel.MaintenanceCondition(c.Type)) {
			return false
		}
		raw = append(raw, c.raw())
		return !c.raw().Own()
	})
	return accel.ParseMaintenance(raw), rest
}

func (c nodeCondition) raw() accel.RawCondition {
	return accel.RawCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, Since: c.Since}
}

// hindrance returns why acceld does not begin work on a kind of the node; nil if nothing keeps it from that.
func (n *Node) hindrance(p *Policy, kind string, work accel.NodeWork) *accel.Maintenance {
	return accel.Hinders(n.Status.maintenance, work, p.Spec.Kinds[kind].IgnoreConditions)
}

// away reports whether the node counts as one without accelerators, because somebody else works on it.
func (n *Node) away(p *Policy, kind string) bool {
	m := n.hindrance(p, kind, accel.RepairWork)
	return m != nil && m.Unavailable()
}

// markDrain notes on the node that pods are made to leave it.
func (c *Controller) markDrain(ctx context.Context, n *Node) {
	if n.Annotations.get(drainAnnotation) == string(accel.Draining) {
		return
	}
	changes := object{"annotations": object{drainAnnotation: string(accel.Draining)}}
	if _, err := c.patchNode(ctx, n, changes, nil); err != nil {
		c.failed(ctx, "marking a node that is drained", n.Name, err)
	}
}

// leftStatus returns the patch that takes away the conditions of an agent that has gone, and the totals of its cards;
// nil if there are none. It is of this version of the node: somebody else may take such a condition over.
func (n *Node) leftStatus(totals []corev1.ResourceName) kube.StrategicPatch {
	var gone []object
	for _, h := range n.Status.Conditions {
		c := h.Value()
		if c.Type == kube.ConditionType || slices.Contains(accel.OwnConditions(), accel.MaintenanceCondition(c.Type)) {
			gone = append(gone, object{"type": c.Type, "$patch": "delete"})
		}
	}
	if len(gone)+len(totals) == 0 {
		return nil
	}
	status := object{}
	if len(gone) > 0 { // no list at all would take away all conditions
		status["conditions"] = gone
	}
	if len(totals) > 0 {
		amounts := object{}
		for _, name := range totals {
			amounts[string(name)] = nil
		}
		status["capacity"], status["allocatable"] = amounts, amounts
	}
	return kube.StrategicPatch{"metadata": object{"resourceVersion": n.ResourceVersion}, "status": status}
}
