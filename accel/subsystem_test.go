package accel

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hubs answers for the versions of root hubs.
func hubs(file string) string {
	switch file {
	case "/sys/devices/pci0000:00/0000:00:14.0/usb1/version", "/sys/devices/platform/soc/fe9c.usb/xhci-hcd.2.auto/usb3/version":
		return " 2.00"
	case "/sys/devices/pci0000:00/0000:00:14.0/usb2/version":
		return " 3.10"
	}
	return ""
}

// TestAddresses: an address says where a device is, not which number the kernel gave it.
func TestSubsystemAddress(t *testing.T) {
	const function = "/sys/devices/pci0000:00/0000:00:01.0/0000:02:00.0"
	for _, c := range []struct{ subsystem, dir, want string }{
		{"usb", "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1.4", "usb:0000:00:14.0-v2-1.4"},
		{"usb", "/sys/devices/pci0000:00/0000:00:14.0/usb2/2-1", "usb:0000:00:14.0-v3-1"},
		{"usb", "/sys/devices/platform/soc/fe9c.usb/xhci-hcd.2.auto/usb3/3-2", "usb:fe9c.usb-v2-2"},
		{"usb", "/sys/devices/pci0000:00/0000:00:15.0/usb7/7-1", ""}, // the hub tells no version
		{"virtio", function + "/virtio7", "virtio:0000:02:00.0"},
		{"virtio", "/sys/devices/platform/a003e00.virtio_mmio/virtio0", "virtio:a003e00.virtio_mmio"},
		{"auxiliary", function + "/mlx5_core.sf.4", "auxiliary:0000:02:00.0-mlx5_core.sf.4"},
		{"auxiliary", "/sys/devices/virtual/demo.part.1", "auxiliary:demo.part.1"},
		{"platform", "/sys/devices/platform/soc@0/fe800000.npu", "platform:fe800000.npu"},
		{"platform", "/sys/devices/LNXSYSTM:00/QEMU0002:00", "platform:QEMU0002:00"},
		{"platform", "/sys/devices/platform/soc@0:npu,x", "platform:soc-0:npu-x"},
		{"platform", "/sys/devices/pci0000:00/0000:00:1f.0/iTCO_wdt.1.auto", "platform:0000:00:1f.0-iTCO_wdt"},
		{"drm", function + "/drm/card3", "drm:0000:02:00.0"},
		{"drm", function + "/virtio1/drm/card0", "drm:0000:02:00.0"},
		{"drm", "/sys/devices/platform/vkms/drm/card0", "drm:vkms"},
		{"accel", "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1.4/1-1.4:1.0/accel/accel0", "accel:0000:00:14.0-v2-1.4"},
		{"infiniband", "/sys/devices/virtual/infiniband/rxe0", "infiniband:rxe0"},
		{"infiniband", function + "/mlx5_core.sf.4/infiniband/mlx5_7", "infiniband:mlx5_core.sf.4"},
		{"virtio", "/sys/devices/../etc/virtio0", ""},
		{"virtio", "/sys/bus/virtio0", ""},
		{"platform", "/sys/devices/platform/" + strings.Repeat("x", 200), ""},
		{"pci", function, ""},
	} {
		s, _ := SubsystemNamed(c.subsystem)
		got := s.Address(c.dir, hubs)
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.dir, got, c.want)
		}
		if got != "" && (!IsAddress(got) || SubsystemOf(got).Name != c.subsystem || OnPCI(got)) {
			t.Errorf("%q is not an address of %s", got, c.subsystem)
		}
	}
}

