package host

import (
	"errors"
	"path"
	"slices"
	"strings"
)

// errOutside says why an attribute is not read for a confined definition.
var errOutside = errors.New("outside of the device's directory")

// Has reports whether a file or directory belongs to the function at address, or to one of its virtual functions:
// below their directories in sysfs, or below a directory of /proc/driver with their address. To definitions that are
// not confined, everything does. Links count by where they lead.
func (d Devices) Has(name, address string) bool {
	if !d.confined {
		return true
	}
	real, err := d.h.Follow(name)
	if err != nil {
		return false
	}
	if rest, ok := strings.CutPrefix(real, "/proc/driver/"); ok {
		return slices.Contains(strings.Split(path.Dir(rest), "/"), address)
	}
	below := func(link string) bool {
		dir, err := d.h.Follow(link)
		return err == nil && strings.HasPrefix(dir, "/sys/") && strings.HasPrefix(real+"/", dir+"/")
	}
	function := d.Dir(address)
	return below(function) || slices.ContainsFunc(d.h.Glob(function, "virtfn*"), below)
}

// gives reports whether the node of a directory in sysfs may be given to containers: to a confined definition, only one
// of the device, and none that leads around the device's driver to its disks or to the machine's memory.
func (d Devices) gives(dir, address string) bool {
	raw := []string{"", "block", "bsg", "mtd", "nvme", "nvme-generic", "scsi_generic", "uio"}
	return !d.confined || d.Has(dir, address) && !slices.Contains(raw, d.subsystem(dir))
}

// subsystem returns the class or bus of a device's directory in sysfs; empty if that is unknown.
func (d Devices) subsystem(dir string) string {
	to, err := d.h.Readlink(path.Join(dir, "subsystem"))
	if err != nil {
		return ""
	}
	return path.Base(to)
}
