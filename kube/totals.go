package kube

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/acceld/acceld/accel"
)

// totals returns what the usable cards of a node have together, by the full names of resources such as
// "qemu.org/memory": the scheduler does not place a pod on a node that does not have what the pod asks for. How many
// devices there are is not among them; the kubelet counts those.
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
	owners := totalClaims(node)
	want := r.totals
	if text, there := node.Annotations[accel.CardsAnnotation]; there && text != r.annotations[accel.CardsAnnotation] {
		want = nil // somebody else's, or what this agent is about to change
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

// totalClaims returns who owns the extended resources in a node's capacity. The kubelet, which copies what it finds,
// claims nothing.
func totalClaims(node *corev1.Node) claims {
	c := claims{map[string]bool{}, map[string]bool{}}
	for _, entry := range node.ManagedFields {
		var fields struct {
			Status struct {
				Capacity map[string]json.RawMessage `json:"f:capacity"`
			} `json:"f:status"`
		}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		owners := c.foreign
		if entry.Manager == FieldManager {
			owners = c.own
		}
		for f := range fields.Status.Capacity {
			if name, ok := strings.CutPrefix(f, "f:"); ok && strings.Contains(name, "/") {
				owners[name] = true
			}
		}
	}
	return c
}

// LeftTotals returns the resources in the capacity of a node that only agents have written.
func LeftTotals(node *corev1.Node) []corev1.ResourceName {
	var names []corev1.ResourceName
	owners := totalClaims(node)
	for _, name := range slices.Sorted(maps.Keys(node.Status.Capacity)) {
		if owners.mayChange(string(name)) {
			names = append(names, name)
		}
	}
	return names
}

// uncounted returns the patch of the totals of the node as it is now.
func (s *session) uncounted(r *rendered) []byte {
	if s.node == nil || s.noTotals {
		return nil
	}
	return totalsPatch(s.node, r)
}

// writeTotals writes what the node's cards have together. If that is refused, the rest is written nevertheless.
func (s *session) writeTotals(ctx context.Context, r *rendered) *accel.Problem {
	for conflicts := 0; ; conflicts++ {
		body := s.uncounted(r)
		if body == nil {
			return nil
		}
		err := s.patch(ctx, types.StrategicMergePatchType, body, "status")
		switch {
		case err == nil:
			return nil
		case apierrors.IsConflict(err) && conflicts < maxConflicts: // the node changed; patch has read it again
		case refused(err):
			s.noTotals = true
			if s.k.first("totals") {
				s.k.c.Log.Warn("the API server refuses the totals of the node's cards; the scheduler needs them from somebody else",
					"node", s.k.c.Node, "error", err)
			}
			return nil
		default:
			return problem("patch nodes/status of", s.k.c.Node, err)
		}
	}
}
