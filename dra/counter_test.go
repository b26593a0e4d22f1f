package dra

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/acceld/acceld/accel"
)

// halves returns a definition whose devices can be divided into halves, with counters if counted.
func halves(counted bool) *accel.Definition {
	def := &accel.Definition{
		Kind: "qemu-edu", Resource: "qemu.org/edu",
		Capacity: []accel.Capacity{{Name: "memory", Value: "4Ki"}},
	}
	half := accel.Profile{Name: "half", Capacity: []accel.Capacity{{Name: "memory", Value: "2Ki"}}}
	def.Partitions = &accel.Partitions{Nodes: []accel.NodeSource{{Glob: "."}}}
	if counted {
		def.Partitions.Counters = map[string]string{"parts": "2"}
		half.Uses, half.Possible = map[string]string{"parts": "1"}, []string{"p0", "p1"}
	}
	def.Partitions.Profiles = []accel.Profile{half}
	return def
}

// divide is a device in parts of a profile.
func divide(a accel.Accelerator, profile string, names ...string) accel.Accelerator {
	for _, name := range names {
		a.Partitions = append(a.Partitions, accel.Accelerator{
			ID: accel.PartitionID(a.ID, profile, name), Parent: a.ID, Profile: profile, NUMANode: -1, Bound: a.Bound,
			Nodes: []accel.DeviceNode{{Path: a.Nodes[0].Path + name}}, Env: []string{"PART=" + name},
			Health: accel.Health{State: accel.Healthy},
		})
	}
	return a
}

// told is what the slices say about each device: its name, what it consumes, and why it is not offered.
func reported(all []Slice) (out []string) {
	for _, s := range all {
		for _, d := range s.Spec.Devices {
			row := d.Name
			for _, c := range d.Consumes {
				row += " " + c.CounterSet + ":" + c.Counters["parts"].Value
			}
			for _, t := range d.Taints {
				row += " !" + t.Value
			}
			out = append(out, row)
		}
		for _, c := range s.Spec.SharedCounters {
			out = append(out, "of "+c.Name+": "+c.Counters["parts"].Value)
		}
	}
	return out
}

