package deviceplugin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/google/go-cmp/cmp"
)

// on makes devices from "id@node" words, "id" is on no node, "id@0!" is unhealthy.
func on(words string) map[string]device {
	devices := map[string]device{}
	for _, w := range strings.Fields(words) {
		state := accel.Healthy
		if strings.HasSuffix(w, "!") {
			w, state = strings.TrimSuffix(w, "!"), accel.Unhealthy
		}
		d := device{numa: -1, health: accel.Health{State: state}}
		var node string
		d.id, node, _ = strings.Cut(w, "@")
		if node != "" {
			fmt.Sscan(node, &d.numa)
		}
		devices[d.id] = d
	}
	return devices
}

func TestPrefer(t *testing.T) {
	const eight = "a@0 b@0 c@0 d@0 e@1 f@1 g@1 h@1"
	for _, tc := range []struct {
		name            string
		devices         string
		available, must string
		size            int
		want            string
	}{
		{"one", eight, "a b c d e f g h", "", 1, "a"},
		{"two on one node", eight, "d e f h", "", 2, "e f"},
		{"four on one node", eight, "a b c e f g h", "", 4, "e f g h"},
		{"best fit leaves the full node whole", eight, "a b c d g h", "", 2, "g h"},
		{"one that fits better", eight, "a b c d h", "", 1, "h"},
		{"five need both, the larger first", eight, "a b e f g", "", 4, "e f g a"},
		{"all", eight, "a b c d e f g h", "", 8, "a b c d e f g h"},
		{"more than there are", eight, "a e", "", 5, "a e"},
		{"must pulls its node", eight, "a b c d e f g h", "f", 3, "f e g"},
		{"must beats best fit", eight, "a b c e f", "e", 2, "e f"},
		{"must on both nodes", eight, "a b c e f", "a e", 3, "a e f"},
		{"must is enough", eight, "a b c", "b c", 2, "b c"},
		{"must is more than asked", eight, "a b c", "b c", 1, "b c"},
		{"must is not available", eight, "a e", "g", 2, "g e"},
		{"order of the question does not matter", eight, "h g f e d c b a a", "", 3, "a b c"},
		{"no topology", "a b c", "c b a", "", 2, "a b"},
		{"a device without node last", "a b@1", "a b", "", 1, "b"},
		{"four nodes, two suffice", "a@0 b@1 c@1 d@2 e@2 f@2 g@3", "a b c d e f g", "", 5, "d e f b c"},
		{"the rest by best fit", "a@0 b@1 c@1 d@2 e@2 f@2", "a b c d e f", "", 4, "d e f a"},
		{"unhealthy only when needed", "a@0! b@0 c@1", "a b c", "", 2, "b c"},
		{"unhealthy when needed", "a@0! b@0", "a b", "", 2, "b a"},
		{"unknown ids", "a@0", "x y a", "", 2, "a x"},
		{"nothing", eight, "", "", 2, ""},
		{"negative", eight, "a", "", -1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := prefer(on(tc.devices), strings.Fields(tc.available), strings.Fields(tc.must), tc.size)
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever is asked: as many as asked where there are so many, each once, those that must be included among them, and no
// other choice on fewer nodes.
func TestPreferAlways(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		devices := map[string]device{}
		var available, must []string
		for i := range 1 + r.IntN(8) {
			id := fmt.Sprint("d", i)
			devices[id] = device{id: id, numa: r.IntN(4) - 1, health: accel.Health{State: accel.Healthy}}
			if r.IntN(4) > 0 {
				available = append(available, id)
				if r.IntN(5) == 0 {
					must = append(must, id)
				}
			}
		}
		size := len(must) + r.IntN(len(available)-len(must)+1)
		got := prefer(devices, available, must, size)
		distinct := slices.Compact(slices.Sorted(slices.Values(got)))
		if len(got) != size || len(distinct) != size {
			t.Fatalf("%d of %v with %v = %v", size, available, must, got)
		}
		for _, id := range must {
			if !slices.Contains(got, id) {
				t.Fatalf("%d of %v = %v without %q", size, available, got, id)
			}
		}
		if best := fewestNodes(devices, available, must, size); countNodes(devices, got) > best {
			t.Fatalf("%d of %v with %v = %v on %d nodes, %d suffice", size, available, must, got, countNodes(devices, got), best)
		}
	}
}

func countNodes(devices map[string]device, ids []string) int {
	nodes := map[int]bool{}
	for _, id := range ids {
		nodes[devices[id].numa] = true
	}
	return len(nodes)
}

// fewestNodes tries every subset.
func fewestNodes(devices map[string]device, available, must []string, size int) int {
	best := len(available) + 1
	for mask := range 1 << len(available) {
		var ids []string
		for i, id := range available {
			if mask&(1<<i) != 0 {
				ids = append(ids, id)
			}
		}
		missing := slices.ContainsFunc(must, func(id string) bool { return !slices.Contains(ids, id) })
		if len(ids) == size && !missing {
			best = min(best, countNodes(devices, ids))
		}
	}
	return best
}