// TestSubsystemDevice: ids and names come from the uevent file, and what is not well formed is left out.
func TestSubsystemDevice(t *testing.T) {
	const function = "/sys/devices/pci0000:00/0000:00:05.0"
	for name, c := range map[string]struct {
		subsystem, dir, uevent, above string
		want                          Device
	}{
		"usb": {
			"usb", function + "/usb1/1-1", "DRIVER=usb\nPRODUCT=627/1/0\nTYPE=0/0/255", "",
			Device{Name: "1-1", Vendor: "0627", Device: "0001", Class: "0000ff", Driver: "usb"},
		},
		"usb, nonsense": {"usb", function + "/usb1/1-1", "DRIVER=../x\nPRODUCT=12345/1/0\nTYPE=1/2", "", Device{Name: "1-1"}},
		"virtio": {
			"virtio", function + "/virtio2", "DRIVER=virtio_crypto\nMODALIAS=virtio:d00000014v00001AF4", "",
			Device{Name: "virtio2", Vendor: "1af4", Device: "0014", Driver: "virtio_crypto"},
		},
		"auxiliary": {
			"auxiliary", function + "/mlx5_core.sf.4", "DRIVER=mlx5_core.sf\nMODALIAS=auxiliary:mlx5_core.sf", "",
			Device{Name: "mlx5_core.sf.4", Names: "mlx5_core.sf", Driver: "mlx5_core.sf"},
		},
		"device tree": {
			"platform", function + "/fe8.npu", "OF_COMPATIBLE_0=vendor,npu-v2\nOF_COMPATIBLE_1=vendor,npu\nMODALIAS=of:Nnpu", "",
			Device{Name: "fe8.npu", Names: "vendor,npu-v2 vendor,npu"},
		},
		"ACPI": {
			"platform", function + "/PNP0103:00", "MODALIAS=acpi:PNP0103:PNP0C01:", "",
			Device{Name: "PNP0103:00", Names: "PNP0103 PNP0C01"},
		},
		"a name": {"platform", function + "/vkms", "MODALIAS=platform:vkms", "", Device{Name: "vkms", Names: "vkms"}},
		"class": {
			"drm", function + "/virtio0/drm/card0", "DEVNAME=dri/card0\nDRIVER=no", "DRIVER=virtio_gpu\n",
			Device{Name: "card0", Names: "card", Driver: "virtio_gpu"},
		},
	} {
		s, _ := SubsystemNamed(c.subsystem)
		c.want.Subsystem, c.want.Address, c.want.NUMANode, c.want.IOMMUGroup = c.subsystem, "a", -1, -1
		c.want.ParentPort = "0000:00:05.0"
		if diff := cmp.Diff(c.want, s.Device(c.dir, "a", c.uevent, c.above)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// FuzzSubsystem: whatever sysfs says, an address is one, and names have no blanks or slashes in them.
func FuzzSubsystem(f *testing.F) {
	f.Add("/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1.4", "DRIVER=usb\nPRODUCT=627/1/0\nTYPE=0/0/0", " 2.00")
	f.Add("/sys/devices/pci0000:00/0000:00:05.0/virtio0", "DRIVER=x\nMODALIAS=virtio:d00000014v00001AF4", "")
	f.Add("/sys/devices/platform/npu", "OF_COMPATIBLE_0=a,b\nMODALIAS=acpi:QEMU0002:", "")
	f.Fuzz(func(t *testing.T, dir, uevent, version string) {
		for _, s := range Subsystems() {
			address := s.Address(dir, func(string) string { return version })
			if address != "" &&
				(!IsAddress(address) || SubsystemOf(address).Name != s.Name || strings.Contains(address, "/")) {
				t.Errorf("%q is an address", address)
			}
			d := s.Device(dir, address, uevent, uevent)
			for _, text := range append(strings.Fields(d.Names), d.Driver, d.Vendor, d.Device, d.Class) {
				if len(text) > 128 || strings.ContainsAny(text, " /\n\x00") {
					t.Errorf("%q from %q", text, uevent)
				}
			}
			if n := len(d.Vendor); n != 0 && n != 4 {
				t.Errorf("vendor %q from %q", d.Vendor, uevent)
			}
		}
	})
}

// TestOwnersBelow: whoever has a function has what is below it, and whoever has a device of a bus that of a class.
func TestOwnersBelow(t *testing.T) {
	devices := []Device{
		{Subsystem: "drm", Address: "drm:0000:00:05.0", Driver: "virtio_gpu", ParentPort: "0000:00:05.0"},
		{Subsystem: "drm", Address: "drm:0000:00:06.0", Driver: "virtio_gpu", ParentPort: "0000:00:06.0"},
		{Subsystem: "virtio", Address: "virtio:0000:00:05.0", Device: "0010", ParentPort: "0000:00:05.0"},
		{Subsystem: "virtio", Address: "virtio:0000:00:06.0", Device: "0010", ParentPort: "0000:00:06.0"},
		{Address: "0000:00:05.0", Vendor: "1af4", Device: "1050", Class: "038000"},
		{Address: "0000:00:06.0", Vendor: "1af4", Device: "1050", Class: "038000"},
		{Address: "0000:00:07.0", Vendor: "8086", Device: "0001", Class: "0c0330"},
		{Subsystem: "usb", Address: "usb:0000:00:07.0-v2-1", Vendor: "0627", ParentPort: "0000:00:07.0"},
	}
	kind := func(name string, after string, m Match) *Definition {
		def := &Definition{Kind: name, Match: []Match{m}}
		if after != "" {
			def.After = []string{after}
		}
		return def
	}
	display := kind("a-display", "", Match{Subsystem: "drm", Driver: "virtio_gpu"})
	bus := kind("b-virtio", "", Match{Subsystem: "virtio", Device: "0010"})
	function := kind("c-function", "", Match{Vendor: "1af4", Device: "1050"})
	controller := kind("d-controller", "", Match{Class: "0c03"})
	stick := kind("e-stick", "", Match{Subsystem: "usb", Vendor: "0627"})
	for name, c := range map[string]struct {
		kinds []*Definition
		lost  map[string]int
	}{
		"alone":             {[]*Definition{display}, map[string]int{"a-display": 0}},
		"a bus and a class": {[]*Definition{display, bus}, map[string]int{"a-display": 2, "b-virtio": 0}},
		"all":               {[]*Definition{display, bus, function}, map[string]int{"a-display": 2, "b-virtio": 2, "c-function": 0}},
		"an addition": {
			[]*Definition{kind("a-display", "c-function", Match{Subsystem: "drm", Driver: "virtio_gpu"}), function},
			map[string]int{"a-display": 0, "c-function": 0},
		},
		"the controller": {[]*Definition{controller, stick}, map[string]int{"e-stick": 1, "d-controller": 0}},
		"another one":    {[]*Definition{function, stick}, map[string]int{"e-stick": 0, "c-function": 0}},
	} {
		kinds := map[string]*Definition{}
		for _, def := range c.kinds {
			kinds[def.Kind] = def
		}
		rivalries := Rivalries(kinds, devices)
		for kind, want := range c.lost {
			if got := Lost(kind, rivalries); len(got) != want {
				t.Errorf("%s: %s loses %v", name, kind, got)
			}
		}
	}
}

// TestRecognisesElsewhere: a row is about its subsystem alone, and each word that it has must be equal.
func TestRecognisesElsewhere(t *testing.T) {
	crypto := Device{Subsystem: "virtio", Address: "virtio:0000:00:05.0", Vendor: "1af4", Device: "0014", Driver: "x"}
	npu := Device{Subsystem: "platform", Address: "platform:fe8.npu", Names: "vendor,npu-v2 vendor,npu"}
	function := Device{Address: "0000:00:05.0", Vendor: "1af4", Device: "0014", Class: "ff0000"}
	for _, c := range []struct {
		m    Match
		d    Device
		want bool
	}{
		{Match{Subsystem: "virtio", Device: "0014"}, crypto, true},
		{Match{Subsystem: "virtio", Device: "0010"}, crypto, false},
		{Match{Subsystem: "virtio", Device: "0014", Driver: "y"}, crypto, false},
		{Match{Subsystem: "virtio", Device: "0014"}, function, false},
		{Match{Vendor: "1af4", Device: "0014"}, crypto, false},
		{Match{Vendor: "1af4", Device: "0014"}, function, true},
		{Match{Subsystem: PCI, Vendor: "1af4", Device: "0014"}, function, true},
		{Match{Subsystem: "platform", Name: "vendor,npu"}, npu, true},
		{Match{Subsystem: "platform", Name: "vendor"}, npu, false},
		{Match{Subsystem: "usb", Name: "vendor,npu"}, npu, false},
	} {
		def := Definition{Match: []Match{c.m}}
		if got := def.Recognises(c.d); got != c.want {
			t.Errorf("%+v and %s: %t", c.m, c.d.Address, got)
		}
		def.Confined = true
		if c.d.Subsystem != "" && def.Recognises(c.d) {
			t.Errorf("a confined definition has %s", c.d.Address)
		}
	}
}
