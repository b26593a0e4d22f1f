package host

import (
	"path"
	"strings"

	"github.com/acceld/acceld/accel"
)

// Place is where the device at an address is in sysfs.
type Place struct {
	// Dir is its directory, or what the directory would be; below the subsystem's, so that links lead to the device.
	Dir string
	// Name is the kernel's name of the device, which binds and unbinds it.
	Name string
	// Drivers is the directory of the subsystem's drivers; empty for a class.
	Drivers string
	// Driver is the link to the driver that is bound; of a class, to that of the device above.
	Driver string
}

// Dir returns the directory of the device at an address; one that does not exist if there is no such device.
func (d Devices) Dir(address string) string { return d.Place(address).Dir }

// Place returns where the device at an address is. A PCI function is where its address says. For another device all of
// its subsystem are looked through, because the kernel's name may have changed.
func (d Devices) Place(address string) Place {
	s := accel.SubsystemOf(address)
	p := Place{Name: address}
	if s.Name != accel.PCI {
		p.Name = d.named(s, address)
	}
	p.Dir = path.Join(s.Dir, p.Name)
	p.Driver = path.Join(p.Dir, "driver")
	if s.Class {
		p.Driver = path.Join(p.Dir, "device/driver")
	} else {
		p.Drivers = path.Join(path.Dir(s.Dir), "drivers")
	}
	return p
}

// named returns the kernel's name of the device at an address; its place if there is no such device.
func (d Devices) named(s accel.Subsystem, address string) string {
	names, _ := d.h.Names(s.Dir) // none if it cannot be read
	for _, name := range names {
		if s.IsDevice(name) && d.Address(s, name) == address {
			return name
		}
	}
	return strings.TrimPrefix(address, s.Name+":")
}

// Address returns the address of the device with a name in a subsystem; empty if it has none.
func (d Devices) Address(s accel.Subsystem, name string) string {
	dir, err := d.Target(s, name)
	if err != nil {
		return ""
	}
	return s.Address(dir, d.read)
}

// Target returns the directory below /sys/devices of the device with a name in a subsystem: sysfs has no links on the
// way there but this one.
func (d Devices) Target(s accel.Subsystem, name string) (string, error) {
	to, err := d.h.Readlink(path.Join(s.Dir, name))
	if err == nil && !path.IsAbs(to) {
		to = path.Join(s.Dir, to)
	}
	return to, err
}

// read returns the content of an attribute file, or nothing.
func (d Devices) read(file string) string {
	text, err := d.h.ReadAttribute(file)
	if err != nil {
		return ""
	}
	return strings.TrimRight(text, "\n")
}
