package detect

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// maxDevices is how many devices of one subsystem are listed. A large server has some hundred on its platform bus.
const maxDevices = 4096

// others lists the devices of subsystems other than PCI, by address, and what could not be read. What cannot be read is
// as it was in the last list.
func others(h *host.Host, names []string, pci, last []accel.Device) (list []accel.Device, problems []string) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		s, known := accel.SubsystemNamed(name)
		if !known || s.Name == accel.PCI {
			continue
		}
		found, more := subsystemDevices(h, s, pci, last)
		list, problems = append(list, found...), append(problems, more...)
	}
	slices.SortStableFunc(list, func(a, b accel.Device) int { return strings.Compare(a.Address, b.Address) })
	for i := 1; i < len(list); i++ {
		if a, b := list[i-1], list[i]; a.Address == b.Address {
			problems = append(problems, fmt.Sprintf("%s %q is left out: it has the same address as %q, %s", b.Subsystem,
				b.Name, a.Name, b.Address))
			list = slices.Delete(list, i, i+1)
			i--
		}
	}
	return list, problems
}

// subsystemDevices lists the devices of one subsystem. A kernel without the subsystem has none.
func subsystemDevices(h *host.Host, s accel.Subsystem, pci, last []accel.Device) (
	list []accel.Device, problems []string,
) {
	names, err := h.Names(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return of(last, s), []string{fmt.Sprintf("cannot list %s devices: %v", s.Name, err)}
	}
	slices.SortFunc(names, accel.Natural)
	for _, name := range names {
		if !s.IsDevice(name) {
			continue
		}
		if len(list) == maxDevices {
			return list, append(problems, fmt.Sprintf("only the first %d entries of %s are looked at", maxDevices, s.Dir))
		}
		d, err := otherDevice(h, s, name)
		switch {
		case err == nil:
			place(h, &d, pci)
			list = append(list, d)
		case errors.Is(err, fs.ErrNotExist): // it has left meanwhile
		default:
			problems = append(problems, fmt.Sprintf("cannot read %s/%s: %v", s.Dir, clip(name), err))
			if i := slices.IndexFunc(last, func(l accel.Device) bool {
				return l.Subsystem == s.Name && l.Name == name
			}); i >= 0 && unread(err) {
				list = append(list, last[i])
			}
		}
	}
	return list, problems
}

// of returns the devices of one subsystem.
func of(list []accel.Device, s accel.Subsystem) []accel.Device {
	return slices.DeleteFunc(slices.Clone(list), func(d accel.Device) bool { return d.Subsystem != s.Name })
}

// otherDevice reads one device.
func otherDevice(h *host.Host, s accel.Subsystem, name string) (accel.Device, error) {
	link := path.Join(s.Dir, name)
	dir, err := h.Devices().Target(s, name)
	if err != nil {
		return accel.Device{}, err
	}
	uevent, err := h.ReadAttribute(path.Join(link, "uevent"))
	if err != nil {
		return accel.Device{}, err
	}
	address := h.Devices().Address(s, name)
	if address == "" {
		return accel.Device{}, errors.New("what it is on cannot be told")
	}
	above := ""
	if s.Class {
		above, err = h.ReadAttribute(path.Join(link, "device/uevent"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // one of software alone is on nothing
			return accel.Device{}, err
		}
	}
	d := s.Device(dir, address, uevent, above)
	d.Name = name
	return d, nil
}

// place fills in the NUMA node: that of the PCI function, or the device's own.
func place(h *host.Host, d *accel.Device, pci []accel.Device) {
	facts := accel.Facts{PCI: pci}
	if f := facts.Function(d.ParentPort); f.Address != "" {
		d.NUMANode = f.NUMANode
		return
	}
	s, _ := accel.SubsystemNamed(d.Subsystem)
	for _, file := range []string{"numa_node", "device/numa_node"} {
		text, err := h.ReadAttribute(path.Join(s.Dir, d.Name, file))
		if n, bad := strconv.ParseInt(text, 10, 16); err == nil && bad == nil {
			d.NUMANode = max(-1, int(n))
			return
		}
	}
}
