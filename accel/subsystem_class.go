package accel

import (
	"path"
	"regexp"
	"strings"
)

// classSubsystem has what drivers offer of their devices under one name, whatever the hardware is: "drm:0000:00:02.0"
// is the display or render device of a PCI function, and "infiniband:rxe0" an RDMA device of software alone. Such a
// device exists only while its driver is bound, and has its number or its name from the order in which drivers came.
func classSubsystem(name string, entry *regexp.Regexp) Subsystem {
	return Subsystem{
		Name: name, Dir: "/sys/class/" + name, Words: []string{"name", "driver"}, Class: true,
		entry: entry, place: classPlace, identify: classIdentity,
	}
}

// What is a device of its own in a class. The others are nodes of the same device, or its connectors.
var (
	accelEntry = regexp.MustCompile(`^accel[0-9]+$`)
	drmEntry   = regexp.MustCompile(`^card[0-9]+$`)
)

// classPlace names the device above: its directory has one for the class, which has this one.
func classPlace(dir string, read func(file string) string) string {
	if above := anchor(path.Dir(path.Dir(dir)), read); above != "" {
		return above
	}
	return path.Base(dir)
}

// classIdentity takes the kernel's name without the number at its end, such as "card" or "rxe".
func classIdentity(d *Device, _ map[string]string) {
	d.Names = wellFormed(strings.TrimRight(d.Name, "0123456789"))
}
