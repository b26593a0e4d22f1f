package host

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Pass sends a message and a copy of c's descriptor (SCM_RIGHTS in unix(7)) to the listener on a unix datagram socket.
// The socket is a path or, with a leading "@", an abstract name. Pass blocks while the listener's queue is full.
func Pass(socket, message string, c syscall.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("cannot pass a connection to %q: %w", socket, err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot pass a connection to %q: no socket: %w", socket, err)
	}
	defer unix.Close(fd)
	var sent error
	err = raw.Control(func(passed uintptr) {
		sent = unix.Sendmsg(fd, []byte(message), unix.UnixRights(int(passed)), &unix.SockaddrUnix{Name: socket}, 0)
	})
	if err = errors.Join(err, sent); err != nil {
		return fmt.Errorf("cannot pass a connection to %q: %w", socket, err)
	}
	return nil
}
