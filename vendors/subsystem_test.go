package vendors

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

// elsewhereText is a definition with a subsystem.
func elsewhereText(match, more string) string {
	return "kind: example-npu\nresource: example.com/npu\nmatch:\n  - " + match + "\n" + more +
		"driver:\n  binds: npu\n  modules:\n    - name: npu\n"
}

// TestSubsystemFaults: what a device elsewhere than on PCI does not have is refused by name.
func TestSubsystemFaults(t *testing.T) {
	const usb, virtio = `{subsystem: usb, vendor: "0403", device: "6001"}`, `{subsystem: virtio, device: "0014"}`
	const platform, drm = `{subsystem: platform, name: "vendor,npu"}`, `{subsystem: drm, driver: npu}`
	for _, c := range []struct{ match, more, want string }{
		{usb, "", ""},
		{virtio, "", ""},
		{platform, "", ""},
		{drm, "", ""},
		{`{subsystem: auxiliary, name: npu_core.part}`, "", ""},
		{`{subsystem: infiniband, name: rxe}`, "", ""},
		{`{subsystem: accel, driver: npu}`, "", ""},
		{`{subsystem: pci, vendor: "1234", device: "0001"}`, "reset: function\nvfio: {}\n", ""},
		{`{subsystem: ubs, vendor: "0403", device: "6001"}`, "", `match[0].subsystem: "ubs" is not one of pci, usb`},
		{usb + "\n  - " + virtio, "", `match[1].subsystem: all rows must name the same subsystem`},
		{usb, "except:\n  - " + virtio + "\n", `except[0].subsystem: it must be that of the rows of match`},
		{usb, "except:\n  - {subsystem: usb}\n", `except[0]: the row is empty`},
		{`{subsystem: usb, vendor: "0403"}`, "", `match[0]: a vendor is needed, and a device or a class`},
		{`{subsystem: usb, device: "6001"}`, "", `match[0]: a vendor is needed, and a device or a class`},
		{`{subsystem: usb, vendor: "0403", device: "6001", name: x}`, "", `match[0].name: devices on the usb bus have none`},
		{`{subsystem: virtio, vendor: "1af4"}`, "", `match[0].device: the type of the virtio device is needed`},
		{`{subsystem: virtio, device: "0014", class: "03"}`, "", `match[0].class: devices on the virtio bus have none`},
		{`{subsystem: platform}`, "", `match[0]: a name or a driver is needed`},
		{`{subsystem: platform, name: "a b"}`, "", `match[0].name: "a b" is not a name without blanks`},
		{`{subsystem: drm}`, "", `match[0]: a name or a driver is needed, or every device in the class drm`},
		{`{subsystem: drm, vendor: "1234", driver: x}`, "", `match[0].vendor: devices in the class drm have none`},
		{usb, "functions: {count: 2}\n", `functions: only PCI functions have that, and the devices are on the usb bus`},
		{usb, "vfio: {}\n", `vfio: only PCI functions have that`},
		{usb, "fixedLinkSpeed: true\n", `fixedLinkSpeed: only PCI functions have that`},
		{usb, "reset: function\n", `reset: only PCI functions can be reset by the kernel: write rebind or never`},
		{drm, "reset: rebind\n", `reset: a device in the class drm has no driver of its own`},
		{virtio, "nodes:\n  - glob: /sys/class/vfio/{{.IOMMUGroup}}\n", `nodes[0].glob: only PCI functions have that`},
		{virtio, "nodes:\n  - glob: vfio-dev/vfio*\n", `nodes[0].glob: only PCI functions have that`},
		{virtio, "partitions:\n  find: virtfn*\n", `partitions.find: only PCI functions have that`},
		{virtio, "confined: true\n", `match[0].subsystem: finds devices elsewhere than on PCI, and the definition is confined`},
	} {
		_, faults := Read([]byte(elsewhereText(c.match, c.more)))
		found := c.want == "" && len(faults) == 0
		for _, f := range faults {
			found = found || c.want != "" && strings.Contains(f.String(), c.want) && f.Line > 0
		}
		if !found {
			t.Errorf("%s %s: %v, want %q", c.match, c.more, faults, c.want)
		}
	}
	for _, word := range []string{"override: true", "takeover: true", "conflicts: [other]"} {
		text := strings.Replace(elsewhereText(usb, ""), "  binds: npu\n", "  binds: npu\n  "+word+"\n", 1)
		field, _, _ := strings.Cut(word, ":")
		if _, faults := Read([]byte(text)); len(faults) == 0 || faults[0].Field != "driver."+field {
			t.Errorf("%s: %v", word, faults)
		}
	}
}

// TestElsewhere: what is the same for all devices of a subsystem is filled in.
func TestElsewhere(t *testing.T) {
	bare := func(match string) string {
		return strings.Replace(elsewhereText(match, "except:\n  - {driver: other}\n"), "  binds: npu\n", "", 1)
	}
	usb, faults := Read([]byte(bare(`{subsystem: usb, vendor: "0403", device: "6001"}`)))
	if len(faults) > 0 || usb.Driver.Binds != "usb" || usb.Reset != accel.ResetRebind || usb.Except[0].Subsystem != "usb" {
		t.Errorf("%v, %+v", faults, usb)
	}
	class, faults := Read([]byte(bare(`{subsystem: infiniband, name: rxe}`)))
	if len(faults) > 0 || class.Driver.Binds != "" || class.Reset != accel.ResetNever {
		t.Errorf("%v, %+v", faults, class)
	}
	if _, faults = Read([]byte(bare(`{subsystem: virtio, device: "0014"}`))); len(faults) == 0 {
		t.Error("a driver is needed on a bus")
	}
	pci, faults := Read([]byte(elsewhereText(`{subsystem: pci, vendor: "1234", device: "0001"}`, "")))
	if len(faults) > 0 || pci.Match[0].Subsystem != "" || pci.Reset != "" || pci.Subsystem().Name != accel.PCI {
		t.Errorf("%v, %+v", faults, pci)
	}
}
