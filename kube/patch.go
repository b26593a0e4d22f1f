package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
)

// extent is how much of the node one patch touches. The rules of the cluster refuse the labels of a vendor that they do
// not name; for a kubelet's credentials, the NodeRestriction admission plugin refuses all shared labels and the taints.
// Each time the whole patch is refused, and it is tried again with less.
type extent int

const (
	everything     extent = iota
	withoutVendors        // shared labels that are in no vendor's domain, own labels and the taint
	withoutShared         // own labels and the taint
	ownLabels
	nothing
)

// touches reports whether a patch of the extent writes and removes a label.
func (x extent) touches(key string) bool {
	switch {
	case !shared(key):
		return x < nothing
	case vendors(key):
		return x == everything
	}
	return x <= withoutVendors
}

// metadataPatch returns the JSON merge patch for the node's labels, annotations and taints; nil if they are right
// already. retaint restores the startup taint on a node that is not ready.
func metadataPatch(node *corev1.Node, r *rendered, x extent, retaint bool) []byte {
	meta := map[string]any{}
	if labels := labelChanges(node, r.labels, x); len(labels) > 0 {
		meta["labels"] = labels
	}
	if annotations := annotationChanges(node, r); len(annotations) > 0 {
		meta["annotations"] = annotations
		// If the API server applies a patch only after the agent gave up waiting, it must not overwrite a later one.
		meta["resourceVersion"] = node.ResourceVersion
	}
	patch := map[string]any{}
	if taints, changed := taintChange(node.Spec.Taints, r.ready, retaint); changed && x <= withoutShared {
		// The list is replaced as a whole (listType atomic), so it must still be the one that was read.
		meta["resourceVersion"] = node.ResourceVersion
		patch["spec"] = map[string]any{"taints": taints}
	}
	if len(meta) == 0 {
		return nil
	}
	patch["metadata"] = meta
	return encode(patch)
}

// labelChanges returns the labels to set, and nil for those to remove.
func labelChanges(node *corev1.Node, want map[string]string, x extent) map[string]any {
	changes := map[string]any{}
	owners := labelClaims(node)
	for key, value := range want {
		have, there := node.Labels[key]
		if have == value && there || !x.touches(key) || shared(key) && there && !owners.mayChange(key) {
			continue
		}
		changes[key] = value
	}
	for key := range node.Labels {
		if _, wanted := want[key]; wanted {
			continue
		}
		if ours(key) || x.touches(key) && shared(key) && owners.mayChange(key) {
			changes[key] = nil
		}
	}
	return changes
}

// annotationChanges returns the annotations to set, and nil for those to remove.
func annotationChanges(node *corev1.Node, r *rendered) map[string]any {
	changes := map[string]any{}
	for key, text := range r.annotations {
		switch have, there := node.Annotations[key]; {
		// somebody else has written the cards
		case key == accel.CardsAnnotation && there && text != have && !annotationClaims(node).mayChange(key):
		case text == accel.NoDevices && !there: // nothing was said that this would end
		case text == "" && there:
			changes[key] = nil
		case text != "" && text != have:
			changes[key] = text
		}
	}
	for key := range node.Annotations {
		for _, prefix := range []string{
			accel.ReportAnnotation, accel.RepairAnnotation, accel.ServedAnnotation, accel.HistoryAnnotation,
		} {
			if kind, mine := strings.CutPrefix(key, prefix); mine && !r.kinds[kind] {
				changes[key] = nil
			}
		}
	}
	if r.origin != "" && len(r.labels) > 0 && node.Annotations[OriginAnnotation] != r.origin {
		changes[OriginAnnotation] = r.origin
	}
	return changes
}

// taintChange returns the taints that the node should have, and whether they differ from those that it has.
func taintChange(have []corev1.Taint, ready, retaint bool) ([]corev1.Taint, bool) {
	mine := func(t corev1.Taint) bool { return t.Key == TaintKey && t.Effect == corev1.TaintEffectNoSchedule }
	there := slices.ContainsFunc(have, mine)
	switch {
	case ready && there:
		return slices.DeleteFunc(slices.Clone(have), mine), true
	case !ready && retaint && !there:
		return append(slices.Clone(have), corev1.Taint{Key: TaintKey, Effect: corev1.TaintEffectNoSchedule}), true
	}
	return have, false
}

// statusPatch returns the strategic merge patch that sets the node condition; nil if the node has it already.
// Conditions are merged by type, so those of the kubelet and of others stay as they are.
func statusPatch(node *corev1.Node, want corev1.NodeCondition, now time.Time) []byte {
	want.LastHeartbeatTime, want.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
	for _, have := range node.Status.Conditions {
		if have.Type != want.Type || have.Status != want.Status {
			continue
		}
		if have.Reason == want.Reason && have.Message == want.Message {
			return nil
		}
		want.LastTransitionTime = have.LastTransitionTime
	}
	return encode(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{want}}})
}

// labelled reports whether the node has every feature label of r. Values may be slightly old. Labels of published
// states are not required, because the state that they show depends on this answer, nor are those that come and go with
// the health of a device.
func labelled(node *corev1.Node, r *rendered, x extent) bool {
	for key := range r.labels {
		if _, there := node.Labels[key]; !there && !isPhase(key) && !passes(key) && x.touches(key) {
			return false
		}
	}
	return true
}

// passes reports whether a label is there only while a device is sick or withheld.
func passes(key string) bool {
	return strings.HasSuffix(key, ".sick") || strings.HasSuffix(key, ".withheld")
}

// encode returns the JSON of maps, strings and API types, which never fails.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("a patch that is no JSON: %v", err))
	}
	return b
}
