package detect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/hosttest"
)

const (
	usbPort   = "/sys/devices/pci0000:00/0000:00:14.0"
	cryptoDir = "/sys/devices/pci0000:00/0000:00:05.0/virtio3"
)

// mixed is a machine with a device in each of several subsystems.
func mixed(t *testing.T) *hosttest.Machine {
	m := hosttest.New(t)
	m.AddPCI(
		accel.PCIDevice{Address: "0000:00:05.0", Vendor: "1af4", Device: "1054", Class: "ff0000", NUMANode: 1},
		accel.PCIDevice{Address: "0000:00:14.0", Vendor: "1b36", Device: "000d", Class: "0c0330", NUMANode: -1},
	)
	m.File(usbPort+"/usb1/version", " 2.00\n")
	m.AddDevice("usb", usbPort+"/usb1/1-2", "DEVNAME=bus/usb/001/002\nDRIVER=usb\nPRODUCT=403/6001/400\nTYPE=0/0/0\n",
		map[string]string{"dev": "189:1", "serial": "whale"})
	m.AddDevice("usb", usbPort+"/usb1/1-2/1-2:1.0", "DRIVER=ftdi_sio\n", nil) // an interface
	m.AddDevice("virtio", cryptoDir, "DRIVER=virtio_crypto\nMODALIAS=virtio:d00000014v00001AF4\n",
		map[string]string{"status": "0x0f"})
	m.AddDevice("platform", "/sys/devices/platform/QEMU0002:00", "DRIVER=fw_cfg\nMODALIAS=acpi:QEMU0002:\n",
		map[string]string{"numa_node": "2"})
	m.AddDevice("infiniband", "/sys/devices/virtual/infiniband/rxe0", "NAME=rxe0\n", nil)
	m.Remove("/sys/devices/virtual/infiniband/rxe0/device") // it is on nothing
	m.AddDevice("drm", cryptoDir+"/drm/card0", "DEVNAME=dri/card0\n", map[string]string{"dev": "226:0"})
	m.AddDevice("drm", cryptoDir+"/drm/renderD128", "DEVNAME=dri/renderD128\n", nil)
	return m
}

// TestOtherDevices: devices of other subsystems are found with their place, whatever the kernel calls them.
func TestOtherDevices(t *testing.T) {
	m := mixed(t)
	f := Detect(m.Host, Options{Subsystems: accel.SubsystemNames()})
	type where struct {
		Function string
		NUMA     int
		Driver   string
	}
	got := map[string]where{}
	for _, d := range f.Devices {
		got[d.Address] = where{d.ParentPort, d.NUMANode, d.Driver}
	}
	want := map[string]where{
		"usb:0000:00:14.0-v2-2": {"0000:00:14.0", -1, "usb"},
		"virtio:0000:00:05.0":   {"0000:00:05.0", 1, "virtio_crypto"},
		"drm:0000:00:05.0":      {"0000:00:05.0", 1, "virtio_crypto"},
		"platform:QEMU0002:00":  {"", 2, "fw_cfg"},
		"infiniband:rxe0":       {"", -1, ""},
	}
	if diff := cmp.Diff(want, got); diff != "" || len(f.Problems) > 0 {
		t.Error(diff, f.Problems)
	}
	if f := Detect(m.Host, Options{Subsystems: []string{"usb", "usb", "nonsense"}}); len(f.Devices) != 1 {
		t.Errorf("%+v", f.Devices)
	}
	if f := Detect(m.Host, Options{}); len(f.Devices) != 0 {
		t.Errorf("nobody asked for %+v", f.Devices)
	}
}

// TestSameAddress: of two devices with one address the later one is left out, and named.
func TestSameAddress(t *testing.T) {
	m := mixed(t)
	m.AddDevice("drm", cryptoDir+"/drm/card1", "", nil)
	f := Detect(m.Host, Options{Subsystems: []string{"drm"}})
	if len(f.Devices) != 1 || f.Devices[0].Name != "card0" || !strings.Contains(fmt.Sprint(f.Problems), `drm "card1" is left out`) {
		t.Errorf("%+v, %q", f.Devices, f.Problems)
	}
}

// TestUnreadDevice: a device that is there and cannot be read is as it was, and one that has left is not.
func TestUnreadDevice(t *testing.T) {
	m := mixed(t)
	r := NewTimeoutReader(m.Host, nil)
	r.Want(map[string]*accel.Definition{"x": {Match: []accel.Match{{Subsystem: "virtio", Device: "0014"}}}})
	before := r.Detect().Devices
	m.Remove(cryptoDir + "/uevent")
	m.Dir(cryptoDir + "/uevent") // a directory cannot be read
	if f := r.Detect(); len(before) != 1 || len(f.Devices) != 1 || f.Devices[0] != before[0] || len(f.Problems) == 0 {
		t.Errorf("%+v, %q", f.Devices, f.Problems)
	}
	m.Remove("/sys/bus/virtio/devices/virtio3")
	if f := r.Detect(); len(f.Devices) != 0 {
		t.Errorf("%+v", f.Devices)
	}
}

// TestAcceleratorElsewhere: a device of another subsystem has nodes, attributes and health like any other, under its
// address, also when the kernel numbers it otherwise.
func TestAcceleratorElsewhere(t *testing.T) {
	m := mixed(t)
	def := &accel.Definition{
		Kind: "zoo-serial", Match: []accel.Match{{Subsystem: "usb", Vendor: "0403", Device: "6001"}},
		Driver: accel.DriverDefinition{Binds: "usb"}, Nodes: []accel.NodeSource{{Glob: "."}}, Serial: "serial",
	}
	r := NewTimeoutReader(m.Host, nil)
	r.Want(map[string]*accel.Definition{def.Kind: def})
	look := func() accel.Accelerator {
		t.Helper()
		r.Detect()
		r.Read(def, nil)
		all := r.Accelerators(def, nil)
		if len(all) != 1 {
			t.Fatalf("%+v", all)
		}
		return all[0]
	}
	want := accel.Accelerator{
		ID: "usb:0000:00:14.0-v2-2", NUMANode: -1, Bound: "usb", Serial: "whale", Ports: []string{"0000:00:14.0"},
		Nodes:  []accel.DeviceNode{{Path: "/dev/bus/usb/001/002", Major: 189, Minor: 1}},
		Health: accel.Health{State: accel.Healthy},
	}
	if diff := cmp.Diff(want, look()); diff != "" {
		t.Error(diff)
	}
	m.Remove("/sys/bus/usb/devices/1-2")
	m.File(usbPort+"/usb4/version", " 2.00\n")
	m.AddDevice("usb", usbPort+"/usb4/4-2", "DEVNAME=bus/usb/004/009\nDRIVER=usb\nPRODUCT=403/6001/400\n",
		map[string]string{"dev": "189:9", "serial": "whale"})
	want.Nodes[0] = accel.DeviceNode{Path: "/dev/bus/usb/004/009", Major: 189, Minor: 9}
	if diff := cmp.Diff(want, look()); diff != "" {
		t.Error(diff)
	}
	m.Remove("/sys/bus/usb/devices/4-2")
	got := Accelerators(m.Host, def, []accel.Device{{
		Subsystem: "usb", Address: want.ID, Vendor: "0403", Device: "6001", Driver: "usb",
	}})
	if len(got) != 1 || got[0].Health.State != accel.Gone || got[0].Health.Message != want.ID+" is not on the usb bus" {
		t.Errorf("%+v", got)
	}
}
