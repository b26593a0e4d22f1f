package kube

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
)

// rawConditions returns the conditions of a node as others wrote them.
func rawConditions(node *corev1.Node) (all []accel.RawCondition) {
	for _, c := range node.Status.Conditions {
		all = append(all, rawCondition(c))
	}
	return all
}

func rawCondition(c corev1.NodeCondition) accel.RawCondition {
	return accel.RawCondition{
		Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message,
		Since: c.LastTransitionTime.Time,
	}
}

// ownConditions returns the conditions of maintenance that the node should have from acceld, by type. Known is false
// while that is unknown: those that it has stay. The controller's marks count as the agent's own work: it writes no
// condition.
func ownConditions(node *corev1.Node, own accel.Answer[accel.OwnMaintenance]) (
	want map[accel.MaintenanceCondition]corev1.NodeCondition, known bool,
) {
	mark := accel.DrainMark(node.Annotations[accel.DrainAnnotation])
	does := own.Value
	if does == (accel.OwnMaintenance{}) && (mark != "" || node.Annotations[accel.CordonAnnotation] != "") {
		does = accel.OwnMaintenance{
			Reason: accel.OwnUpgrade, Message: "a policy takes the node out of service to replace a driver",
		}
	}
	if does == (accel.OwnMaintenance{}) {
		return nil, own.Known
	}
	does.Drains = does.Drains || mark == accel.Draining
	want = map[accel.MaintenanceCondition]corev1.NodeCondition{}
	for _, t := range accel.OwnConditions() {
		if t == accel.MaintenanceInProgress || does.Drains {
			want[t] = corev1.NodeCondition{
				Type: corev1.NodeConditionType(t), Status: corev1.ConditionTrue, Reason: does.Reason,
				Message: shorten(does.Message),
			}
		}
	}
	return want, true
}

// maintenancePatch returns the strategic merge patch for the conditions by which acceld says that it works on the node;
// nil if the node has them already. One of somebody else that is not False is left as it is. The patch is of this
// version of the node: somebody else may write the same conditions at any time.
func maintenancePatch(node *corev1.Node, own accel.Answer[accel.OwnMaintenance], now time.Time) []byte {
	want, known := ownConditions(node, own)
	if !known {
		return nil
	}
	have := map[accel.MaintenanceCondition]corev1.NodeCondition{}
	for _, c := range node.Status.Conditions {
		have[accel.MaintenanceCondition(c.Type)] = c
	}
	var changes []any
	for _, t := range accel.OwnConditions() {
		is, there := have[t]
		mine := there && rawCondition(is).Own()
		c, wanted := want[t]
		switch {
		case !wanted && mine:
			changes = append(changes, map[string]any{"type": t, "$patch": "delete"})
			continue
		case !wanted, there && !mine && is.Status != corev1.ConditionFalse:
			continue
		case mine && is.Status == c.Status && is.Reason == c.Reason && is.Message == c.Message:
			continue
		}
		c.LastHeartbeatTime, c.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
		if there && is.Status == c.Status {
			c.LastTransitionTime = is.LastTransitionTime
		}
		changes = append(changes, c)
	}
	if len(changes) == 0 {
		return nil
	}
	return encode(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion},
		"status":   map[string]any{"conditions": changes},
	})
}

// maintenance returns the patch of the node as it is now.
func (s *session) maintenance(r *rendered) []byte {
	if s.node == nil || s.untold {
		return nil
	}
	own, node := r.own, *s.node
	if s.k.c.Quiet { // what an agent with another configuration said goes
		own, node.Annotations = accel.Known(accel.OwnMaintenance{}), nil
	}
	return maintenancePatch(&node, own, s.k.c.Now())
}

// writeMaintenance writes the conditions by which acceld says that it works on the node.
func (s *session) writeMaintenance(ctx context.Context, r *rendered) *accel.Problem {
	return s.patchStatus(ctx, func() []byte { return s.maintenance(r) }, func(err error) {
		s.untold = true
		if s.k.first("maintenance") {
			s.k.c.Log.Warn("the API server refuses the conditions by which acceld says that it works on the node", "node",
				s.k.c.Node, "error", err)
		}
	})
}
