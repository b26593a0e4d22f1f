package accel

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// vfio is a kind whose containers get the IOMMU group of a device.
func vfio(kind, device string) *Definition {
	return &Definition{
		Kind: kind, Match: []Match{{Vendor: "f00d", Device: device}}, Driver: DriverDefinition{Binds: "vfio-pci"},
		Nodes: []NodeSource{{Glob: "/sys/class/vfio/{{.IOMMUGroup}}"}},
	}
}

// TestSharedGroups: a group has one owner, whatever the kinds, and none while the host has a function of it.
func TestSharedGroups(t *testing.T) {
	function := func(slot, device, driver string, group int) PCIDevice {
		return PCIDevice{
			Address: "0000:01:0" + slot + ".0", Vendor: "f00d", Device: device, Class: "00ff00", Driver: driver,
			IOMMUGroup: group,
		}
	}
	first, second := function("1", "0001", "vfio-pci", 7), function("2", "0001", "vfio-pci", 7)
	bridge := function("0", "0009", "", 7)
	bridge.Class, bridge.Driver = "060400", "shpchp"
	cdev := vfio("b-x", "0002")
	cdev.Nodes = []NodeSource{{Glob: "vfio-dev/vfio*"}}
	other := &Definition{Kind: "c-x", Match: []Match{{Vendor: "f00d"}}, Nodes: []NodeSource{{Glob: "npu/npu*"}}}
	shared := []SharedGroup{{Group: 7, Owner: first.Address, Others: []string{second.Address}}}
	for name, c := range map[string]struct {
		kinds  []*Definition
		pci    []PCIDevice
		before []SharedGroup
		want   []SharedGroup
	}{
		"groups of their own": {[]*Definition{vfio("a-x", "0001")}, []PCIDevice{first, function("2", "0001", "", 8)}, nil, nil},
		"no IOMMU": {
			[]*Definition{vfio("a-x", "0001")},
			[]PCIDevice{function("1", "0001", "", -1), function("2", "0001", "", -1)},
			nil, nil,
		},
		"one kind":  {[]*Definition{vfio("a-x", "0001")}, []PCIDevice{second, first}, nil, shared},
		"two kinds": {[]*Definition{vfio("a-x", "0001"), cdev}, []PCIDevice{first, function("2", "0002", "vfio-pci", 7)}, nil, shared},
		"the owner stays": {
			[]*Definition{vfio("a-x", "0001")},
			[]PCIDevice{first, second},
			[]SharedGroup{{Group: 7, Owner: second.Address}},
			[]SharedGroup{{Group: 7, Owner: second.Address, Others: []string{first.Address}}},
		},
		"the owner went": {
			[]*Definition{vfio("a-x", "0001")},
			[]PCIDevice{first, second},
			[]SharedGroup{{Group: 7, Owner: "0000:01:00.0"}},
			shared,
		},
		"a bridge": {[]*Definition{vfio("a-x", "0001")}, []PCIDevice{bridge, first}, nil, nil},
		"a driver of the host": {
			[]*Definition{vfio("a-x", "0001")},
			[]PCIDevice{first, function("3", "0003", "snd", 7), function("2", "0003", "igb", 7)},
			nil,
			[]SharedGroup{{Group: 7, Owner: first.Address, Others: []string{}, Foreign: "0000:01:02.0", Driver: "igb"}},
		},
		"drivers for virtual machines": {
			[]*Definition{vfio("a-x", "0001")},
			[]PCIDevice{first, function("3", "0003", "pci-stub", 7), function("4", "0003", "mlx5_vfio_pci", 7)},
			nil, nil,
		},
		"kinds that give no group": {[]*Definition{other}, []PCIDevice{first, second}, nil, nil},
	} {
		kinds := map[string]*Definition{}
		for _, def := range c.kinds {
			kinds[def.Kind] = def
		}
		if diff := cmp.Diff(c.want, SharedGroups(kinds, c.pci, Rivalries(kinds, c.pci), c.before)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWithholdGroups(t *testing.T) {
	well := Health{State: Healthy}
	accs := []Accelerator{
		{ID: "a", Health: well},
		{ID: "b", Health: well, Partitions: []Accelerator{{ID: "b-v", Parent: "b", Health: well}}},
		{ID: "c", Health: well},
		{ID: "d", Health: Health{State: Gone}},
		{ID: "e", Health: well, Withheld: &Withheld{By: ByReset}},
		{ID: "f", Health: well},
	}
	got := WithholdGroups([]SharedGroup{
		{Group: 1, Owner: "a", Others: []string{"b", "d", "e"}}, {Group: 2, Owner: "f", Foreign: "x", Driver: "snd"},
	}, accs)
	want := map[string]Withholder{"a": "", "b": ByGroup, "b-v": ByGroup, "c": "", "d": "", "e": ByReset, "f": ByGroup}
	for _, a := range Flat(got) {
		by := Withholder("")
		if a.Withheld != nil {
			by = a.Withheld.By
		}
		if by != want[a.ID] {
			t.Errorf("%q is withheld by %q, want %q", a.ID, by, want[a.ID])
		}
	}
	if _, why := got[1].Refusal(); !strings.Contains(why, `"a"`) || !strings.Contains(why, "group 1") {
		t.Error(why)
	}
	if _, why := got[5].Refusal(); !strings.Contains(why, `"snd"`) || !got[5].WithheldAlone() {
		t.Error(why)
	}
	if accs[1].Withheld != nil || accs[1].Partitions[0].Withheld != nil {
		t.Error("the devices of the caller were changed")
	}
}

// TestSharedNode: two devices with one node are an error in the definition, unless the node is meant for all.
func TestSharedNode(t *testing.T) {
	unit := func(id, parent string, nodes ...string) Accelerator {
		a := Accelerator{ID: id, Parent: parent, Health: Health{State: Healthy}}
		if parent != "" {
			a.Profile = "half"
		}
		for _, n := range nodes {
			a.Nodes = append(a.Nodes, DeviceNode{Path: n})
		}
		return a
	}
	divided := func(a Accelerator, parts ...Accelerator) Accelerator { a.Partitions = parts; return a }
	withheld, gone := unit("b", "", "/dev/vfio/1"), unit("b", "", "/dev/npu0")
	withheld.Withheld, gone.Health.State = &Withheld{By: ByGroup}, Gone
	own, all := []NodeSource{{Glob: "npu/npu*"}}, []NodeSource{{Glob: "/sys/class/vfio/[0-9]*"}}
	for name, c := range map[string]struct {
		nodes []NodeSource
		parts *Partitions
		accs  []Accelerator
		node  string
	}{
		"each its own":     {own, nil, []Accelerator{unit("a", "", "/dev/npu0"), unit("b", "", "/dev/npu1")}, ""},
		"the same":         {own, nil, []Accelerator{unit("a", "", "/dev/npu0"), unit("b", "", "/dev/npu0")}, "/dev/npu0"},
		"one for all":      {all, nil, []Accelerator{unit("a", "", "/dev/ctl"), unit("b", "", "/dev/ctl")}, ""},
		"all those of all": {all, nil, []Accelerator{unit("a", "", "/dev/1", "/dev/2"), unit("b", "", "/dev/1", "/dev/2")}, "/dev/1"},
		"withheld":         {own, nil, []Accelerator{unit("a", "", "/dev/vfio/1"), withheld}, ""},
		"gone":             {own, nil, []Accelerator{unit("a", "", "/dev/npu0"), gone}, ""},
		"the device's node": {own, &Partitions{WithDevice: true}, []Accelerator{divided(unit("a", "", "/dev/npu0"),
			unit("a-0", "a", "/dev/npu0", "/dev/cap0"), unit("a-1", "a", "/dev/npu0", "/dev/cap1"))}, ""},
		"partitions with one node": {own, &Partitions{Nodes: own}, []Accelerator{divided(unit("a", ""),
			unit("a-0", "a", "/dev/vfio/3"), unit("a-1", "a", "/dev/vfio/3"))}, "/dev/vfio/3"},
		"a program says so": {own, &Partitions{Told: true}, []Accelerator{divided(unit("a", ""),
			unit("a-0", "a", "/dev/vfio/3"), unit("a-1", "a", "/dev/vfio/3"))}, ""},
	} {
		got := SharedNode(&Definition{Kind: "example-npu", Nodes: c.nodes, Partitions: c.parts}, c.accs)
		if c.node == "" && got != nil || c.node != "" && (got == nil || got.Reason != NodeShared ||
			!strings.Contains(got.Message, `"`+c.node+`"`)) {
			t.Errorf("%s: %v, want %q", name, got, c.node)
		}
	}
}
