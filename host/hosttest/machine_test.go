package hosttest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/host/hosttest"
)

func definition() *accel.Definition {
	return &accel.Definition{
		Kind: "qemu-edu", Match: []accel.Match{{Vendor: "1234", Device: "11e8"}}, Serial: "serial",
		Nodes:   []accel.NodeSource{{Glob: "accel/edu*"}},
		Health:  []accel.HealthSource{{File: "health", Healthy: "ok"}},
		Metrics: []accel.MetricSource{{Name: "celsius", File: "temperature", Scale: 0.001}},
	}
}

func edu(address string) accel.PCIDevice {
	return accel.PCIDevice{Address: address, Class: "00ff00", Vendor: "1234", Device: "11e8", NUMANode: -1}
}

func driver() hosttest.Driver {
	return hosttest.Driver{Module: "edu", IDs: []string{"1234:11e8"}, Version: "1.0", Node: "accel/edu%d"}
}

// The life of a device as detect sees it: plugged in, bound, unhealthy, unplugged.
func TestLife(t *testing.T) {
	m := hosttest.New(t)
	h, def := m.Host, definition()
	var pci []accel.PCIDevice
	list := func() []accel.Accelerator {
		var problems []string
		if pci, problems = detect.PCI(h); problems != nil {
			t.Fatal(problems)
		}
		return detect.Accelerators(h, def, pci)
	}
	m.AddPCI(edu("0000:00:05.0"), edu("0000:00:04.0"))
	want := []accel.Accelerator{{ID: "0000:00:04.0", NUMANode: -1}, {ID: "0000:00:05.0", NUMANode: -1}}
	if diff := cmp.Diff(want, list()); diff != "" {
		t.Errorf("without a driver: -want +got\n%s", diff)
	}

	m.Remove("/sys/bus/pci/devices/0000:00:05.0")
	a := accel.Accelerator{
		ID: "0000:00:04.0", NUMANode: -1, Bound: "edu", Serial: "S1", Health: accel.Health{State: accel.Healthy},
		Nodes: []accel.DeviceNode{{Path: "/dev/edu0", Major: 240}},
	}
	m.SetAttribute(a.ID, "serial", "S1")
	m.SetAttribute(a.ID, "health", "ok")
	m.SetAttribute(a.ID, "temperature", "35000")
	m.Modprobe(driver())
	m.File("/sys/module/edu/srcversion", "ABC\n")
	if diff := cmp.Diff([]accel.Accelerator{a}, list()); diff != "" {
		t.Errorf("with a driver: -want +got\n%s", diff)
	}
	modules, _ := detect.Modules(h)
	if diff := cmp.Diff([]accel.LoadedModule{{Name: "edu", Version: "1.0", SrcVersion: "ABC", State: "live"}}, modules); diff != "" {
		t.Errorf("modules: -want +got\n%s", diff)
	}
	if got, err := detect.Collect(h, def, a); err != nil || got["celsius"] != 35 {
		t.Errorf("metrics %v, %v; want 35", got, err)
	}

	m.SetAttribute(a.ID, "health", "overheated")
	m.SetAttribute(a.ID, "temperature", "hot\x01")
	if got := list()[0].Health; got != (accel.Health{
		State: accel.Unhealthy, Reason: accel.DeviceUnhealthy,
		Message: "overheated",
	}) {
		t.Errorf("ill: %+v", got)
	}
	if got, err := detect.Collect(h, def, a); accel.AsProblem(err).Reason != accel.CollectFailed || len(got) != 0 {
		t.Errorf("metrics %v, %v; want CollectFailed", got, err)
	}

	m.Unbind(a.ID)
	if got := list()[0]; got.Bound != "" || h.Exists("/dev/edu0") {
		t.Errorf("unbound: %+v, and its node exists: %t", got, h.Exists("/dev/edu0"))
	}
	m.Bind(a.ID, "edu")
	if got := list()[0]; got.Bound != "edu" || len(got.Nodes) != 1 {
		t.Errorf("bound again: %+v", got)
	}

	m.Remove("/sys/bus/pci/devices/" + a.ID)
	if got := detect.Accelerators(h, def, pci)[0].Health; got.State != accel.Gone || got.Reason != accel.DeviceGone {
		t.Errorf("unplugged: %+v", got)
	}
}
