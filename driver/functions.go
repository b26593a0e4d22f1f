package driver

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// functionForm is that of a PCI address.
var functionForm = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// Functions knows who has the virtual functions of a device. They vanish when their number changes, and with the driver
// of the device.
type Functions struct{ *Driver }

// NewFunctions returns what knows the virtual functions of a driver manager's host.
func NewFunctions(d *Driver) Functions { return Functions{d} }

// Of returns the addresses of the virtual functions that a device has now, in order.
func (f Functions) Of(device string) (all []string) {
	for _, link := range f.h.Glob(f.h.Devices().Dir(device), "virtfn*") {
		if to, err := f.h.Readlink(link); err == nil && functionForm.MatchString(path.Base(to)) {
			all = append(all, path.Base(to))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Users names who has a virtual function of a device, as far as the host shows it: processes, and the host itself as a
// disk or a network interface. A network interface that cannot be seen counts: it may be in a container.
func (f Functions) Users(device string) (all []string) {
	for _, id := range f.Of(device) {
		for _, h := range f.usersOf(id) {
			all = append(all, fmt.Sprintf("%s (virtual function %s)", h, id))
		}
	}
	return all
}

// usersOf returns who has one virtual function.
func (f Functions) usersOf(id string) []accel.Holder {
	who := f.devices.Processes(f.devices.ForeignNodes(id))
	if !servesHost(f.takeover.bound(id)) {
		return who
	}
	switch use, err := f.devices.HostUse(id); {
	case err != nil:
		who = append(who, accel.Holder{Other: fmt.Sprintf("somebody, perhaps: it is not known (%v)", err)})
	case use != "":
		who = append(who, accel.Holder{Other: "this host: " + use})
	}
	return who
}

// add adds who has virtual functions of the devices, who would lose them with the driver of the devices.
func (f Functions) add(who []accel.Holder, accs []accel.Accelerator) []accel.Holder {
	for _, a := range accs {
		for _, id := range f.Of(a.ID) {
			for _, h := range f.usersOf(id) {
				if !slices.Contains(who, h) { // a partition's node is among those of its device
					who = append(who, h)
				}
			}
		}
	}
	return who
}

// servesHost reports whether a driver can make a function a disk or a network interface of the host: there is one, and
// it is none that leaves the function to programs.
func servesHost(driver string) bool {
	return driver != "" && driver != "pci-stub" && !strings.Contains(driver, "vfio") && !strings.HasPrefix(driver, "uio")
}
