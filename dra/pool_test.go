package dra

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

func view(accs ...accel.Accelerator) View {
	def := &accel.Definition{Kind: "qemu-edu", Resource: "qemu.org/edu", Title: "QEMU educational device"}
	return View{Node: node, Definition: def, Accelerators: accs}
}

func text(s string) Attribute  { return Attribute{String: &s} }
func number(n int64) Attribute { return Attribute{Int: &n} }

func TestDevice(t *testing.T) {
	v := view()
	v.DriverVersion = "580.65.06"
	v.Devices = []accel.PCIDevice{
		{Address: "0000:40:01.0"},
		{Address: "0000:41:00.0", ParentPort: "0000:40:01.0"},
		{
			Address: "0000:42:00.0", ParentPort: "0000:41:00.0", Vendor: "1234", Device: "11e8",
			Link: accel.Link{SpeedGTs: 2.5, MaxSpeedGTs: 32, Width: 8, MaxWidth: 16},
		},
	}
	a := accel.Accelerator{ID: "0000:42:00.0", NUMANode: 1, Serial: "S-42", Health: accel.Health{State: accel.Healthy}}
	version := "580.65.6"
	want := Device{Name: "0000-42-00-0", Attributes: map[string]Attribute{
		"kind": text("qemu-edu"), "product": text("QEMU educational device"), "serial": text("S-42"),
		"vendorID": text("1234"), "deviceID": text("11e8"),
		"resource.kubernetes.io/pciBusID": text("0000:42:00.0"), "resource.kubernetes.io/pcieRoot": text("pci0000:40"),
		"resource.kubernetes.io/numaNode": number(1),
		"driverVersion":                   {Version: &version}, "linkSpeedMTs": number(32000), "linkWidth": number(16),
	}}
	if diff := cmp.Diff(want, v.device(a)); diff != "" {
		t.Error(diff)
	}
	a.Model = "EDU 9000"
	if diff := cmp.Diff(text("EDU 9000"), v.device(a).Attributes["product"]); diff != "" {
		t.Errorf("a device that names its model: %s", diff)
	}
	// Unknown values are left out: a NUMA node of -1, and a root above a bridge that is not known.
	a.NUMANode, a.Serial = -1, ""
	v.Devices, v.DriverVersion = v.Devices[1:], "nightly"
	v.Devices[1].Link = accel.Link{}
	got := v.device(a).Attributes
	for _, name := range []string{numaNode, pcieRoot, "serial", "linkSpeedMTs", "linkWidth"} {
		if _, there := got[name]; there {
			t.Errorf("%s is there: %+v", name, got[name])
		}
	}
	if diff := cmp.Diff(text("nightly"), got["driverVersion"]); diff != "" {
		t.Error(diff)
	}
}

func TestAttributesHaveTheirLength(t *testing.T) {
	v := view()
	v.DriverVersion = strings.Repeat("x", 70)
	a := edu(1)
	a.Serial = strings.Repeat("é", 40)
	for name, x := range v.device(a).Attributes {
		if x.String != nil && (len(*x.String) > 64 || !strings.HasPrefix(strings.Repeat("é", 40), *x.String) &&
			name == "serial") {
			t.Errorf("%s is %q", name, *x.String)
		}
	}
}

