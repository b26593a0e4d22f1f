package driver

import (
	"os"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/hosttest"
	"github.com/acceld/acceld/test/ko"
)

// TestNodesThatNobodyMakes creates the nodes for a driver that leaves that to user space: shared and per-device
// nodes.
func TestNodesThatNobodyMakes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("device nodes are made by root alone")
	}
	m := hosttest.New(t)
	m.File("/proc/devices", "Character devices:\n195 gpu\n508 gpu-mem\n")
	m.File("/proc/driver/gpu/0000:00:04.0/information", "Device Minor: \t 3\n")
	m.AddPCI(accel.PCIDevice{Address: "0000:00:04.0", Vendor: "1234", Device: "11e8", Class: "030200"})
	m.Modprobe(hosttest.Driver{Module: "edu", IDs: []string{"1234:11e8"}})
	def := ko.Definition()
	def.Nodes = []accel.NodeSource{{Make: &accel.MadeNode{
		Path: "/dev/gpu{{.Number}}", Majors: []string{"gpu"},
		MinorFrom: "/proc/driver/gpu/{{.Address}}/information#Device Minor",
	}}}
	def.Driver.MakeNodes = []accel.MadeNode{
		{Path: "/dev/gpu-mem", Majors: []string{"gpu-mem"}},
		{Path: "/dev/gpu-more", Majors: []string{"gpu"}, Minor: 254, Module: "gpu_more"},
	}
	def.Container.Nodes = []string{"/dev/gpu-mem"}
	accs := []accel.Accelerator{{ID: "0000:00:04.0", Health: accel.Health{State: accel.Healthy}}}
	d := New(m.Host, Options{StateDir: "/var/lib/acceld"})
	if _, problem := d.Probe(def, accel.Facts{}, accs); problem == nil || problem.Reason != accel.NodeMissing ||
		!strings.Contains(problem.Message, "/dev/gpu3") {
		t.Fatalf("before: %v", problem)
	}
	have, problem := d.Ensure(t.Context(), def, accel.Facts{}, accs)
	if problem != nil || !have.Serves {
		t.Fatalf("ensure: %+v, %v", have, problem)
	}
	for name, want := range map[string]accel.DeviceNode{
		"/dev/gpu3": {Path: "/dev/gpu3", Major: 195, Minor: 3}, "/dev/gpu-mem": {Path: "/dev/gpu-mem", Major: 508},
	} {
		if got := d.devices.NodeAt(name); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if st, err := m.Host.Stat(name); err != nil || st.Mode().Perm() != 0o666 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	if m.Host.Exists("/dev/gpu-more") {
		t.Error("a node was made for a module that is not loaded")
	}
}
