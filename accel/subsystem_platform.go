package accel

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// platformSubsystem has what no bus can find, and what the device tree or ACPI therefore describes:
// "platform:fe800000.npu" or "platform:QEMU0002:00".
func platformSubsystem() Subsystem {
	return Subsystem{
		Name: "platform", Dir: "/sys/bus/platform/devices", Words: []string{"name", "driver"},
		place: platformPlace, identify: platformIdentity,
	}
}

// chosen is a name with a number that the kernel has chosen.
var chosen = regexp.MustCompile(`^(.+)\.[0-9]+\.auto$`)

// platformPlace is the name, or what the device is below if the kernel counts devices of the name as they come: such a
// one is made by the driver of the device above.
func platformPlace(dir string, read func(file string) string) string {
	m := chosen.FindStringSubmatch(path.Base(dir))
	if m == nil {
		return path.Base(dir)
	}
	return anchor(path.Dir(dir), read) + "-" + m[1]
}

// maxCompatible is how many entries of a device tree's compatible list are looked at.
const maxCompatible = 16

// platformAlias is MODALIAS without a device tree: "platform:" and the name, or "acpi:" and ids, each followed by a
// colon (platform_uevent, drivers/base/platform.c; create_pnp_modalias, drivers/acpi/device_sysfs.c).
var platformAlias = regexp.MustCompile(`^(platform|acpi):(.+)$`)

// platformIdentity collects the names by which drivers find the device: the compatible list of the device tree
// (of_device_uevent, drivers/of/device.c), the ids of ACPI, or the name.
func platformIdentity(d *Device, vars map[string]string) {
	var names []string
	for i := range maxCompatible {
		if name := wellFormed(vars[fmt.Sprintf("OF_COMPATIBLE_%d", i)]); name != "" {
			names = append(names, name)
		}
	}
	if m := platformAlias.FindStringSubmatch(vars["MODALIAS"]); len(m) > 2 && m[1] == "platform" {
		names = append(names, wellFormed(m[2]))
	} else if m != nil {
		for i, id := range strings.Split(strings.TrimSuffix(m[2], ":"), ":") {
			if name := wellFormed(id); name != "" && i < maxCompatible {
				names = append(names, name)
			}
		}
	}
	d.Names = strings.TrimSpace(strings.Join(names, " "))
}