func TestSemantic(t *testing.T) {
	for in, want := range map[string]string{
		"1.2.3": "1.2.3", "580.65.06": "580.65.6", "1.2.3-rc1": "1.2.3-rc1", "0.0.0": "0.0.0", "10.00.1": "10.00.1 no",
		"1.2": "1.2 no", "": " no", "6.12.9-1-lts": "6.12.9-1-lts", "v1.2.3": "v1.2.3 no",
		// The API server refuses a whole slice for one of these.
		"1.2.3-01": "1.2.3-01 no", "1.2.3-a..b": "1.2.3-a..b no", "1.2.3-": "1.2.3- no",
		"1": "1 no", "1.2.3+b.01": "1.2.3+b.01",
	} {
		got, ok := semantic(in)
		if !ok {
			got += " no"
		}
		if got != want {
			t.Errorf("semantic(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestCapacity(t *testing.T) {
	v := view()
	v.Definition.Capacity = []accel.Capacity{
		{Name: "memory", File: "mem_total", Share: &accel.Share{Default: "1Gi", Step: "512Mi"}},
		{Name: "engines", Value: "2"},
		{Name: "unread", File: "nothing"},
	}
	a := edu(1)
	a.Capacity = map[string]int64{"memory": 8 << 30}
	got := v.device(a)
	want := map[string]Amount{
		"memory":  {Value: "8Gi", Policy: &Policy{Default: "1Gi", Range: &Range{Min: "512Mi", Step: "512Mi"}}},
		"engines": {Value: "2"},
	}
	if diff := cmp.Diff(want, got.Capacity); diff != "" || !got.Shared {
		t.Errorf("shared %v: %s", got.Shared, diff)
	}
	a.Capacity = nil // an unknown amount cannot be counted, so the device must not be shared
	if got := v.device(a); got.Shared || len(got.Capacity) != 1 {
		t.Errorf("a device whose memory is not known: %+v", got)
	}
}

// with returns the slices as the API server stores them.
func with(all []Slice, generation int64) map[string]*Slice {
	there := map[string]*Slice{}
	for i, s := range all {
		s.Spec.Pool.Generation, s.Metadata.ResourceVersion = generation, fmt.Sprint(i+1)
		there[s.Metadata.Name] = &s
	}
	return there
}

func TestSlicesOfAPool(t *testing.T) {
	if all := Slices(view()); len(all) != 1 || all[0].Spec.Pool.Count != 1 || len(all[0].Spec.Devices) != 0 {
		t.Errorf("a pool without devices: %+v", all)
	}
	all := Slices(view(edus(130)...))
	if len(all) != 3 || len(all[0].Spec.Devices) != 64 || len(all[2].Spec.Devices) != 2 ||
		all[1].Spec.Pool.Count != 3 || all[2].Metadata.Name != "node-a.qemu-edu.acceld.dev-002" {
		t.Errorf("130 devices: %d slices, %+v", len(all), all[2])
	}
	if name := sliceName(strings.Repeat("n", 253), "qemu-edu.acceld.dev", 1); len(name) > 253 ||
		!strings.HasSuffix(name, ".qemu-edu.acceld.dev-001") {
		t.Errorf("a long name: %q", name)
	}
}

func TestPlan(t *testing.T) {
	accs := edus(130)
	well := Slices(view(accs...))
	one := append([]accel.Accelerator{}, accs...)
	one[70] = sick(one[70])
	two := append([]accel.Accelerator{}, one...)
	two[0] = sick(two[0])
	older := with(well, 4)
	older[well[1].Metadata.Name].Spec.Pool.Generation = 3
	for _, c := range []struct {
		name                   string
		there                  map[string]*Slice
		wanted                 []Slice
		create, update, remove int
		generation             int64
	}{
		{"nothing there", nil, well, 3, 0, 0, 1},
		{"all right", with(well, 7), well, 0, 0, 0, 7},
		{"one fault is one slice of the same generation", with(well, 7), Slices(view(one...)), 0, 1, 0, 7},
		{"two slices are a new generation", with(well, 7), Slices(view(two...)), 0, 3, 0, 8},
		{"a fault that goes on is no news", with(Slices(view(two...)), 7), Slices(view(two...)), 0, 0, 0, 7},
		{"more devices", with(Slices(view(accs[:64]...)), 7), well, 2, 1, 0, 8},
		{"fewer devices", with(well, 7), Slices(view(accs[:64]...)), 0, 1, 2, 8},
		{"a killed agent's half of a generation", older, well, 0, 1, 0, 4},
		{"nothing wanted", with(well, 7), nil, 0, 0, 3, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := planFor(c.wanted, c.there, nil)
			if len(p.create) != c.create || len(p.update) != c.update || len(p.remove) != c.remove ||
				p.empty() != (c.create+c.update+c.remove == 0) {
				t.Errorf("create %d, update %d, remove %d", len(p.create), len(p.update), len(p.remove))
			}
			for _, s := range append(p.create, p.update...) {
				if s.Spec.Pool.Generation != c.generation {
					t.Errorf("%s has generation %d, want %d", s.Metadata.Name, s.Spec.Pool.Generation, c.generation)
				}
			}
			for _, s := range p.update {
				if s.Metadata.ResourceVersion != c.there[s.Metadata.Name].Metadata.ResourceVersion {
					t.Errorf("%s is updated from version %q", s.Metadata.Name, s.Metadata.ResourceVersion)
				}
			}
		})
	}
}

// TestOneSliceGone: a slice that somebody deleted is created again in the generation of the others, which stay
// unchanged.
func TestOneSliceGone(t *testing.T) {
	well := Slices(view(edus(130)...))
	there := with(well, 7)
	delete(there, well[1].Metadata.Name)
	p := planFor(well, there, nil)
	if len(p.create) != 1 || len(p.update) != 0 || p.create[0].Spec.Pool.Generation != 7 {
		t.Errorf("create %d, update %d", len(p.create), len(p.update))
	}
}
