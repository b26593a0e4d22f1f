package runtime

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/runtime/gate"
)

// TestPartitionsAreDevices: the spec and the gate have each partition as a device, with its own nodes, environment
// and health.
func TestPartitionsAreDevices(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.def.Partitions = &accel.Partitions{Nodes: []accel.NodeSource{{Glob: ".", Permissions: "r"}}}
	part := func(name string, h accel.Health) accel.Accelerator {
		return accel.Accelerator{
			ID: accel.PartitionID("0000:01:00.0", "half", name), Parent: "0000:01:00.0", Profile: "half", Health: h,
			Nodes: []accel.DeviceNode{{Path: "/dev/edu0" + name, Major: 241, Minor: uint32(name[1] - '0')}},
			Env:   []string{"PART=" + name},
		}
	}
	b.accs = b.accs[:2] // the second one is sick
	b.accs[0].Partitions = []accel.Accelerator{
		part("p0", accel.Health{State: accel.Healthy}),
		part("p1", accel.Health{State: accel.Gone}),
	}
	b.accs[1].Partitions = []accel.Accelerator{part("p2", accel.Health{})}
	b.accs[1].Partitions[0].ID, b.accs[1].Partitions[0].Parent = "0000:02:00.0-half-p2", "0000:02:00.0"
	have := b.apply()
	want := []string{
		"qemu.org/edu=0000:01:00.0", "qemu.org/edu=0000:01:00.0-half-p0", "qemu.org/edu=0000:02:00.0",
		"qemu.org/edu=0000:02:00.0-half-p2",
	}
	if diff := cmp.Diff(want, have.Devices); diff != "" || !have.Applied {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	var spec specs.Spec
	if err := json.Unmarshal(read(t, b.path(specFile)), &spec); err != nil {
		t.Fatal(err)
	}
	e := spec.Devices[1].ContainerEdits
	if len(e.DeviceNodes) != 1 || e.DeviceNodes[0].Path != "/dev/edu0p0" || e.DeviceNodes[0].Permissions != "r" ||
		!cmp.Equal(e.Env, []string{"PART=p0"}) {
		t.Errorf("the partition: %+v", e)
	}
	if args := strings.Join(e.Hooks[0].Args, " "); !strings.Contains(args, "0000:01:00.0-half-p0") {
		t.Errorf("the gate of the partition: %q", args)
	}
	if own := spec.Devices[0].ContainerEdits.DeviceNodes; len(own) != 1 || own[0].Permissions != "rwm" &&
		own[0].Permissions != "rw" {
		t.Errorf("the device: %+v", own)
	}

	if p := b.r.PublishReadiness(nil, map[string][]accel.Accelerator{"qemu-edu": b.accs}); p != nil {
		t.Fatal(p)
	}
	f, err := gate.Decode(read(t, b.path(gate.Path)))
	if err != nil {
		t.Fatal(err)
	}
	for id, open := range map[string]bool{
		"0000:01:00.0-half-p0": true, "0000:01:00.0-half-p1": false,
		"0000:02:00.0-half-p2": false, "0000:01:00.0": true,
	} {
		if err := f.Named([]string{id}); (err == nil) != open {
			t.Errorf("%s: %v", id, err)
		}
	}
}
