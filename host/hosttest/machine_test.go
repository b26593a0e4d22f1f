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
	return accel.PCIDevice{
		Address: address, Class: "00ff00", Vendor: "1234", Device: "11e8", SubVendor: "1af4", SubDevice: "1100",
		Revision: "10", NUMANode: -1, IOMMUGroup: -1,
	}
}

func driver() hosttest.Driver {
	return hosttest.Driver{
		Module: "edu", IDs: []string{"1234:11e8"}, Version: "1.0", SrcVersion: "ABC", BuildID: "0102",
		Node:       "accel/edu%d",
		Attributes: map[string]string{"serial": "S1", "health": "ok", "temperature": "35000"},
	}
}

// The life of a device as detect sees it: plugged in, bound, unhealthy, unplugged.
func TestLife(t *testing.T) {
	m := hosttest.New(t)
	h, def := m.Host, definition()
	list := func() []accel.Accelerator {
		pci, problems := detect.PCI(h)
		if problems != nil {
			t.Fatal(problems)
		}
		return detect.Accelerators(h, def, pci)
	}
	m.AddPCI(edu("0000:00:05.0"), edu("0000:00:04.0"))
	want := []accel.Accelerator{{ID: "0000:00:04.0", NUMANode: -1}, {ID: "0000:00:05.0", NUMANode: -1}}
	if diff := cmp.Diff(want, list()); diff != "" {
		t.Errorf("without a driver: -want +got\n%s", diff)
	}
	if _, err := detect.Health(h, def, want[0]); accel.AsProblem(err).Reason != accel.CollectFailed {
		t.Errorf("health without its attribute: %v, want CollectFailed", err)
	}

	m.Rmmod("nothing")
	m.RemovePCI("0000:00:05.0")
	m.Modprobe(driver())
	a := accel.Accelerator{
		ID: "0000:00:04.0", NUMANode: -1, Bound: "edu", Serial: "S1", Health: accel.Health{State: accel.Healthy},
		Nodes: []accel.DeviceNode{{Path: "/dev/edu0", Major: 240}},
	}
	if diff := cmp.Diff([]accel.Accelerator{a}, list()); diff != "" {
		t.Errorf("with a driver: -want +got\n%s", diff)
	}
	modules, _ := detect.Modules(h)
	if diff := cmp.Diff([]accel.LoadedModule{{
		Name: "edu", Version: "1.0", SrcVersion: "ABC", BuildID: "0102",
		State: "live",
	}}, modules); diff != "" {
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

	m.RemovePCI(a.ID)
	if got, err := detect.Health(h, def, a); err != nil || got.State != accel.Gone || got.Reason != accel.DeviceGone {
		t.Errorf("unplugged: %+v, %v", got, err)
	}
	if h.Exists("/dev/edu0") {
		t.Error("the node of an unplugged device is still there")
	}

	var told []string
	for len(m.Events) > 0 {
		e := <-m.Events
		told = append(told, e.Action+" "+e.DevPath)
	}
	pci := "/devices/pci0000:00/"
	if diff := cmp.Diff([]string{
		"add " + pci + "0000:00:05.0", "add " + pci + "0000:00:04.0", "remove /module/nothing", "remove " + pci +
			"0000:00:05.0",
		"add /module/edu", "add " + pci + "0000:00:04.0/accel/edu0", "bind " + pci + "0000:00:04.0",
		"remove " + pci + "0000:00:04.0/accel/edu0", "unbind " + pci + "0000:00:04.0", "remove " + pci + "0000:00:04.0",
	}, told); diff != "" {
		t.Errorf("uevents: -want +got\n%s", diff)
	}
}

func TestOverrideAndRmmod(t *testing.T) {
	m := hosttest.New(t)
	d := edu("0000:00:04.0")
	d.Override = "vfio-pci"
	m.AddPCI(d)
	m.Modprobe(driver())
	if pci, _ := detect.PCI(m.Host); pci[0].Driver != "" {
		t.Errorf("an overridden function was bound to %q", pci[0].Driver)
	}
	m.Bind(d.Address, "edu")
	if pci, _ := detect.PCI(m.Host); pci[0].Driver != "edu" {
		t.Errorf("bound to %q, want edu", pci[0].Driver)
	}
	m.Rmmod("edu")
	if pci, _ := detect.PCI(m.Host); pci[0].Driver != "" || pci[0].Override != "vfio-pci" {
		t.Errorf("after rmmod: %+v", pci[0])
	}
}
