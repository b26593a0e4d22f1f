package kube

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/acceld/acceld/accel"
)

// totals sums up the amounts of a node's usable cards, by the full names of resources such as "qemu.org/memory". The
// scheduler places no pod on a node that lacks a resource which the pod requests. The number of devices is left out,
// because the kubelet counts those.
func totals(cards []card, counted map[string]bool) map[corev1.ResourceName]resource.Quantity {
	sums := map[corev1.ResourceName]resource.Quantity{}
	for _, c := range cards {
		for name, amount := range c.Has {
			if counted[name] {
				continue
			}
			sum := sums[corev1.ResourceName(name)]
			if q := resource.MustParse(amount); !c.Off { // cardOf wrote it
				sum.Add(q)
			}
			sums[corev1.ResourceName(name)] = sum
		}
	}
	return sums
}

// totalsPatch returns the strategic merge patch that sets the totals of the node's cards; nil if the node has them
// already. A total that somebody else has written is left as it is, and so are all of them while somebody else says
// which cards there are.
func totalsPatch(node *corev1.Node, r *rendered) []byte {
	owners := capacityClaims(node)
	want := r.totals
	if text, there := node.Annotations[accel.CardsAnnotation]; there && text != r.annotations[accel.CardsAnnotation] {
		want = nil // the annotation is somebody else's, or this agent is about to change it
		if annotationClaims(node).mayChange(accel.CardsAnnotation) {
			return nil
		}
	}
	changes := map[corev1.ResourceName]any{}
	for name, sum := range want {
		have, there := node.Status.Capacity[name]
		free := node.Status.Allocatable[name]
		// A kubelet that does not know its node any more sets the resources of others to nothing.
		same := there && have.Cmp(sum) == 0 && free.Cmp(sum) == 0
		if same || there && !have.IsZero() && !owners.mayChange(string(name)) {
			continue
		}
		changes[name] = sum.String()
	}
	for _, name := range LeftTotals(node) {
		if _, wanted := want[name]; !wanted {
			changes[name] = nil
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return encode(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion},
		"status":   map[string]any{"capacity": changes, "allocatable": changes},
	})
}

// LeftTotals returns the extended resources in the capacity of a node that only agents have written.
func LeftTotals(node *corev1.Node) []corev1.ResourceName {
	var names []corev1.ResourceName
	owners := capacityClaims(node)
	for _, name := range slices.Sorted(maps.Keys(node.Status.Capacity)) {
		if extended := strings.Contains(string(name), "/"); extended && owners.mayChange(string(name)) {
			names = append(names, name)
		}
	}
	return names
}

// totals returns the patch of the totals of the node as it is now.
func (s *session) totals(r *rendered) []byte {
	if s.node == nil || s.noTotals {
		return nil
	}
	return totalsPatch(s.node, r)
}

// writeTotals writes the totals of the node's cards.
func (s *session) writeTotals(ctx context.Context, r *rendered) *accel.Problem {
	return s.patchStatus(ctx, func() []byte { return s.totals(r) }, func(err error) {
		s.noTotals = true
		if s.k.first("totals") {
			s.k.c.Log.Warn("the API server refuses the totals of the node's cards; something else must report them to the scheduler",
				"node", s.k.c.Node, "error", err)
		}
	})
}
