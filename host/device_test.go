package host_test

import (
	"encoding/binary"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/hosttest"
)

const address = "0000:00:04.0"

func deviceMachine(t *testing.T) *hosttest.Machine {
	t.Helper()
	m := hosttest.New(t)
	m.AddPCI(accel.PCIDevice{Address: address, Vendor: "1234", Device: "11e8", Class: "00ff00"})
	m.File("/proc/devices", "Character devices:\n  1 mem\n195 gpu\n508 gpu-mem\n\nBlock devices:\n  8 gpu-disk\n")
	m.File("/proc/driver/gpu/"+address+"/information",
		"Model: \t\t A Model\nDevice Minor: \t 3\nDevice Minor Number: \t 9\n")
	m.SetAttribute(address, "accel/foo7/dev", "261:7")
	m.SetAttribute(address, "accel/foo7/uevent", "DEVNAME=accel/foo7\nDEVMODE=0660")
	m.SetAttribute(address, "accel/lost/uevent", "DEVNAME=accel/lost")
	m.File("/sys/class/accel/fooctl7/dev", "261:107\n")
	m.File("/sys/class/accel/fooctl7/uevent", "DEVNAME=accel/fooctl7\n")
	return m
}

func TestDeviceNodes(t *testing.T) {
	m := deviceMachine(t)
	information := "/proc/driver/gpu/{{.Address}}/information#Device Minor"
	made := func(path string, n accel.MadeNode) accel.NodeSource { n.Path = path; return accel.NodeSource{Make: &n} }
	node := func(path string, major, minor uint32, mode fs.FileMode, made bool) host.Node {
		return host.Node{DeviceNode: accel.DeviceNode{Path: path, Major: major, Minor: minor}, Mode: mode, Made: made}
	}
	for _, c := range []struct {
		name    string
		source  accel.NodeSource
		nodes   []host.Node
		missing []string
	}{
		{
			"below the function",
			accel.NodeSource{Glob: "accel/foo*"},
			[]host.Node{node("/dev/accel/foo7", 261, 7, 0o660, false)},
			nil,
		},
		{"without numbers", accel.NodeSource{Glob: "accel/lost"}, nil, []string{"accel/lost"}},
		{"absent and optional", accel.NodeSource{Glob: "drm/*", Optional: true}, nil, nil},
		{
			"in a class",
			accel.NodeSource{Glob: "/sys/class/accel/fooctl*"},
			[]host.Node{node("/dev/accel/fooctl7", 261, 107, 0o600, false)},
			nil,
		},
		{
			"with a sibling",
			accel.NodeSource{Glob: "accel/foo*", Siblings: []string{"/sys/class/accel/fooctl{{.Number}}"}},
			[]host.Node{node("/dev/accel/foo7", 261, 7, 0o660, false), node("/dev/accel/fooctl7", 261, 107, 0o600,
				false)},
			nil,
		},
		{
			"without its sibling",
			accel.NodeSource{Glob: "accel/foo*", Siblings: []string{"/sys/class/accel/barctl{{.Number}}"}},
			[]host.Node{node("/dev/accel/foo7", 261, 7, 0o660, false)},
			[]string{"/sys/class/accel/barctl7"},
		},
		{"made, the minor from a line", made("/dev/gpu{{.Number}}", accel.MadeNode{
			Majors:    []string{"gpu-new", "gpu"},
			MinorFrom: information,
		}), []host.Node{node("/dev/gpu3", 195, 3, 0o666, true)}, nil},
		{
			"made, fixed", made("/dev/gpu-mem", accel.MadeNode{Majors: []string{"gpu-mem"}, Minor: 1, Mode: "0640"}),
			[]host.Node{node("/dev/gpu-mem", 508, 1, 0o640, true)},
			nil,
		},
		{
			"made, a block device's major", made("/dev/x", accel.MadeNode{Majors: []string{"gpu-disk"}}), nil,
			[]string{"/dev/x (no number: its driver has registered no gpu-disk in /proc/devices)"},
		},
		{"made, no such line", made("/dev/x", accel.MadeNode{
			Majors:    []string{"gpu"},
			MinorFrom: "/proc/driver/gpu/{{.Address}}/information#Minor",
		}), nil, []string{"/dev/x (no number: the device does not tell it)"}},
		{"made, not a number", made("/dev/x", accel.MadeNode{
			Majors:    []string{"gpu"},
			MinorFrom: "/proc/driver/gpu/{{.Address}}/information#Model",
		}), nil, []string{"/dev/x (no number: the device does not tell it)"}},
		{
			"made, its module not there", made("/dev/x", accel.MadeNode{Majors: []string{"gpu"}, Module: "gpu_extra"}),
			nil, nil,
		},
	} {
		nodes, missing := m.Host.Devices().Nodes(address, []accel.NodeSource{c.source})
		if diff := cmp.Diff(c.nodes, nodes); diff != "" {
			t.Errorf("%s: nodes (-want +got)\n%s", c.name, diff)
		}
		if diff := cmp.Diff(c.missing, missing); diff != "" {
			t.Errorf("%s: missing (-want +got)\n%s", c.name, diff)
		}
	}
}

func TestDeviceAttribute(t *testing.T) {
	m := deviceMachine(t)
	m.SetAttribute(address, "hwmon/hwmon3/temp2_input", "47000")
	m.SetAttribute(address, "aer_dev_fatal", "Undefined 0\nDLP 1\nTOTAL_ERR_FATAL 1")
	m.SetAttribute(address, "ras/umc_err_count", "ue: 2\nce: 40")
	for file, want := range map[string]string{
		"hwmon/hwmon*/temp[12]_input":                            "47000",
		"aer_dev_fatal#TOTAL_ERR_FATAL":                          "1",
		"ras/umc_err_count#ce":                                   "40",
		"/proc/driver/gpu/{{.Address}}/information#Model":        "A Model",
		"/proc/driver/gpu/{{.Address}}/information#Device Minor": "3",
		"/sys/class/accel/fooctl7/dev":                           "261:107",
		"ras/umc_err_count#u":                                    "", // a whole word, not its prefix
		"hwmon/hwmon*/temp9_input":                               "",
	} {
		got, err := m.Host.Devices().Attribute(address, file)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", file, got, err, want)
		}
	}
}

