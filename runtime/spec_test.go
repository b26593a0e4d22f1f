package runtime

import (
	"os"
	"slices"
	"strings"
	"testing"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/runtime/gate"
)

// TestAppliedTo: a device that comes or goes, or that somebody edited, does not affect the others.
func TestAppliedTo(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.apply()
	all := b.accs
	applied := func(what string, accs []accel.Accelerator, want ...string) {
		t.Helper()
		have, p := b.r.Check(b.def, accs, b.want)
		if p != nil || have.Applied || !slices.Equal(have.AppliedTo, want) {
			t.Errorf("%s: %+v %v, want %v", what, have, p, want)
		}
	}
	more := all[0]
	more.ID, more.Nodes = "0000:09:00.0", []accel.DeviceNode{{Path: "/dev/edu9", Major: 240, Minor: 9}}
	applied("one more", append(slices.Clone(all), more), all[0].ID, all[1].ID)
	applied("one less", all[1:], all[1].ID)
	def := *b.def
	b.def = &def
	before := def.Container
	def.Container.Env = append(slices.Clone(before.Env), "A=b")
	applied("another environment", all, all[0].ID, all[1].ID) // until the file is written, containers get the old one
	def.Container = before
	text, err := os.ReadFile(b.path(specFile))
	if err != nil {
		t.Fatal(err)
	}
	b.write(specFile, strings.Replace(string(text), `"/dev/edu0"`, `"/dev/null"`, 1))
	applied("edited for one", all, all[1].ID)
	b.write(specFile, "{")
	applied("not to be read", all)
	if err := os.Remove(b.path(specFile)); err != nil {
		t.Fatal(err)
	}
	applied("deleted", all)
}

// TestKindWithoutNodes: devices without nodes are in the spec as soon as a container gets anything with them, and what
// the spec has is what runtimes accept. A device with which a container gets nothing is in no spec.
func TestKindWithoutNodes(t *testing.T) {
	env := accel.Edits{Env: []string{"NPU=1"}}
	mount := accel.Edits{Mounts: []accel.Mount{{HostPath: "/usr/lib/npu", ContainerPath: "/npu"}}}
	absent := accel.Edits{Mounts: []accel.Mount{{HostPath: "/not/there", ContainerPath: "/npu", Optional: true}}}
	for name, c := range map[string]struct {
		container accel.Edits
		hook      bool
		own       int // edits of the device itself
	}{
		"an environment":          {env, false, 1},
		"an environment, gated":   {env, true, 1},
		"a mount":                 {mount, false, 1},
		"a mount that is absent":  {absent, false, 0},
		"only the gate":           {accel.Edits{}, true, 1},
		"nothing":                 {accel.Edits{}, false, 0},
		"an empty list, no mount": {accel.Edits{Env: []string{}}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, t.TempDir())
			b.def.Nodes, b.def.Container, b.want.Hook = nil, c.container, c.hook
			b.accs = []accel.Accelerator{{ID: "0000:04:00.0", Health: accel.Health{State: accel.Healthy}}}
			have := b.apply()
			if c.own == 0 {
				if len(have.Devices) > 0 || have.Spec != "" || have.Names("0000:04:00.0") {
					t.Errorf("%+v", have)
				}
				return
			}
			if !slices.Equal(have.Devices, []string{"qemu.org/edu=0000:04:00.0"}) || !have.Names("0000:04:00.0") {
				t.Fatalf("%+v", have)
			}
			spec, err := cdi.ReadSpec(b.path(specFile), 0) // with the rules of runtimes
			if err != nil {
				t.Fatal(err)
			}
			oci := &rspec.Spec{}
			if err := spec.GetDevice("0000:04:00.0").ApplyEdits(oci); err != nil {
				t.Fatal(err)
			}
			if err := spec.ApplyEdits(oci); err != nil {
				t.Fatal(err)
			}
			if len(c.container.Env) > 0 && (oci.Process == nil || !slices.Equal(oci.Process.Env, c.container.Env)) ||
				len(oci.Mounts) != len(c.container.Mounts) {
				t.Errorf("a container gets %+v", oci)
			}
			shared, own, p := b.r.Edits(b.def, b.accs[0], b.want)
			if p != nil || empty(own) || len(shared.Env) != len(c.container.Env) {
				t.Errorf("a claim gets %+v, %+v, %v", shared, own, p)
			}
		})
	}
}

// TestStaleSpec: the spec of a kind whose last device is gone is said to be there, until it is removed.
func TestStaleSpec(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.apply()
	have, p := b.r.Check(b.def, nil, b.want)
	if p != nil || have.Spec != specFile || len(have.Devices) > 0 || have.Applied {
		t.Errorf("%+v %v", have, p)
	}
	if p := b.r.Remove(b.def); p != nil {
		t.Fatal(p)
	}
	if have, p := b.r.Check(b.def, nil, b.want); p != nil || have.Spec != "" {
		t.Errorf("%+v %v", have, p)
	}
}

// TestGateOfKindWithoutNodes: the gate opens for a device that has no nodes because its kind has none.
func TestGateOfKindWithoutNodes(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.def.Nodes = nil
	b.accs = []accel.Accelerator{
		{ID: "0000:04:00.0", Health: accel.Health{State: accel.Healthy}},
		{ID: "0000:05:00.0", Health: accel.Health{State: accel.Unhealthy}},
	}
	defs := map[string]*accel.Definition{"qemu-edu": b.def}
	if p := b.r.PublishReadiness(defs, map[string][]accel.Accelerator{"qemu-edu": b.accs}); p != nil {
		t.Fatal(p)
	}
	f, err := gate.Decode(read(t, b.path(gate.Path)))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Named([]string{"0000:04:00.0"}); err != nil {
		t.Error(err)
	}
	if f.Named([]string{"0000:05:00.0"}) == nil {
		t.Error("a sick device may be used")
	}
}

// TestSpecOfVFIO: a device that is given out with VFIO is not in the spec of its kind. Its claim's containers get the
// nodes of VFIO and its address, and nothing that belongs to the kind's driver.
func TestSpecOfVFIO(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.accs = slices.Clone(b.accs)
	x := &b.accs[0]
	x.Switched = &accel.Switched{Use: accel.UseVFIO, Kind: b.def.Kind, Driver: "vfio-pci", Claim: "u"}
	x.Bound, x.Nodes = "vfio-pci", []accel.DeviceNode{{Path: "/dev/vfio/7"}}
	x.WithholdSwitched()
	b.apply()
	text, err := os.ReadFile(b.path(specFile))
	if err != nil || strings.Contains(string(text), x.ID) || !strings.Contains(string(text), b.accs[1].ID) {
		t.Errorf("%s %v", text, err)
	}
	def := *b.def
	def.Container.Env, def.Handover = []string{"EDU=1"}, &accel.Handover{}
	shared, own, problem := b.r.Edits(&def, *x, b.want)
	if problem != nil || len(shared.Env)+len(shared.Mounts)+len(shared.DeviceNodes) > 0 {
		t.Errorf("%+v %v", shared, problem)
	}
	var nodes []string
	for _, n := range own.DeviceNodes {
		nodes = append(nodes, n.Path+" "+n.Permissions)
	}
	if !slices.Equal(nodes, []string{"/dev/vfio/vfio rw", "/dev/vfio/7 rw"}) || len(own.Env) != 1 ||
		!strings.HasPrefix(own.Env[0], "ACCELD_VFIO_0000_") || !strings.HasSuffix(own.Env[0], "="+x.ID) {
		t.Errorf("%q %q", nodes, own.Env)
	}
}
