package detect

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/hosttest"
)

const (
	card  = "0000:01:00.0"
	other = "0000:02:00.0"
)

// divided returns a machine with two devices and a driver that has created a node for each.
func divided(t *testing.T) (*hosttest.Machine, []accel.PCIDevice) {
	m := hosttest.New(t)
	pci := []accel.PCIDevice{
		{Address: card, Vendor: "1234", Device: "11e8", Class: "00ff00", NUMANode: 1, Driver: "edu"},
		{Address: other, Vendor: "1234", Device: "11e8", Class: "00ff00", NUMANode: -1, Driver: "edu"},
	}
	m.Modprobe(hosttest.Driver{Module: "edu", IDs: []string{"1234:11e8"}, Node: "accelerator_edu/edu%d"})
	m.AddPCI(pci...)
	return m, pci
}

// numbered gives the devices the numbers that their driver uses.
func numbered(m *hosttest.Machine) {
	m.File("/proc/driver/x/gpus/"+card+"/information", "Model: X\nDevice Minor:\t0\n")
	m.File("/proc/driver/x/gpus/"+other+"/information", "Model: X\nDevice Minor:\t1\n")
}

// node creates a device node that sysfs describes.
func node(m *hosttest.Machine, dir, name, numbers string) {
	m.File(dir+"/dev", numbers+"\n")
	m.File(dir+"/uevent", "DEVNAME="+name+"\n")
	m.File("/dev/"+name, "")
}

