package host

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Peer connects to a unix socket of the machine and returns the PID of its listener, the process that called
// listen(2). For a socket that the service manager opened, that is 1. It is 0 if the process is outside this process's
// PID namespace. Nothing is sent.
func (h *Host) Peer(ctx context.Context, socket string) (int, error) {
	p, err := h.Path(socket)
	if err != nil {
		return 0, err
	}
	dialer := net.Dialer{Timeout: time.Second} // a listener with a full backlog does not answer
	conn, err := dialer.DialContext(ctx, "unix", p)
	if err != nil {
		return 0, fmt.Errorf("cannot connect to %q: %w", socket, err)
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("cannot ask who listens at %q: %w", socket, err)
	}
	var cred *unix.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) {
		cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		asked = err
	}
	if asked != nil {
		return 0, fmt.Errorf("cannot ask who listens at %q: %w", socket, asked)
	}
	return int(cred.Pid), nil
}

// Born returns when a file or directory was created, or the zero time if the file system does not record it.
func (h *Host) Born(name string) time.Time {
	f, err := h.openFile(name, unix.O_PATH)
	if err != nil {
		return time.Time{}
	}
	defer func() { _ = f.Close() }() // a path only
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st); err != nil ||
		st.Mask&unix.STATX_BTIME == 0 {
		return time.Time{}
	}
	return time.Unix(st.Btime.Sec, int64(st.Btime.Nsec))
}

// Identity returns the inode number of an entry itself, without following a link. In sysfs it changes when an entry is
// removed and created again, because kernfs counts the numbers up.
func (h *Host) Identity(name string) (uint64, error) {
	p, err := h.parent(name)
	if err != nil {
		return 0, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return 0, &os.PathError{Op: "lstat", Path: name, Err: err}
	}
	return st.Ino, nil
}
