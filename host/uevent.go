package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// UeventOverflow is the action of the event that stands for events that were lost: the reader looks at everything.
const UeventOverflow = "overflow"

// ueventBuffer is the socket's receive buffer: a storm of some ten thousand events, such as a hotplug of a whole
// chassis.
const ueventBuffer = 16 << 20

// ueventGroup is the multicast group of what the kernel itself sends; udev sends what it has seen to the second one.
const ueventGroup = 1

// Uevent is one event of the kernel's driver core (Documentation/ABI/testing/sysfs-uevent, lib/kobject_uevent.c).
type Uevent struct {
	// Action is "add", "remove", "change", "move", "online", "offline", "bind" or "unbind" of the kernel, or
	// [UeventOverflow].
	Action string
	// DevPath is the device's directory without "/sys", such as "/devices/pci0000:00/0000:00:04.0".
	DevPath string
	// Subsystem is a bus or class, such as "pci" or "module".
	Subsystem string
	// Vars are all variables of the event, the above included.
	Vars map[string]string
}

// Uevents delivers the kernel's events until ctx ends; then the channel is closed. Only events that the kernel itself
// sent are delivered. When the reader is slow the kernel keeps 16 MiB; when that overflows an event with the action
// [UeventOverflow] takes the place of those lost. It fails for a host that is not the running machine.
func (h *Host) Uevents(ctx context.Context) (<-chan Uevent, error) {
	if !h.Live() {
		return nil, fmt.Errorf("cannot listen for kernel events: %q is not the root of the running machine", h.root)
	}
	f, err := h.ueventSocket()
	if err != nil {
		return nil, fmt.Errorf("cannot listen for kernel events: %w", err)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("cannot listen for kernel events: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = f.Close() })
	out := make(chan Uevent, 64)
	go readUevents(ctx, out, func(buf []byte) (n int, from unix.Sockaddr, err error) {
		outer := raw.Read(func(fd uintptr) bool {
			n, from, err = unix.Recvfrom(int(fd), buf, 0)
			return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
		})
		if outer != nil {
			err = outer
		}
		return n, from, err
	})
	return out, nil
}

// ueventSocket returns a socket that the kernel sends its events to, in the network namespace of the host's process
// 1: the kernel tells events of network interfaces only in the namespace that they are in. Where that one cannot be
// entered, it is this process's own, which gets all other events.
//
// The library gives the socket: bound to the kernel's group, closed on exec, non-blocking, with its buffer set. It
// does not receive here, because its Receive wants the header of netlink before each message and drops what has none,
// as uevents do (lib/kobject_uevent.c); so its descriptor is duplicated into a file that Go's poller waits for.
func (h *Host) ueventSocket() (*os.File, error) {
	var socket *nl.NetlinkSocket
	subscribe := func() (err error) {
		socket, err = nl.Subscribe(unix.NETLINK_KOBJECT_UEVENT, ueventGroup)
		return os.NewSyscallError("netlink", err)
	}
	if h.inNetwork(subscribe) != nil {
		if err := subscribe(); err != nil {
			return nil, err
		}
	}
	defer socket.Close()
	if socket.SetReceiveBufferSize(ueventBuffer, true) != nil {
		// Without CAP_NET_ADMIN the kernel cuts the size to net.core.rmem_max; smaller is no failure.
		_ = socket.SetReceiveBufferSize(ueventBuffer, false)
	}
	fd, err := unix.FcntlInt(uintptr(socket.GetFd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), "uevent"), nil
}

// readUevents reads until receive fails for good (the socket was closed) or ctx ends.
func readUevents(ctx context.Context, out chan<- Uevent, receive func([]byte) (int, unix.Sockaddr, error)) {
	defer close(out)
	buf := make([]byte, 16<<10) // an event has at most 2 KiB of variables (UEVENT_BUFFER_SIZE) and its path
	for {
		n, from, err := receive(buf)
		e, ok := Uevent{Action: UeventOverflow}, true
		if err == nil {
			e, ok = parseUevent(buf[:n])
			nl, kernel := from.(*unix.SockaddrNetlink)
			ok = ok && kernel && nl.Pid == 0 // else a process pretends to be the kernel
		} else if !errors.Is(err, unix.ENOBUFS) {
			return
		}
		if ok && !send(ctx, out, e) {
			return
		}
	}
}

// send delivers v unless ctx ends first.
func send[T any](ctx context.Context, out chan<- T, v T) bool {
	select {
	case out <- v:
		return true
	case <-ctx.Done():
		return false
	}
}

// parseUevent parses "action@devpath" and "NAME=value" strings, each ended by a NUL.
func parseUevent(b []byte) (Uevent, bool) {
	head, rest, _ := bytes.Cut(b, []byte{0})
	action, devpath, ok := strings.Cut(string(head), "@")
	if !ok || action == "" || !strings.HasPrefix(devpath, "/") {
		return Uevent{}, false // such as udev's own "libudev" messages
	}
	e := Uevent{Action: action, DevPath: devpath, Vars: map[string]string{}}
	for v := range bytes.SplitSeq(rest, []byte{0}) {
		if name, value, ok := strings.Cut(string(v), "="); ok && name != "" {
			e.Vars[name] = value
		}
	}
	e.Subsystem = e.Vars["SUBSYSTEM"]
	return e, true
}