func TestPartitions(t *testing.T) {
	devices := "/sys/bus/pci/devices/" + card
	for _, tc := range []struct {
		name string
		make func(*hosttest.Machine)
		def  accel.Partitions
		want []accel.Accelerator
	}{
		{
			"below the device, profile in a file", func(m *hosttest.Machine) {
				for _, p := range []string{"edu7p0", "edu7p1"} {
					node(m, devices+"/accelerator_edu_partition/"+p, p, "241:1")
					m.File(devices+"/accelerator_edu_partition/"+p+"/profile", "half\n")
					m.File(devices+"/accelerator_edu_partition/"+p+"/memory", "2048\n")
				}
				m.File(devices+"/accelerator_edu_partition/edu7p2/uevent", "") // is being created
			},
			accel.Partitions{
				Find: "accelerator_edu_partition/edu*p*", Form: "/edu[0-9]+(?P<name>p[0-9]+)$", Profile: "profile",
				Nodes: []accel.NodeSource{{Glob: "."}}, Env: []string{"PART={{.Profile}}/{{.Name}}@{{.Address}}"},
				Profiles: []accel.Profile{{Name: "half", Capacity: []accel.Capacity{{Name: "memory", File: "memory"}}}},
			},
			[]accel.Accelerator{
				{
					ID: card + "-half-p0", Parent: card, Profile: "half", NUMANode: 1, Bound: "edu",
					Nodes: []accel.DeviceNode{{Path: "/dev/edu7p0", Major: 241, Minor: 1}},
					Env:   []string{"PART=half/p0@" + card}, Capacity: map[string]int64{"memory": 2048},
				},
				{
					ID: card + "-half-p1", Parent: card, Profile: "half", NUMANode: 1, Bound: "edu",
					Nodes: []accel.DeviceNode{{Path: "/dev/edu7p1", Major: 241, Minor: 1}},
					Env:   []string{"PART=half/p1@" + card}, Capacity: map[string]int64{"memory": 2048},
				},
			},
		},
		{
			"virtual functions", func(m *hosttest.Machine) {
				for i, vf := range []string{"0000:01:00.1", "0000:01:00.2"} {
					m.Link(devices+"/virtfn"+string(rune('0'+i)), "../"+vf)
					node(m, "/sys/devices/pci0000:00/"+vf+"/vfio-dev/vfio"+string(rune('4'+i)),
						"vfio/devices/vfio"+string(rune('4'+i)), "511:4")
				}
				m.Remove("/dev/vfio/devices/vfio5") // udev has not created it
			},
			accel.Partitions{
				Find: "virtfn*", Form: "/(?P<name>(?P<profile>virtfn)[0-9]+)$",
				Nodes: []accel.NodeSource{{Glob: "vfio-dev/vfio*"}},
			},
			[]accel.Accelerator{
				{
					ID: card + "-virtfn-virtfn0", Parent: card, Profile: "virtfn", NUMANode: 1, Bound: "edu",
					Nodes: []accel.DeviceNode{{Path: "/dev/vfio/devices/vfio4", Major: 511, Minor: 4}},
				},
				{
					ID: card + "-virtfn-virtfn1", Parent: card, Profile: "virtfn", NUMANode: 1, Bound: "edu",
					Nodes: []accel.DeviceNode{{Path: "/dev/vfio/devices/vfio5", Major: 511, Minor: 4}},
					Health: accel.Health{
						State: accel.Unhealthy, Reason: accel.NodeMissing,
						Message: "there is no device node for /dev/vfio/devices/vfio5",
					},
				},
			},
		},
		{
			"instances below /proc, with capabilities and the device", func(m *hosttest.Machine) {
				numbered(m)
				m.File("/proc/devices", "Character devices:\n234 x-caps\n")
				for _, f := range []string{
					"gpu0/mig/gi1/access 3", "gpu0/mig/gi1/ci0/access 4",
					"gpu0/mig/gi2/access 12", "gpu0/mig/gi2/ci0/access 13", "gpu1/mig/gi1/ci0/access 30",
				} {
					name, minor, _ := strings.Cut(f, " ")
					m.File("/proc/driver/x/capabilities/"+name, "DeviceFileMinor: "+minor+"\nDeviceFileMode: 292\n")
					m.File("/dev/x-caps/x-cap"+minor, "")
				}
			},
			accel.Partitions{
				Find:       "/proc/driver/x/capabilities/gpu{{.Number}}/mig/gi*/ci*",
				NumberFrom: "/proc/driver/x/gpus/{{.Address}}/information#Device Minor",
				Form:       "(?P<profile>gi)", WithDevice: true,
				Nodes: []accel.NodeSource{
					{Make: &accel.MadeNode{
						Path: "/dev/x-caps/x-cap{{.Number}}", Majors: []string{"x-caps"},
						MinorFrom: "../access#DeviceFileMinor",
					}},
					{Make: &accel.MadeNode{
						Path: "/dev/x-caps/x-cap{{.Number}}", Majors: []string{"x-caps"},
						MinorFrom: "access#DeviceFileMinor",
					}},
				},
			},
			[]accel.Accelerator{
				{
					ID: card + "-gi-gi1-ci0", Parent: card, Profile: "gi", NUMANode: 1, Bound: "edu",
					Nodes: []accel.DeviceNode{
						{Path: "/dev/x-caps/x-cap3", Major: 234, Minor: 3},
						{Path: "/dev/x-caps/x-cap4", Major: 234, Minor: 4},
						{Path: "/dev/edu0", Major: 240},
					},
				},
				{
					ID: card + "-gi-gi2-ci0", Parent: card, Profile: "gi", NUMANode: 1, Bound: "edu",
					Nodes: []accel.DeviceNode{
						{Path: "/dev/x-caps/x-cap12", Major: 234, Minor: 12},
						{Path: "/dev/x-caps/x-cap13", Major: 234, Minor: 13},
						{Path: "/dev/edu0", Major: 240},
					},
				},
			},
		},
		{
			"of one list for all devices, by a number", func(m *hosttest.Machine) {
				m.File("/proc/devices", "Character devices:\n226 drm\n")
				m.SetAttribute(card, "unique_id", "00000000000000ff")
				m.SetAttribute(card, "current_compute_partition", "CPX")
				for i, id := range []string{"0", "255", "255", "7"} {
					m.File("/sys/class/kfd/kfd/topology/nodes/"+string(rune('0'+i))+"/properties",
						fmt.Sprintf("unique_id %s\ndrm_render_minor %d\n", id, 128+i))
				}
				for _, n := range []string{"129", "130"} {
					m.File("/dev/dri/renderD"+n, "")
				}
			},
			accel.Partitions{
				Find: "/sys/class/kfd/kfd/topology/nodes/*", Of: &accel.Belonging{
					File:   "properties#unique_id",
					Device: "unique_id", Hex: true,
				},
				Profile: "/sys/bus/pci/devices/{{.Address}}/current_compute_partition", Whole: "SPX",
				Nodes: []accel.NodeSource{{Make: &accel.MadeNode{
					Path:   "/dev/dri/renderD{{.Number}}",
					Majors: []string{"drm"}, MinorFrom: "properties#drm_render_minor",
				}}},
			},
			[]accel.Accelerator{
				{
					ID: card + "-CPX-0", Parent: card, Profile: "CPX", NUMANode: 1, Bound: "edu",
					Nodes: []accel.DeviceNode{{Path: "/dev/dri/renderD129", Major: 226, Minor: 129}},
				},
				{
					ID: card + "-CPX-1", Parent: card, Profile: "CPX", NUMANode: 1, Bound: "edu",
					Nodes: []accel.DeviceNode{{Path: "/dev/dri/renderD130", Major: 226, Minor: 130}},
				},
			},
		},
		{
			"of one list for all devices, by the place on the bus", func(m *hosttest.Machine) {
				m.File("/proc/devices", "Character devices:\n226 drm\n")
				m.SetAttribute(card, "current_compute_partition", "CPX")
				const bus = 1 << 8
				for i, n := range []struct{ location, domain int }{
					{0, 0},
					{2 << 8, 0},
					{bus, 1},
					{bus, 0},
					{bus | 1, 0},
					{bus | 2<<28, 0},
					{bus | 1<<3, 0},
					{},
					{},
					{},
					{bus | 3<<28, 0}, // node 10 comes after node 5
				} {
					m.File(fmt.Sprintf("/sys/class/kfd/kfd/topology/nodes/%d/properties", i),
						fmt.Sprintf("location_id %d\ndomain %d\ndrm_render_minor %d\n", n.location, n.domain, 128+i))
					m.File(fmt.Sprintf("/dev/dri/renderD%d", 128+i), "")
				}
			},
			accel.Partitions{
				Find: "/sys/class/kfd/kfd/topology/nodes/*", Of: &accel.Belonging{
					File:  "properties#location_id",
					Place: true, Domain: "properties#domain",
				},
				Profile: "/sys/bus/pci/devices/{{.Address}}/current_compute_partition", Whole: "SPX",
				Nodes: []accel.NodeSource{{Make: &accel.MadeNode{
					Path:   "/dev/dri/renderD{{.Number}}",
					Majors: []string{"drm"}, MinorFrom: "properties#drm_render_minor",
				}}},
			},
			[]accel.Accelerator{
				{
					ID: card + "-CPX-0", Parent: card, Profile: "CPX", NUMANode: 1, Bound: "edu",
					Nodes: []accel.DeviceNode{{Path: "/dev/dri/renderD131", Major: 226, Minor: 131}},
				},
				{
					ID: card + "-CPX-1", Parent: card, Profile: "CPX", NUMANode: 1, Bound: "edu",
					Nodes: []accel.DeviceNode{{Path: "/dev/dri/renderD132", Major: 226, Minor: 132}},
				},
				{
					ID: card + "-CPX-2", Parent: card, Profile: "CPX", NUMANode: 1, Bound: "edu",
					Nodes: []accel.DeviceNode{{Path: "/dev/dri/renderD133", Major: 226, Minor: 133}},
				},
				{
					ID: card + "-CPX-3", Parent: card, Profile: "CPX", NUMANode: 1, Bound: "edu",
					Nodes: []accel.DeviceNode{{Path: "/dev/dri/renderD138", Major: 226, Minor: 138}},
				},
			},
		},
		{
			"a device whose own profile cannot be read", func(m *hosttest.Machine) {
				m.File("/sys/class/kfd/kfd/topology/nodes/1/properties", "location_id 256\ndomain 0\n")
			},
			accel.Partitions{
				Find: "/sys/class/kfd/kfd/topology/nodes/*", Of: &accel.Belonging{
					File:  "properties#location_id",
					Place: true,
				},
				Profile: "/sys/bus/pci/devices/{{.Address}}/current_compute_partition", WithDevice: true,
			},
			nil,
		},
		{
			"one that says that the device is whole", func(m *hosttest.Machine) {
				m.SetAttribute(card, "parts/a/mode", "SPX")
			},
			accel.Partitions{Find: "parts/*", Profile: "mode", Whole: "SPX", WithDevice: true},
			nil,
		},
		{
			"words of a driver become words of names", func(m *hosttest.Machine) {
				m.SetAttribute(card, "parts/a b/mode", "1g.5gb+me ")
			},
			accel.Partitions{Find: "parts/*", Profile: "mode", WithDevice: true},
			[]accel.Accelerator{{
				ID: card + "-1g.5gb-me-a-b", Parent: card, Profile: "1g.5gb-me", NUMANode: 1,
				Bound: "edu", Nodes: []accel.DeviceNode{{Path: "/dev/edu0", Major: 240}},
			}},
		},
		{"no number", numbered, accel.Partitions{
			Find: "/proc/driver/x/gpu{{.Number}}/*", NumberFrom: "none",
			Form: "(?P<profile>x)",
		}, nil},
		{"none", func(*hosttest.Machine) {}, accel.Partitions{Find: "virtfn*", Form: "(?P<profile>virtfn)"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, pci := divided(t)
			def := &accel.Definition{
				Kind: "qemu-edu", Match: []accel.Match{{Vendor: "1234"}}, Driver: accel.DriverDefinition{Binds: "edu"},
				Nodes: []accel.NodeSource{{Glob: "accelerator_edu/edu*"}}, Partitions: &tc.def,
			}
			tc.make(m)
			accs := Accelerators(m.Host, def, pci)
			if len(accs) != 2 {
				t.Fatalf("%d devices: %+v", len(accs), accs)
			}
			if diff := cmp.Diff(tc.want, accs[0].Partitions); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPartitionNodeInDev: a pattern may find the device node itself.
func TestPartitionNodeInDev(t *testing.T) {
	m, pci := divided(t)
	m.File("/dev/edu0part1", "") // not a device node: it is not offered
	if err := unix.Mknod(filepath.Join(m.Host.Root(), "/dev/edu0part0"), unix.S_IFCHR|0o600,
		int(unix.Mkdev(241, 9))); err != nil {
		t.Skip("making a device node needs root")
	}
	def := &accel.Definition{
		Kind: "qemu-edu", Match: []accel.Match{{Vendor: "1234"}}, Partitions: &accel.Partitions{
			Find: "/dev/edu{{.Number}}part*", NumberFrom: "number", Form: "(?P<profile>part)",
			Nodes: []accel.NodeSource{{Glob: "."}},
		},
	}
	m.SetAttribute(card, "number", "0")
	parts := Accelerators(m.Host, def, pci)[0].Partitions
	want := []accel.DeviceNode{{Path: "/dev/edu0part0", Major: 241, Minor: 9}}
	if len(parts) != 2 || parts[1].Health.Reason != accel.NodeMissing {
		t.Fatalf("%+v", parts)
	}
	if diff := cmp.Diff(want, parts[0].Nodes); diff != "" || parts[0].ID != card+"-part-edu0part0" {
		t.Errorf("%s: %s", parts[0].ID, diff)
	}
}

// TestVirtualFunctionIsNoDevice: a part is not also offered as a device of its own.
func TestVirtualFunctionIsNoDevice(t *testing.T) {
	m, pci := divided(t)
	vf := accel.PCIDevice{Address: "0000:01:00.1", Vendor: "1234", Device: "11e8", SRIOV: accel.SRIOV{PhysFn: card}}
	def := &accel.Definition{Kind: "qemu-edu", Match: []accel.Match{{Vendor: "1234"}}}
	if n := len(Accelerators(m.Host, def, append(pci, vf))); n != 3 {
		t.Errorf("%d devices without partitions, want 3", n)
	}
	def.Partitions = &accel.Partitions{Find: "virtfn*", Form: "(?P<profile>virtfn)"}
	if n := len(Accelerators(m.Host, def, append(pci, vf))); n != 2 {
		t.Errorf("%d devices with partitions, want 2", n)
	}
}
