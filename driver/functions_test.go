package driver

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/ko"
)

const virtual = "0000:01:00.1"

// virtualFunction gives the device a virtual function.
func (m *testMachine) virtualFunction() {
	m.Write("/sys/bus/pci/devices/"+virtual+"/vendor", "0xffff\n")
	m.link("/sys/bus/pci/devices/"+ko.Device+"/virtfn0", "../"+virtual)
	m.link("/sys/bus/pci/devices/"+virtual+"/physfn", "../"+ko.Device)
}

// TestFunctionUsers: who has a virtual function is found by what it is now: a device node, a disk, a network interface.
func TestFunctionUsers(t *testing.T) {
	dir := "/sys/bus/pci/devices/" + virtual
	node := func(m *testMachine) {
		m.Write(dir+"/vfio-dev/vfio0/dev", "511:0\n")
		m.Write(dir+"/vfio-dev/vfio0/uevent", "DEVNAME=vfio/devices/vfio0\n")
		m.link(dir+"/iommu_group", "../../../kernel/iommu_groups/9")
		m.Write("/sys/class/vfio/9/dev", "241:0\n")
		m.Write("/sys/class/vfio/9/uevent", "DEVNAME=vfio/9\n")
		m.Write("/proc/77/comm", "qemu\n")
	}
	card := func(m *testMachine, flags string) {
		m.bind(virtual, "igbvf")
		m.Write(dir+"/class", "0x020000\n")
		m.Write(dir+"/net/eth1/flags", flags+"\n")
		m.link("/sys/class/net/eth1", strings.Replace(dir, "/sys", "../..", 1)+"/net/eth1")
	}
	for name, c := range map[string]struct {
		change func(*testMachine)
		says   string // empty for nobody
	}{
		"nobody":                {func(*testMachine) {}, ""},
		"a node that is free":   {node, ""},
		"the node":              {func(m *testMachine) { node(m); m.link("/proc/77/fd/3", "/dev/vfio/devices/vfio0") }, "qemu"},
		"the node of its group": {func(m *testMachine) { node(m); m.link("/proc/77/fd/3", "/dev/vfio/9") }, "qemu"},
		"a card that is down":   {func(m *testMachine) { card(m, "0x1002") }, ""},
		"a card that is up":     {func(m *testMachine) { card(m, "0x1003") }, `"eth1" is up`},
		"a card of a container": {func(m *testMachine) {
			card(m, "0x1002")
			_ = os.RemoveAll(m.Path("/sys/class/net"))
		}, "not known"},
		"a card for programs": {func(m *testMachine) {
			m.bind(virtual, "vfio-pci")
			m.Write(dir+"/class", "0x020000\n")
		}, ""},
		"a card without a driver": {func(m *testMachine) { m.Write(dir+"/class", "0x020000\n") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.virtualFunction()
			c.change(m)
			f := NewFunctions(m.driver(Options{}))
			if diff := cmp.Diff([]string{virtual}, f.Of(ko.Device)); diff != "" {
				t.Error(diff)
			}
			got := f.Users(ko.Device)
			if len(got) > 0 != (c.says != "") || len(got) > 0 && (!strings.Contains(got[0], c.says) ||
				!strings.Contains(got[0], virtual)) {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestUnloadUnderFunctions: the driver of a device stays while somebody has a virtual function of it.
func TestUnloadUnderFunctions(t *testing.T) {
	m := newMachine(t)
	m.Install("updates/edu.ko", ko.Edu())
	def := ko.Definition()
	if _, problem := m.driver(Options{}).Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	m.virtualFunction()
	dir := "/sys/bus/pci/devices/" + virtual
	m.Write(dir+"/uio/uio0/dev", "240:9\n")
	m.Write(dir+"/uio/uio0/uevent", "DEVNAME=uio0\n")
	m.Write("/proc/77/comm", "dpdk\n")
	m.link("/proc/77/fd/3", "/dev/uio0")
	problem := m.driver(Options{}).Unload(t.Context(), def, m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.InUse || !strings.Contains(problem.Message, "dpdk") || !m.isLive("edu") {
		t.Error(problem)
	}
	_ = os.Remove(m.Path("/proc/77/fd/3"))
	if problem := m.driver(Options{}).Unload(t.Context(), def, m.Facts(), m.accs()); problem != nil || m.isLive("edu") {
		t.Error(problem)
	}
}
