package host_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// TestConfined: to a confined definition nothing belongs but the device, wherever the machine's links lead.
func TestConfined(t *testing.T) {
	m := deviceMachine(t)
	const disk, virtual = "0000:00:05.0", "0000:00:04.1"
	m.AddPCI(accel.PCIDevice{Address: disk, Class: "010802"}, accel.PCIDevice{Address: virtual, Class: "00ff00"})
	own := func(address, dir, subsystem, number string) {
		m.SetAttribute(address, dir+"/dev", "261:"+number)
		m.SetAttribute(address, dir+"/uevent", "DEVNAME="+dir)
		m.Link("/sys/bus/pci/devices/"+address+"/"+dir+"/subsystem", subsystem)
	}
	m.Link("/sys/bus/pci/devices/"+address+"/accel/foo7/subsystem", "/sys/class/accel")
	m.Link("/sys/class/accel/fooctl7/subsystem", "/sys/class/accel")
	own(address, "block/bar0", "/sys/class/block", "1")
	own(disk, "nvme/nvme0", "/sys/class/nvme", "2")
	own(virtual, "accel/foo8", "/sys/class/accel", "8")
	m.Link("/sys/bus/pci/devices/"+address+"/virtfn0", "../"+virtual)
	m.Link("/sys/bus/pci/devices/"+address+"/subsystem", "/sys/bus/pci")
	m.Link("/sys/class/accel/foo7", "/sys/bus/pci/devices/"+address+"/accel/foo7")
	m.File("/sys/class/misc/kvm7/dev", "10:232\n")
	m.File("/sys/class/misc/kvm7/uevent", "DEVNAME=kvm\n")
	m.Link("/sys/class/misc/kvm7/subsystem", "/sys/class/misc")
	m.SetAttribute(disk, "password", "secret")
	m.SetAttribute(address, "serial", "1")
	m.File("/sys/kernel/secret", "secret\n")
	devices := m.Host.Devices().Of(&accel.Definition{Confined: true})
	for _, c := range []struct {
		glob, sibling string
		want          []string
	}{
		{"accel/foo*", "", []string{"/dev/accel/foo7"}},
		{"accel/foo*", "/sys/class/accel/fooctl{{.Number}}", []string{"/dev/accel/foo7", "/dev/accel/fooctl7"}},
		{"accel/foo*", "/sys/class/misc/kvm{{.Number}}", []string{"/dev/accel/foo7"}},
		{"/sys/class/accel/foo[0-9]", "", []string{"/dev/accel/foo7"}},
		{"virtfn*/accel/foo*", "", []string{"/dev/accel/foo8"}},
		{"block/*", "", nil},
		{"subsystem/devices/*/nvme/*", "", nil},
		{"/sys/bus/pci/devices/*/nvme/*", "", nil},
		{"/sys/class/misc/*", "", nil},
	} {
		source := accel.NodeSource{Glob: c.glob}
		if c.sibling != "" {
			source.Siblings = []string{c.sibling}
		}
		nodes, missing := devices.Nodes(address, []accel.NodeSource{source})
		var got []string
		for _, n := range nodes {
			got = append(got, n.Path)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", c.glob, c.sibling, diff)
		}
		if whole := len(got) > 0 && (c.sibling == "" || len(got) > 1); whole == (len(missing) > 0) {
			t.Errorf("%s %s: missing %q", c.glob, c.sibling, missing)
		}
		if all, _ := m.Host.Devices().Nodes(address, []accel.NodeSource{source}); len(all) == 0 {
			t.Errorf("%s: there is no such node", c.glob)
		}
	}
	for file, want := range map[string]string{
		"serial": "1", "virtfn0/accel/foo8/dev": "261:8", "/sys/bus/pci/devices/{{.Address}}/serial": "1",
		"/proc/driver/gpu/{{.Address}}/information#Device Minor": "3",
		"subsystem/devices/" + disk + "/password":                "", "/sys/kernel/secret": "",
		"/proc/driver/gpu/" + disk + "/information": "",
	} {
		got, err := devices.Attribute(address, file)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", file, got, err, want)
		}
	}
	if devices.Has("/sys/bus/pci/devices/"+disk, address) || !devices.Has("/sys/bus/pci/devices/"+address, address) {
		t.Error("a device is another's")
	}
}
