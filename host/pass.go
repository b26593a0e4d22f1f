package host

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Pass sends a message to who listens on a unix datagram socket, by its path or, with a leading "@", its abstract name,
// and a copy of c's descriptor with it (SCM_RIGHTS in unix(7)). It waits while the listener has a full queue.
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