// TestLibrary finds what the loader would: through its cache, for the machine's processor, with links resolved inside
// the root.
func TestLibrary(t *testing.T) {
	m := hosttest.New(t)
	elf := func(class, machine byte) string {
		return "\x7fELF" + string([]byte{class, 1, 1}) + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00" +
			string([]byte{machine, 0}) + "\x01\x00\x00\x00"
	}
	m.File("/opt/gpu/libgpu.so.1.2", elf(2, 62))
	m.Link("/opt/gpu/libgpu.so.1", "/opt/gpu/libgpu.so.1.2")
	m.File("/opt/gpu32/libgpu.so.1", elf(1, 3))
	m.File("/usr/lib/aarch64/libgpu.so.1", elf(2, 183))
	m.File("/usr/lib/x86_64-linux-gnu/libplain.so.3", elf(2, 62))
	m.File("/usr/lib64/libscript.so.1", "INPUT(libgpu.so)")
	m.File("/etc/ld.so.cache", ldCache([][2]string{
		{"libgpu.so.1", "/opt/gpu32/libgpu.so.1"},
		{"libgpu.so.1", "/usr/lib/aarch64/libgpu.so.1"},
		{"libgpu.so.1", "/opt/gone/libgpu.so.1"},
		{"libgpu.so.1", "/opt/gpu/libgpu.so.1"},
	}))
	for name, want := range map[string]string{
		"libgpu.so.1": "/opt/gpu/libgpu.so.1.2", "libplain.so.3": "/usr/lib/x86_64-linux-gnu/libplain.so.3",
		"libscript.so.1": "", "libnone.so.1": "", "../libgpu.so.1": "",
	} {
		if got, err := m.Host.Programs().Library(name); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	for _, broken := range []string{"", "glibc-ld.so.cache1.1", "glibc-ld.so.cache1.1\xff\xff\xff\xff" +
		string(make([]byte, 40))} {
		m.File("/etc/ld.so.cache", broken)
		if got, err := m.Host.Programs().Library("libplain.so.3"); err != nil {
			t.Errorf("with the cache %q: %q, %v", broken, got, err)
		}
	}
}

// ldCache writes soname and path pairs as ldconfig does.
func ldCache(pairs [][2]string) string {
	var entries, text []byte
	base := 48 + 24*len(pairs)
	for _, p := range pairs {
		entry := binary.NativeEndian.AppendUint32(nil, 0x0303)
		for _, s := range p {
			entry = binary.NativeEndian.AppendUint32(entry, uint32(base+len(text)))
			text = append(append(text, s...), 0)
		}
		entries = append(append(entries, entry...), make([]byte, 12)...)
	}
	head := binary.NativeEndian.AppendUint32([]byte("glibc-ld.so.cache1.1"), uint32(len(pairs)))
	head = binary.NativeEndian.AppendUint32(head, uint32(len(text)))
	return string(append(head, make([]byte, 48-len(head))...)) + string(entries) + string(text)
}

// TestGroupNodes: the node of the IOMMU group is that of the function, or of the virtual function that is a part of it.
func TestGroupNodes(t *testing.T) {
	m := deviceMachine(t)
	const group = "/sys/class/vfio/{{.IOMMUGroup}}"
	for _, n := range []string{"1", "12"} {
		m.File("/sys/class/vfio/"+n+"/dev", "241:"+n+"\n")
		m.File("/sys/class/vfio/"+n+"/uevent", "DEVNAME=vfio/"+n+"\n")
	}
	look := func(base string) (string, []string) {
		nodes, missing := m.Host.Devices().NodesAt(base, address, []accel.NodeSource{{Glob: group}})
		if len(nodes) != 1 {
			return "", missing
		}
		return nodes[0].Path, missing
	}
	function := "/sys/bus/pci/devices/" + address
	if got, missing := look(function); got != "" || len(missing) != 1 || missing[0] != group+" (it is in no IOMMU group)" {
		t.Errorf("without a group: %q, %q", got, missing)
	}
	dir, err := m.Host.Follow(function)
	if err != nil {
		t.Fatal(err)
	}
	m.Link(dir+"/iommu_group", "../../../kernel/iommu_groups/1")
	if got, missing := look(function); got != "/dev/vfio/1" || len(missing) > 0 {
		t.Errorf("%q, %q", got, missing)
	}
	m.File(dir+"/instances/i0/size", "half\n")
	if got, _ := look(dir + "/instances/i0"); got != "/dev/vfio/1" {
		t.Errorf("a part that is no function: %q", got)
	}
	m.File(dir+"/virtfn0/vendor", "0xffff\n")
	if got, _ := look(dir + "/virtfn0"); got != "" {
		t.Errorf("a virtual function in no group: %q", got)
	}
	m.Link(dir+"/virtfn0/iommu_group", "../../../../kernel/iommu_groups/12")
	if got, _ := look(dir + "/virtfn0"); got != "/dev/vfio/12" {
		t.Errorf("a virtual function: %q", got)
	}
	m.Remove(dir + "/iommu_group")
	m.Link(dir+"/iommu_group", "../../../kernel/iommu_groups/../../x")
	if got, _ := look(function); got != "" {
		t.Errorf("a group without a number: %q", got)
	}
}
