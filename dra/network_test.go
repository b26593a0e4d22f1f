package dra

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acceld/acceld/accel"
)

// nearby is a view of a device on NUMA node 1 that has a network function beside it.
func nearby(f func(*accel.NetworkFunction)) View {
	a := edu(1)
	a.NUMANode = 1
	n := accel.NetworkFunction{
		Address: "0000:02:00.0", Ports: []string{"0000:00:01.0"}, RDMA: []accel.RDMADevice{{
			Name: "mlx5_0", NodeGUID: "9803:9b03:00c0:ffee", SystemGUID: "9803:9b03:00c0:ff00", Ports: []accel.RDMAPort{{
				Number: 1, Layer: "InfiniBand", Interface: "ib0", Subnet: "fec0:0000:0000:0001", State: "active",
			}},
		}},
	}
	if f != nil {
		f(&n)
	}
	return View{
		Node: node, Definition: &accel.Definition{Kind: "qemu-edu"}, Accelerators: []accel.Accelerator{a},
		Devices: []accel.PCIDevice{
			{Address: "0000:00:01.0"},
			{Address: "0000:01:00.0", ParentPort: "0000:00:01.0"},
			{Address: "0000:02:00.0", ParentPort: "0000:00:01.0"},
		},
		Network: []accel.NetworkFunction{n},
		Nodes: []accel.NUMANode{
			{ID: 0, Distances: []int{10, 12}, Package: accel.Known(0)},
			{ID: 1, Distances: []int{12, 10}, Package: accel.Known(0)},
		},
	}
}

func texts(attributes map[string]Attribute) map[string]string {
	out := map[string]string{}
	for name, a := range attributes {
		if strings.HasPrefix(name, nicPrefix) {
			out[name] = *a.String
		}
	}
	return out
}

// TestBeside: a device has the network function that is nearest to it, and what the kernel cannot say now stays as it
// was published, unless it is about another function.
func TestBeside(t *testing.T) {
	all := map[string]string{
		"nicBusID": "0000:02:00.0", "nicPath": "port", "nicRDMA": "mlx5_0", "nicNodeGUID": "9803:9b03:00c0:ffee",
		"nicSystemGUID": "9803:9b03:00c0:ff00", "nicLayer": "InfiniBand", "nicInterface": "ib0",
		"nicSubnet": "fec0:0000:0000:0001",
	}
	published := nearby(nil).device(nearby(nil).Accelerators[0]).Attributes
	if diff := cmp.Diff(all, texts(published)); diff != "" {
		t.Error(diff)
	}
	roundTrip[resourceapi.ResourceSlice](t, Slices(nearby(nil))[0])
	silent := nearby(func(f *accel.NetworkFunction) {
		f.Unknown = "no answer from the kernel"
		f.RDMA = []accel.RDMADevice{{Name: "mlx5_0"}}
	})
	little := map[string]string{"nicBusID": "0000:02:00.0", "nicPath": "port", "nicRDMA": "mlx5_0"}
	if diff := cmp.Diff(little, texts(silent.device(silent.Accelerators[0]).Attributes)); diff != "" {
		t.Errorf("before anything is known: %s", diff)
	}
	silent.Last = func(string) map[string]Attribute { return published }
	if diff := cmp.Diff(all, texts(silent.device(silent.Accelerators[0]).Attributes)); diff != "" {
		t.Errorf("while the kernel does not answer: %s", diff)
	}
	other := "0000:09:00.0"
	published["nicBusID"] = Attribute{String: &other}
	if diff := cmp.Diff(little, texts(silent.device(silent.Accelerators[0]).Attributes)); diff != "" {
		t.Errorf("another function: %s", diff)
	}
	none := nearby(func(f *accel.NetworkFunction) { f.RDMA = nil })
	if got := texts(none.device(none.Accelerators[0]).Attributes); len(got) > 0 {
		t.Errorf("without RDMA: %v", got)
	}
}

// TestRoomForAttributes: the API server takes 32 attributes and capacities of a device; the network function's come
// last.
func TestRoomForAttributes(t *testing.T) {
	v := nearby(nil)
	for i := range 16 {
		v.Definition.Capacity = append(v.Definition.Capacity, accel.Capacity{Name: "c" + string(rune('a'+i)), Value: "1"})
	}
	a := v.Accelerators[0]
	a.Serial, a.UUID, a.Model = "s", "u", "m"
	v.DriverVersion = "1.0.0"
	v.Devices[1].Vendor, v.Devices[1].Device, v.Devices[1].Link = "1234", "11e8", accel.Link{MaxSpeedGTs: 16, MaxWidth: 16}
	d := v.device(a)
	n := len(d.Attributes) + len(d.Capacity)
	if n != resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice || *d.Attributes["serial"].String != "s" ||
		d.Attributes["nicBusID"].String == nil {
		t.Errorf("%d attributes and %d capacities", len(d.Attributes), len(d.Capacity))
	}
}

// TestLists: NUMA nodes are a list where the cluster takes lists, and a single value everywhere else.
func TestLists(t *testing.T) {
	v := nearby(nil)
	if got := v.attributes(v.Accelerators[0])[numaNode]; got.Int == nil || *got.Int != 1 || got.Ints != nil {
		t.Errorf("%+v", got)
	}
	v.Lists = true
	if diff := cmp.Diff(Attribute{Ints: []int64{1, 0}}, v.attributes(v.Accelerators[0])[numaNode]); diff != "" {
		t.Error(diff)
	}
	s := Slices(v)[0]
	roundTrip[resourceapi.ResourceSlice](t, s)
	if !hasLists(s) {
		t.Error("a slice with a list has none")
	}
	v.Accelerators[0].NUMANode = -1
	if _, published := v.attributes(v.Accelerators[0])[numaNode]; published || hasLists(Slices(v)[0]) {
		t.Error("a node that is not known is published")
	}
}

// TestListsRefused: an API server that refuses lists gets single values, at once and without asking again.
func TestListsRefused(t *testing.T) {
	b := newBed(t)
	a := edu(1)
	a.NUMANode = 0
	p := b.plugin(a)
	p.cfg.Lists = true
	refused := 0
	b.server.takes = func(s Slice) error {
		if !hasLists(s) {
			return nil
		}
		refused++
		return apierrors.NewInvalid(schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceSlice"}, s.Metadata.Name, nil)
	}
	b.kubelet()
	b.run(p)
	b.offered(p, 1)
	for range 5 {
		p.poke()
		time.Sleep(5 * time.Millisecond)
	}
	if got := b.server.published()[0].Spec.Devices[0].Attributes[numaNode]; got.Int == nil || *got.Int != 0 {
		t.Errorf("published: %+v", got)
	}
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	if refused != 1 {
		t.Errorf("%d lists were refused", refused)
	}
}

// TestListsTaken: lists stay where they are taken, and another refusal does not change that.
func TestListsTaken(t *testing.T) {
	b := newBed(t)
	a := edu(1)
	a.NUMANode = 0
	p := b.plugin(a)
	p.cfg.Lists = true
	away := true
	b.server.takes = func(Slice) error {
		if away {
			away = false
			return errors.New("connection refused")
		}
		return nil
	}
	b.kubelet()
	b.run(p)
	b.offered(p, 1)
	if got := b.server.published()[0].Spec.Devices[0].Attributes[numaNode]; len(got.Ints) != 1 {
		t.Errorf("published: %+v", got)
	}
}
