package devices

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

const (
	blockClass = "/sys/class/block"
	netClass   = "/sys/class/net"
	swaps      = "/proc/swaps"
)

// HostUse says what the host itself uses a device for; empty if it does not. The device's disks and network interfaces
// vanish with its driver. An error means that the use is not known.
func (s *Devices) HostUse(id string) (string, error) {
	use, err := s.diskUse(id)
	if use != "" || err != nil {
		return use, err
	}
	return s.networkUse(id)
}

// below returns the names in a directory of /sys/class that are devices below a PCI function.
func (s *Devices) below(class, id string) ([]string, error) {
	function, err := s.h.Follow(s.dir(id))
	if err != nil {
		return nil, err
	}
	names, err := s.h.Names(class)
	if errors.Is(err, fs.ErrNotExist) { // a kernel without such devices
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range names {
		to, err := s.h.Follow(path.Join(class, name))
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(to, function+"/") {
			out = append(out, name)
		}
	}
	return out, nil
}

// disks returns the nodes of the disks and the partitions of disks below a PCI function.
func (s *Devices) disks(id string) (out []accel.DeviceNode, err error) {
	names, err := s.below(blockClass, id)
	for _, name := range names {
		// One path of several to a disk that is elsewhere in sysfs (NVMe multipath).
		if hidden, err := s.h.ReadAttribute(path.Join(blockClass, name, "hidden")); err == nil && hidden == "1" {
			return nil, fmt.Errorf("%q is a path to a disk that has others", name)
		}
		n, err := s.h.Devices().Disk(name)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, err
}

// diskUse says what uses the disks below a PCI function.
func (s *Devices) diskUse(id string) (string, error) {
	disks, err := s.disks(id)
	if err != nil || len(disks) == 0 {
		return "", err
	}
	for _, look := range []func([]accel.DeviceNode) (string, error){
		s.mounted, s.swap, s.stacked, s.backing, s.claimed,
	} {
		if use, err := look(disks); use != "" || err != nil {
			return use, err
		}
	}
	return "", nil
}

// at returns the disk whose node a path leads to.
func (s *Devices) at(file string, disks []accel.DeviceNode) (accel.DeviceNode, bool) {
	to, err := s.h.Follow(file)
	i := slices.IndexFunc(disks, func(n accel.DeviceNode) bool {
		return n.Path == file || err == nil && n.Path == to
	})
	if i < 0 {
		return accel.DeviceNode{}, false
	}
	return disks[i], true
}

func (s *Devices) mounted(disks []accel.DeviceNode) (string, error) {
	all, err := s.h.Processes().Mounts()
	if err != nil {
		return "", err
	}
	for _, m := range all {
		on := func(n accel.DeviceNode) bool { return n.Major == m.Major && n.Minor == m.Minor }
		if i := slices.IndexFunc(disks, on); i >= 0 {
			return fmt.Sprintf("%q is mounted at %q", disks[i].Path, m.Target), nil
		}
		// a file system on several devices has a number of its own, and names one of them
		if n, ours := s.at(m.Source, disks); ours && strings.HasPrefix(m.Source, "/dev/") {
			return fmt.Sprintf("%q is mounted at %q", n.Path, m.Target), nil
		}
	}
	return "", nil
}

func (s *Devices) swap(disks []accel.DeviceNode) (string, error) {
	text, err := s.h.ReadAttribute(swaps)
	if errors.Is(err, fs.ErrNotExist) { // a kernel without swap
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for line := range strings.SplitSeq(text, "\n") {
		file, _, _ := strings.Cut(line, " ")
		if n, ours := s.at(host.Unescape(strings.TrimSpace(file)), disks); ours {
			return fmt.Sprintf("%q is swap", n.Path), nil
		}
	}
	return "", nil
}

// stacked finds what device mapper, RAID and the like have made of the disks.
func (s *Devices) stacked(disks []accel.DeviceNode) (string, error) {
	for _, n := range disks {
		name := strings.ReplaceAll(strings.TrimPrefix(n.Path, "/dev/"), "/", "!") // as sysfs has it
		holders, err := s.h.Names(path.Join(blockClass, name, "holders"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if len(holders) > 0 {
			return fmt.Sprintf("%q is part of %q", n.Path, holders[0]), nil
		}
	}
	return "", nil
}

// backing finds loop devices and compressed memory with one of the disks behind them, for which the kernel notes no
// holder.
func (s *Devices) backing(disks []accel.DeviceNode) (string, error) {
	files := append(s.h.Glob(blockClass, "loop*/loop/backing_file"), s.h.Glob(blockClass, "zram*/backing_dev")...)
	for _, file := range files {
		behind, err := s.h.ReadAttribute(file)
		if errors.Is(err, fs.ErrNotExist) { // it has ended meanwhile
			continue
		}
		if err != nil {
			return "", err
		}
		if n, ours := s.at(behind, disks); ours {
			name, _, _ := strings.Cut(strings.TrimPrefix(file, blockClass+"/"), "/")
			return fmt.Sprintf("%q is behind %q", n.Path, name), nil
		}
	}
	return "", nil
}

func (s *Devices) claimed(disks []accel.DeviceNode) (string, error) {
	for _, n := range disks {
		claimed, err := s.h.Devices().Claimed(n)
		if err != nil {
			return "", err
		}
		if claimed {
			return fmt.Sprintf("%q is claimed by somebody who cannot be seen from here", n.Path), nil
		}
	}
	return "", nil
}

// networkUse says what uses the network interfaces of a PCI function.
func (s *Devices) networkUse(id string) (string, error) {
	names, err := s.below(netClass, id)
	if err != nil {
		return "", err
	}
	class, err := s.h.ReadAttribute(path.Join(s.dir(id), "class"))
	if err == nil && len(names) == 0 && strings.HasPrefix(class, "0x02") {
		return "", errors.New("its network interface is not to be seen: it may be in the network namespace of a container")
	}
	for _, name := range names {
		if use, err := s.interfaceUse(name); use != "" || err != nil {
			return use, err
		}
	}
	return "", nil
}

func (s *Devices) interfaceUse(name string) (string, error) {
	dir := path.Join(netClass, name)
	text, err := s.h.ReadAttribute(path.Join(dir, "flags"))
	if err != nil {
		return "", err
	}
	flags, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 32)
	if err != nil {
		return "", fmt.Errorf("the flags of network interface %q are %q: %w", name, text, err)
	}
	const up = 1 // IFF_UP, include/uapi/linux/if.h
	if flags&up != 0 {
		return fmt.Sprintf("network interface %q is up", name), nil
	}
	// A bond or a bridge is the master; a VLAN, too, is above.
	if above := append(s.h.Glob(dir, "master"), s.h.Glob(dir, "upper_*")...); len(above) > 0 {
		to, err := s.h.Readlink(above[0])
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("network interface %q is part of %q", name, path.Base(to)), nil
	}
	addresses, err := s.h.Kernel().Addresses(name)
	if err != nil {
		return "", err
	}
	if len(addresses) > 0 {
		return fmt.Sprintf("network interface %q has the address %s", name, addresses[0]), nil
	}
	return "", nil
}
