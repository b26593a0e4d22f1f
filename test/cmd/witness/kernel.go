package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The multicast groups of uevents: the kernel's own, and those that udev sends on when its rules have run.
const groupKernel, groupUdev = 1, 2

// uevents tells what the kernel and udev say of devices on PCI and of accelerators.
func (s *sheet) uevents() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return fmt.Errorf("cannot listen to the kernel: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{
		Family: unix.AF_NETLINK,
		Groups: groupKernel | groupUdev,
	}); err != nil {
		return fmt.Errorf("cannot listen to the kernel: %w", err)
	}
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot read from the kernel: %w", err)
		}
		if who, what := describe(buf[:n]); what != "" {
			s.note(who, what)
		}
	}
}

// describe says whose message it is and what it tells: nothing of devices that are neither on PCI nor accelerators.
func describe(b []byte) (who, what string) {
	who = "kernel"
	if rest, ok := bytes.CutPrefix(b, []byte("libudev\x00")); ok {
		// struct monitor_netlink_header of systemd's device-monitor.c: magic, size of the header, where the properties
		// are.
		if len(rest) < 12 {
			return who, ""
		}
		at := int(binary.NativeEndian.Uint32(rest[8:]))
		if at > len(b) {
			return who, ""
		}
		who, b = "udev", b[at:]
	}
	vars := map[string]string{}
	for v := range bytes.SplitSeq(b, []byte{0}) {
		if name, value, ok := strings.Cut(string(v), "="); ok {
			vars[name] = value
		}
	}
	if sub := vars["SUBSYSTEM"]; sub == "pci" || strings.HasPrefix(sub, "accelerator") {
		return who, fmt.Sprintf("%s %s %s", vars["ACTION"], sub, vars["DEVPATH"])
	}
	return who, ""
}

// files tells which entries of directories were made, written, moved or removed.
func (s *sheet) files(dirs []string) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("cannot watch directories: %w", err)
	}
	names := map[int32]string{}
	for _, dir := range dirs {
		w, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO|unix.IN_DELETE)
		if err != nil {
			return fmt.Errorf("cannot watch %q: %w", dir, err)
		}
		names[int32(w)] = dir
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot watch directories: %w", err)
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			watch, mask, size := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:]),
				int(binary.NativeEndian.Uint32(b[12:]))
			name := filepath.Join(names[watch],
				string(bytes.TrimRight(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size], "\x00")))
			if mask&unix.IN_DELETE != 0 {
				name = "-" + name
			}
			s.note("file", name)
			b = b[unix.SizeofInotifyEvent+size:]
		}
	}
}
