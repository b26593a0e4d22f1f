package accel

import (
	"path"
	"strings"
)

// auxiliarySubsystem has the parts that a driver makes of a device for other drivers (Documentation/driver-api/
// auxiliary_bus.rst): "auxiliary:0000:03:00.0-mlx5_core.sf.4". The number at the end is the kernel's. It stays for as
// long as the part exists, so that no part gets the address of another one, and may be another one after a reboot.
func auxiliarySubsystem() Subsystem {
	return Subsystem{
		Name: "auxiliary", Dir: "/sys/bus/auxiliary/devices", Words: []string{"name", "driver"},
		place: auxiliaryPlace, identify: auxiliaryIdentity,
	}
}

func auxiliaryPlace(dir string, read func(file string) string) string {
	if above := anchor(path.Dir(dir), read); above != "" {
		return above + "-" + path.Base(dir)
	}
	return path.Base(dir)
}

// auxiliaryIdentity parses MODALIAS, which is the name without its number (auxiliary_uevent, drivers/base/auxiliary.c).
func auxiliaryIdentity(d *Device, vars map[string]string) {
	if name, ok := strings.CutPrefix(vars["MODALIAS"], "auxiliary:"); ok {
		d.Names = wellFormed(name)
	}
}