func TestPartitionSlices(t *testing.T) {
	for _, tc := range []struct {
		name    string
		counted bool
		accs    []accel.Accelerator
		want    []string
	}{
		{"as they are", false, []accel.Accelerator{divide(edu(1), "half", "p0", "p1"), edu(2)}, []string{
			"0000-01-00-0 !DevicePartitioned", "0000-01-00-0-half-p0", "0000-01-00-0-half-p1", "0000-02-00-0",
		}},
		{"counted, divided", true, []accel.Accelerator{divide(edu(1), "half", "p0", "p1")}, []string{
			"0000-01-00-0 0000-01-00-0:2 !DevicePartitioned", "0000-01-00-0-half-p0 0000-01-00-0:1",
			"0000-01-00-0-half-p1 0000-01-00-0:1", "of 0000-01-00-0: 2",
		}},
		{"counted, whole", true, edus(1), []string{
			"0000-01-00-0 0000-01-00-0:2", "0000-01-00-0-half-p0 0000-01-00-0:1 !PartitionAbsent",
			"0000-01-00-0-half-p1 0000-01-00-0:1 !PartitionAbsent", "of 0000-01-00-0: 2",
		}},
		{"counted, sick", true, []accel.Accelerator{divide(sick(edu(1)), "half", "p0")}, []string{
			"0000-01-00-0 0000-01-00-0:2 !DevicePartitioned", "0000-01-00-0-half-p0 0000-01-00-0:1 !DeviceUnhealthy",
			"0000-01-00-0-half-p1 0000-01-00-0:1 !PartitionAbsent", "of 0000-01-00-0: 2",
		}},
		{"a profile that nobody knows", true, []accel.Accelerator{divide(edu(1), "odd", "x")}, []string{
			"0000-01-00-0 0000-01-00-0:2 !DevicePartitioned", "0000-01-00-0-half-p0 0000-01-00-0:1 !PartitionAbsent",
			"0000-01-00-0-half-p1 0000-01-00-0:1 !PartitionAbsent", "0000-01-00-0-odd-x", "of 0000-01-00-0: 2",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := view(accel.Units(tc.accs)...)
			v.Definition = halves(tc.counted)
			slices := Slices(v)
			if diff := cmp.Diff(tc.want, reported(slices)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, s := range slices {
				roundTrip[resourceapi.ResourceSlice](t, s)
				if len(s.Spec.Devices) > 0 && len(s.Spec.SharedCounters) > 0 {
					t.Errorf("%s has devices and counters, which the API refuses", s.Metadata.Name)
				}
			}
		})
	}
}

// TestPartitionAttributes: claims select by profile and parent, and request the partition's capacity.
func TestPartitionAttributes(t *testing.T) {
	v := view(accel.Units([]accel.Accelerator{divide(edu(1), "half", "p0")})...)
	v.Definition = halves(false)
	v.Devices = []accel.PCIDevice{{Address: "0000:01:00.0", Vendor: "1234", Device: "11e8"}}
	d := Slices(v)[0].Spec.Devices[1]
	for name, want := range map[string]string{
		"profile": "half", "parent": "0000-01-00-0", "vendorID": "1234", pciBusID: "0000:01:00.0",
		pcieRoot: "pci0000:01",
	} {
		if diff := cmp.Diff(text(want), d.Attributes[name]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if d.Capacity["memory"].Value != "2Ki" {
		t.Errorf("capacity %+v", d.Capacity)
	}
	if whole := Slices(v)[0].Spec.Devices[0]; whole.Attributes["profile"].String != nil ||
		whole.Capacity["memory"].Value != "4Ki" {
		t.Errorf("the device: %+v", whole)
	}
}

// TestManyCounters: a slice has eight counter sets, and a change of one device moves no other device's set.
func TestManyCounters(t *testing.T) {
	v := view(accel.Units(edus(20))...)
	v.Definition = halves(true)
	slices := Slices(v)
	sets := 0
	for _, s := range slices {
		sets += len(s.Spec.SharedCounters)
		if len(s.Spec.SharedCounters) > 8 || len(s.Spec.Devices) > 64 || s.Spec.Pool.Count != int64(len(slices)) {
			t.Errorf("%s: %d sets, %d devices, %d of %d slices", s.Metadata.Name, len(s.Spec.SharedCounters),
				len(s.Spec.Devices), s.Spec.Pool.Count, len(slices))
		}
	}
	if sets != 20 || len(slices) != 4 || !strings.HasSuffix(slices[1].Metadata.Name, "-800") {
		t.Errorf("%d sets in %d slices, %q", sets, len(slices), slices[1].Metadata.Name)
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("profile.", 10)
	a, b := DeviceName("0000:01:00.0-"+long+"-p0"), DeviceName("0000:01:00.0-"+long+"-p1")
	if len(a) > 63 || a == b || DeviceName("0000:01:00.0-1g.5gb_A-p0") != "0000-01-00-0-1g-5gb-a-p0" {
		t.Errorf("%q, %q", a, b)
	}
	if got := ClassName(halves(false), "1g.5gb_A"); got != "1g.5gb-a.qemu-edu.acceld.dev" {
		t.Error(got)
	}
}

// The expressions of the classes, which were compiled and tried with the scheduler's own
// k8s.io/dynamic-resource-allocation/cel, v0.37.1.
const (
	halfExpression  = `device.driver == "qemu-edu.acceld.dev" && has(device.attributes["qemu-edu.acceld.dev"].profile) && device.attributes["qemu-edu.acceld.dev"].profile == "half"`
	wholeExpression = `device.driver == "qemu-edu.acceld.dev" && !has(device.attributes["qemu-edu.acceld.dev"].profile)`
)

// TestPartitionClaims: the layout changes under a running plugin. A claim gets exactly its partition and keeps it,
// whatever else changes.
func TestPartitionClaims(t *testing.T) {
	b := newBed(t)
	b.def.Partitions, b.def.Nodes = halves(true).Partitions, nil // nothing here has device nodes
	p := b.plugin(accel.Units(edus(2))...)
	b.kubelet()
	b.run(p)
	b.offered(p, 2)
	p.Update(accel.Units([]accel.Accelerator{divide(edu(1), "half", "p0", "p1"), edu(2)}))
	b.offered(p, 3)
	b.until("the classes", func() bool {
		b.server.mu.Lock()
		defer b.server.mu.Unlock()
		return len(b.server.classes) == 2
	})
	half := b.server.classes["half.qemu-edu.acceld.dev"]
	if half.Spec.ExtendedResourceName != "qemu.org/edu-half" ||
		half.Spec.Selectors[0].CEL.Expression != halfExpression {
		t.Errorf("the class of halves: %+v", half)
	}
	if whole := b.server.classes["qemu-edu.acceld.dev"]; whole.Spec.ExtendedResourceName != "qemu.org/edu" ||
		whole.Spec.Selectors[0].CEL.Expression != wholeExpression {
		t.Errorf("the class of whole devices: %+v", whole)
	}

	b.server.allocate("c", "u-1", "half=0000-01-00-0-half-p1")
	if _, fault := prepare(t, p, "c", "u-1"); fault != "" {
		t.Fatal(fault)
	}
	spec, err := cdi.ParseSpec([]byte(b.file(fmt.Sprintf(specOf, "u-1"))))
	if err != nil {
		t.Fatal(err)
	}
	if e := spec.Devices[0].ContainerEdits; len(spec.Devices) != 1 || len(e.DeviceNodes) != 1 ||
		e.DeviceNodes[0].Path != "/dev/edu1p1" {
		t.Errorf("the spec is %+v", spec)
	}
	if held, _ := p.Held(); len(held) != 1 || held[0] != "0000:01:00.0-half-p1" {
		t.Errorf("held: %v", held)
	}
	for name, words := range map[string]string{
		"0000-01-00-0":         "DevicePartitioned",
		"0000-02-00-0-half-p0": "DeviceGone",
	} {
		b.server.allocate("d", "u-2", "r="+name)
		if _, fault := prepare(t, p, "d", "u-2"); !strings.Contains(fault, words) {
			t.Errorf("%s is given out, or why not is not said: %q", name, fault)
		}
	}
	bare := divide(edu(1), "half", "p0")
	bare.Partitions[0].Nodes = nil
	p.Update(accel.Units([]accel.Accelerator{bare, edu(2)}))
	b.server.allocate("d", "u-2", "r=0000-01-00-0-half-p0")
	if _, fault := prepare(t, p, "d", "u-2"); !strings.Contains(fault, "NodeMissing") {
		t.Errorf("a partition without a node: %q", fault)
	}
	if fault := unprepare(t, p, "u-1"); fault != "" || b.there(fmt.Sprintf(specOf, "u-1")) {
		t.Error(fault)
	}
	p.Update(accel.Units(edus(2)))
	b.offered(p, 2)
}
