package devices

import (
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
)

// Child is what a driver has put below its device: virtio0 below virtio-pci, or an interface of a USB device.
type Child struct{ Bus, Name string }

// ProbeFile is what asks the kernel to find a driver for a device on the bus.
func (c Child) ProbeFile() string { return path.Join("/sys/bus", c.Bus, "drivers_probe") }

// driversBelow returns the drivers that the kind's modules have for buses other than PCI, by bus. In /sys/module, each
// driver of a module has a link "bus:driver" (module_add_driver in drivers/base/module.c).
func (s *Devices) driversBelow(def *accel.Definition) map[string][]string {
	var out map[string][]string
	for _, m := range def.Driver.Modules {
		if m.Optional {
			continue
		}
		for _, link := range s.h.Glob(path.Join("/sys/module", kmod.Normal(m.Name), "drivers"), "*:*") {
			bus, driver, _ := strings.Cut(path.Base(link), ":")
			if bus == "pci" {
				continue
			}
			if out == nil {
				out = map[string][]string{}
			}
			out[bus] = append(out[bus], driver)
		}
	}
	return out
}

// unserved returns a device below a function on a bus for which the kind has drivers, if none of the devices there is
// bound to one of them: the function's own driver is bound, and the one that matters has refused.
func (s *Devices) unserved(id string, drivers map[string][]string) *Child {
	if len(drivers) == 0 {
		return nil
	}
	var first *Child
	served := map[string]bool{}
	for _, link := range s.h.Glob(s.dir(id), "*/subsystem") {
		to, err := s.h.Readlink(link)
		if err != nil || path.Base(path.Dir(to)) != "bus" {
			continue // a class, or gone meanwhile
		}
		bus, dir := path.Base(to), path.Dir(link)
		if drivers[bus] == nil {
			continue
		}
		driver, err := s.h.Readlink(path.Join(dir, "driver"))
		if err == nil && slices.Contains(drivers[bus], path.Base(driver)) {
			served[bus] = true
		}
		if first == nil || served[first.Bus] {
			first = &Child{bus, path.Base(dir)}
		}
	}
	if first == nil || served[first.Bus] {
		return nil
	}
	return first
}
