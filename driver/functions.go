package driver

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/devices"
)

// Functions knows who has the virtual functions of a device. They vanish when their number changes, and with the driver
// of the device.
type Functions struct{ *Driver }

// NewFunctions returns what knows the virtual functions of a driver manager's host.
func NewFunctions(d *Driver) Functions { return Functions{d} }

// Of returns the addresses of the virtual functions that a device has now, in order.
func (f Functions) Of(device string) (all []string) {
	for _, link := range f.h.Glob(devices.Dir(device), "virtfn*") {
		if to, err := f.h.Readlink(link); err == nil {
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
		for _, h := range f.devices.Processes(f.devices.ForeignNodes(id)) {
			all = append(all, fmt.Sprintf("%s, which has virtual function %s", h, id))
		}
		if !servesHost(f.takeover.bound(id)) {
			continue
		}
		switch use, err := f.devices.HostUse(id); {
		case err != nil:
			all = append(all, fmt.Sprintf("somebody, perhaps: whether virtual function %s is in use is not known (%v)", id, err))
		case use != "":
			all = append(all, fmt.Sprintf("this host, of which virtual function %s is a part: %s", id, use))
		}
	}
	return all
}

// servesHost reports whether a driver can make a function a disk or a network interface of the host: there is one, and
// it is none that leaves the function to programs.
func servesHost(driver string) bool {
	return driver != "" && driver != "pci-stub" && !strings.Contains(driver, "vfio") && !strings.HasPrefix(driver, "uio")
}

// holders is Users for a driver that is to be unloaded.
func (f Functions) holders(accs []accel.Accelerator) (who []accel.Holder) {
	for _, a := range accs {
		for _, use := range f.Users(a.ID) {
			who = append(who, accel.Holder{Other: use})
		}
	}
	return who
}
