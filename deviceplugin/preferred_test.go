package deviceplugin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/google/go-cmp/cmp"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// on makes devices from words "id@node", "id@node/port/port" and "id@node=fabric/port". "id" has no node, and
// "id@0!" is unhealthy.
func on(words string) map[string]device {
	var accs []accel.Accelerator
	for _, w := range strings.Fields(words) {
		a := thing("", -1, accel.Healthy)
		if strings.HasSuffix(w, "!") {
			w, a.Health.State = strings.TrimSuffix(w, "!"), accel.Unhealthy
		}
		var where string
		a.ID, where, _ = strings.Cut(w, "@")
		parts := strings.Split(where, "/")
		a.Ports = parts[1:]
		parts[0], a.Fabric, _ = strings.Cut(parts[0], "=")
		if parts[0] != "" {
			fmt.Sscan(parts[0], &a.NUMANode)
		}
		accs = append(accs, a)
	}
	return listed(accs)
}

// listed is the list of these devices.
func listed(accs []accel.Accelerator) map[string]device {
	inv := newInventory(&accel.Definition{})
	inv.update(accs, time.Now())
	return inv.load().devices
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
		{"below one port", "a@0/p b@0/q c@0/p d@0/q", "b c d", "", 2, "b d"},
		{"below one port of the other node", "a@0/p b@0/q c@1/r d@1/r e@1/s", "a b c d e", "", 2, "c d"},
		{"a single one leaves the pair whole", "a@0/p b@0/p c@0/q", "a b c", "", 1, "c"},
		{"a single one leaves the pair of the other node whole", "a@0/p b@0/p c@1/q d@1/r", "a b c d", "", 1, "c"},
		{"the node counts more than the port", "a@0/p b@1/p c@1/q", "a b c", "", 2, "b c"},
		{"must pulls its port", "a@0/p b@0/p c@0/q d@0/q", "a b c d", "d", 2, "d c"},
		{"below one switch of one port", "a@0/p/x b@0/p/y c@0/p/y", "a b c", "", 2, "b c"},
		{
			"three below one port, two of them below a switch", "a@0/p/x b@0/p/y c@0/p/y d@0/q e@0/q", "a b c d e", "",
			3,
			"a b c",
		},
		{"a device on the root bus", "a@0 b@0/p c@0/p", "a b c", "", 2, "b c"},
		{"links count more than ports", "a@0=x/p b@0=y/p c@0=x/q d@0=y/q", "a b d", "", 2, "b d"},
		{"the node counts more than links", "a@0=x b@1=x c@1=y", "a b c", "", 2, "b c"},
		{"links over two nodes", "a@0=x b@0=y c@1=y d@1=y e@0=x", "a c e", "", 2, "a e"},
		{"one without links is alone", "a@0/p b@0/p c@0=x/q d@0=x/r", "a b c d", "", 2, "c d"},
		{"must pulls its links", "a@0=x b@0=y c@0=x d@0=y", "a b c d", "d", 2, "d b"},
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

// For any request: as many devices as requested if there are enough, each once, including those that must be
// included, and on as few nodes as possible.
func TestPreferAlways(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var accs []accel.Accelerator
		var available, must []string
		for i := range 1 + r.IntN(8) {
			id := fmt.Sprint("d", i)
			a := thing(id, r.IntN(4)-1, accel.Healthy)
			a.Ports = []string{fmt.Sprint("p", r.IntN(3)), fmt.Sprint("q", r.IntN(2))}[:r.IntN(3)]
			accs = append(accs, a)
			if r.IntN(4) > 0 {
				available = append(available, id)
				if r.IntN(5) == 0 {
					must = append(must, id)
				}
			}
		}
		devices := listed(accs)
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
		best, ports := fewest(devices, available, must, size)
		if n := countAt(devices, got, 0); n > best {
			t.Fatalf("%d of %v with %v = %v on %d nodes, %d suffice", size, available, must, got, n, best)
		}
		if n := countAt(devices, got, 2); best == 1 && n > ports {
			t.Fatalf("%d of %+v with %v = %v below %d ports, %d suffice", size, accs, must, got, n, ports)
		}
	}
}

// countAt counts the places at a level of [place].
func countAt(devices map[string]device, ids []string, level int) int {
	places := map[string]bool{}
	for _, id := range ids {
		places[devices[id].at.step(level)] = true
	}
	return len(places)
}

// fewest tries every subset: the fewest NUMA nodes, and the fewest topmost ports among the sets with that few nodes.
func fewest(devices map[string]device, available, must []string, size int) (nodes, ports int) {
	nodes, ports = len(available)+1, len(available)+1
	for mask := range 1 << len(available) {
		var ids []string
		for i, id := range available {
			if mask&(1<<i) != 0 {
				ids = append(ids, id)
			}
		}
		missing := slices.ContainsFunc(must, func(id string) bool { return !slices.Contains(ids, id) })
		if len(ids) != size || missing {
			continue
		}
		n, p := countAt(devices, ids, 0), countAt(devices, ids, 2)
		if n < nodes || n == nodes && p < ports {
			nodes, ports = n, p
		}
	}
	return nodes, ports
}

// sixtyFour are devices on eight NUMA nodes, each with two ports of two switches of two.
func sixtyFour() (accs []accel.Accelerator, ids []string) {
	for i := range 64 {
		a := thing(fmt.Sprintf("0000:%02x:00.0", i), i/8, accel.Healthy)
		a.Fabric = fmt.Sprint(i / 4)
		a.Ports = []string{
			fmt.Sprintf("0000:00:%02x.0", i/4), fmt.Sprintf("0000:a%x:00.0", i/4),
			fmt.Sprintf("0000:b%x:00.0", i/2),
		}
		accs, ids = append(accs, a), append(ids, a.ID)
	}
	return accs, ids
}

func BenchmarkPrefer(b *testing.B) {
	accs, ids := sixtyFour()
	inv := newInventory(&accel.Definition{})
	inv.update(accs, time.Now())
	s := &service{list: inv}
	for _, size := range []int32{1, 4, 9, 32} {
		b.Run(fmt.Sprint(size, " of 64"), func(b *testing.B) {
			req := &pluginapi.PreferredAllocationRequest{
				ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{
					{AvailableDeviceIDs: ids, AllocationSize: size},
					{AvailableDeviceIDs: ids, MustIncludeDeviceIDs: ids[5:6], AllocationSize: size},
				},
			}
			for b.Loop() {
				if _, err := s.GetPreferredAllocation(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
