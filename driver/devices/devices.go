package devices

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// AnyFree reports whether some device is free for the driver. Loading it then helps, whoever has the other devices.
func (s *Devices) AnyFree(def *accel.Definition, accs []accel.Accelerator) bool {
	return slices.ContainsFunc(s.Observe(def, accs), func(v Device) bool {
		return v.Bound == "" && !def.Serves("") && (v.Kept == "" || v.Kept == def.Driver.Binds) && v.Barred == ""
	})
}

// AnyBound reports whether some device works with the driver, which must then not be unloaded.
func (s *Devices) AnyBound(def *accel.Definition, accs []accel.Accelerator) bool {
	return slices.ContainsFunc(s.Observe(def, accs),
		func(v Device) bool { return v.Works(def) })
}

// Works reports whether a device has its driver, what is below it too, and its nodes.
func (v Device) Works(def *accel.Definition) bool {
	return def.Serves(v.Bound) && v.Below == nil && v.Missing == ""
}

// Device is the current state of one accelerator and its driver.
type Device struct {
	ID    string
	Bound string // the driver
	Kept  string // the only PCI driver that may bind it, by driver_override
	Below *Child // what the driver has put below it, and nobody serves; nil if there is nothing of the sort
	Nodes []accel.DeviceNode
	// Barred says why the device must not be bound by driver_override, although it is free; empty if it may.
	Barred string
	// NoGroup is true for a device in no IOMMU group of a kind whose containers get the node of the group.
	NoGroup bool
	Missing string      // the path of a missing node, or the pattern that matches nothing; empty if all exist
	deleted []host.Node // nodes that the kernel has but /dev has not
}

// dir is the directory of a device.
func (s *Devices) dir(id string) string { return s.h.Devices().Dir(id) }

// Ordinary returns the accelerators without those that are given out with another driver than their kind's: what is
// done about the kind's driver does not concern them.
func (s *Devices) Ordinary(accs []accel.Accelerator) []accel.Accelerator {
	switched, err := s.h.Devices().Switched()
	if err != nil {
		s.log.Warn("a device may be given out otherwise", "error", err) // it is then one that another driver has
	}
	return slices.DeleteFunc(slices.Clone(accs), func(a accel.Accelerator) bool {
		_, is := switched[a.Address()]
		return is
	})
}

// Observe reads the driver and the nodes of the accelerators that are present: a load may have changed what the
// caller knows. It leaves out those that are given out with another driver.
func (s *Devices) Observe(def *accel.Definition, accs []accel.Accelerator) []Device {
	var out []Device
	drivers := s.driversBelow(def)
	for _, a := range s.Ordinary(accs) {
		place := s.h.Devices().Place(a.ID)
		if !a.Present() || !s.h.Exists(place.Dir) {
			continue
		}
		v := Device{ID: a.ID}
		if link, err := s.h.Readlink(place.Driver); err == nil {
			v.Bound = path.Base(link)
		}
		if o, err := s.h.ReadAttribute(path.Join(place.Dir, "driver_override")); err == nil && o != "(null)" {
			v.Kept = o
		}
		if v.Bound != "" || def.Serves("") {
			v.Below = s.unserved(a.ID, drivers)
		}
		if def.Driver.Override && v.Bound == "" {
			v.Barred = s.Barred(v.ID)
		}
		v.NoGroup = def.UsesGroup() && s.h.Devices().Group(v.ID) == ""
		s.findNodes(&v, def)
		out = append(out, v)
	}
	return out
}

// Problem says why the devices are not all served by def's driver; nil if they are. If the modules are live, an
// unbound device was refused by the driver.
func Problem(def *accel.Definition, devices []Device, live bool) *accel.Problem {
	for _, v := range devices {
		if v.Bound != "" && !def.Serves(v.Bound) {
			return accel.Problemf(accel.ConflictDriver, "device %q is bound to driver %q, not to %q", v.ID, v.Bound,
				def.Driver.Binds)
		}
		if v.Bound == "" && v.Kept != "" && v.Kept != def.Driver.Binds {
			return accel.Problemf(accel.ConflictDriver, "device %q is kept for driver %q by driver_override", v.ID,
				v.Kept)
		}
		if v.Barred != "" {
			return accel.Problemf(accel.ConflictDriver, "device %q is not bound to driver %q by driver_override: %s", v.ID,
				def.Driver.Binds, v.Barred)
		}
	}
	for _, v := range devices {
		if v.NoGroup {
			return accel.Problemf(accel.NoIOMMUGroup, "device %q is in no IOMMU group, and containers of kind %q are to get"+
				" the node of the group", v.ID, def.Kind)
		}
	}
	if !live {
		return nil
	}
	for _, v := range devices {
		if !def.Serves(v.Bound) {
			return accel.Problemf(accel.ProbeFailed, "driver %q is loaded and device %q is not bound to it",
				def.Driver.Binds, v.ID)
		}
	}
	for _, v := range devices {
		if v.Below != nil {
			return accel.Problemf(accel.ProbeFailed,
				"device %q is bound to %q, and no driver of the modules of %q is bound to %q on the %s bus below it", v.ID,
				v.Bound, def.Kind, v.Below.Name, v.Below.Bus)
		}
		if v.Missing != "" {
			return nodeMissing(fmt.Sprintf("device %q is bound to %q and its device node", v.ID, v.Bound), v.Missing)
		}
	}
	return nil
}

// Barred says why a device must not lose what it does without a driver, or with one that is not its kind's: it is a
// bridge, which leads to other devices, or shows the console. It is empty if nothing is known against it.
func (s *Devices) Barred(id string) string {
	switch {
	case s.Bridge(id):
		return "it is a bridge"
	case s.ShowsConsole(id):
		return "it shows the machine's console, which would be lost"
	}
	return ""
}

// Bridge reports whether a device is a bridge.
func (s *Devices) Bridge(id string) bool {
	class, err := s.h.ReadAttribute(path.Join(s.dir(id), "class"))
	return err == nil && strings.HasPrefix(class, "0x06") // PCI Code and ID Assignment Specification 1.16
}

// ShowsConsole reports whether the firmware started the display on the device, or whether it has a frame buffer.
func (s *Devices) ShowsConsole(id string) bool {
	boot, err := s.h.ReadAttribute(path.Join(s.dir(id), "boot_vga"))
	return err == nil && boot == "1" || len(s.h.Glob(s.dir(id), "graphics/fb*")) > 0
}
