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

	"github.com/acceld/acceld/guard"
)

// UeventOverflow is the action of the event that stands for lost events: the reader must look at everything again.
const UeventOverflow = "overflow"

// ueventBuffer is the size of the socket's receive buffer in bytes. It holds a storm of some ten thousand events, such
// as the hotplug of a whole chassis.
const ueventBuffer = 16 << 20

// ueventGroup is the multicast group for the kernel's own events. In the second group, udev forwards the events that
// it has processed.
const ueventGroup = 1

// Uevent is one event of the kernel's driver core (Documentation/ABI/testing/sysfs-uevent, lib/kobject_uevent.c).
type Uevent struct {
	// Action is one of the kernel's "add", "remove", "change", "move", "online", "offline", "bind" and "unbind", or
	// [UeventOverflow].
	Action string
	// DevPath is the device's directory without "/sys", such as "/devices/pci0000:00/0000:00:04.0".
	DevPath string
	// Subsystem is a bus or class, such as "pci" or "module".
	Subsystem string
	// Vars holds all variables of the event, including those above.
	Vars map[string]string
}

// Uevents delivers the kernel's events until ctx ends, then closes the channel. Only events that the kernel itself
// sent are delivered. For a slow reader the kernel buffers 16 MiB; if that overflows, one event with the action
// [UeventOverflow] stands for the lost ones. Uevents fails if the host is not the running machine.
func (k Kernel) Uevents(ctx context.Context) (<-chan Uevent, error) {
	if !k.h.Live() {
		return nil, fmt.Errorf("cannot listen for kernel events: %q is not the root of the running machine", k.h.root)
	}
	f, err := k.ueventSocket()
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
	read := func(buf []byte) (n int, from unix.Sockaddr, err error) {
		outer := raw.Read(func(fd uintptr) bool {
			n, from, err = unix.Recvfrom(int(fd), buf, 0)
			return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
		})
		if outer != nil {
			err = outer
		}
		return n, from, err
	}
	guard.Go(func() {
		defer close(out)
		guard.Keep(ctx, "kernel events: reader", func(ctx context.Context) error { readUevents(ctx, out, read); return nil })
	})
	return out, nil
}

// ueventSocket returns a socket that receives the kernel's events in the network namespace of the host's process 1,
// because the kernel reports an event of a network interface only in that interface's namespace. If that namespace
// cannot be entered, the socket is in this process's own namespace and gets all other events.
//
// The library creates the socket: bound to the kernel's group, closed on exec, non-blocking, with its buffer size set.
// The library's Receive is not used, because it expects a netlink header before each message and drops messages
// without one, such as uevents (lib/kobject_uevent.c). Instead, the descriptor is duplicated into a file that Go's
// poller waits on.
func (k Kernel) ueventSocket() (*os.File, error) {
	var socket *nl.NetlinkSocket
	subscribe := func() (err error) {
		socket, err = nl.Subscribe(unix.NETLINK_KOBJECT_UEVENT, ueventGroup)
		return os.NewSyscallError("netlink", err)
	}
	if k.inNetwork(subscribe) != nil {
		if err := subscribe(); err != nil {
			return nil, err
		}
	}
	defer socket.Close()
	if socket.SetReceiveBufferSize(ueventBuffer, true) != nil {
		// Without CAP_NET_ADMIN the kernel limits the size to net.core.rmem_max. A smaller buffer is no failure.
		_ = socket.SetReceiveBufferSize(ueventBuffer, false)
	}
	fd, err := unix.FcntlInt(uintptr(socket.GetFd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), "uevent"), nil
}

// readUevents reads until receive fails permanently (the socket was closed) or ctx ends.
func readUevents(ctx context.Context, out chan<- Uevent, receive func([]byte) (int, unix.Sockaddr, error)) {
	buf := make([]byte, 16<<10) // an event is at most 2 KiB of variables (UEVENT_BUFFER_SIZE) plus its path
	for {
		n, from, err := receive(buf)
		e, ok := Uevent{Action: UeventOverflow}, true
		if err == nil {
			e, ok = parseUevent(buf[:n])
			nl, kernel := from.(*unix.SockaddrNetlink)
			ok = ok && kernel && nl.Pid == 0 // otherwise a process impersonates the kernel
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
