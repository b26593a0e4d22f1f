package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Processes are the processes of the machine: which there are, since when, what they hold.
type Processes struct{ h *Host }

// Processes returns the machine's processes.
func (h *Host) Processes() Processes { return Processes{h} }

// Peer connects to a unix socket of the machine and returns the PID of its listener, the process that called
// listen(2). For a socket that the service manager opened, that is 1. It is 0 if the process is outside this process's
// PID namespace. Nothing is sent.
func (p Processes) Peer(ctx context.Context, socket string) (int, error) {
	name, err := p.h.Path(socket)
	if err != nil {
		return 0, err
	}
	dialer := net.Dialer{Timeout: time.Second} // a listener with a full backlog does not answer
	conn, err := dialer.DialContext(ctx, "unix", name)
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
	err = raw.Control(func(fd uintptr) {
		cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, asked); err != nil {
		return 0, fmt.Errorf("cannot ask who listens at %q: %w", socket, err)
	}
	return int(cred.Pid), nil
}

// SeesMachine reports whether a process has the mount namespace and the root directory of process 1. No process in a
// container has both, unless it may do anything on the machine. A copy of a machine has no namespaces: all processes in
// it are the machine's own.
func (p Processes) SeesMachine(pid int) (bool, error) {
	for _, what := range []string{"ns/mnt", "root"} {
		first, err := p.at(1, what)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		its, err2 := p.at(pid, what)
		if err := errors.Join(err, err2); err != nil {
			return false, err
		}
		if !os.SameFile(first, its) {
			return false, nil
		}
	}
	return true, nil
}

// at describes what a link of the kernel in the directory of a process leads to. It is no path, so it is not resolved.
func (p Processes) at(pid int, link string) (fs.FileInfo, error) {
	name := path.Join("/proc", strconv.Itoa(pid), link)
	real, err := p.h.parent(name)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(real)
	return info, Relabel(err, name)
}

// StartedAfterBoot returns the time between the boot and the start of a process, including time asleep. The process is
// "self" or a PID. Linux reports the start in ticks, 100 a second on every architecture (proc_pid_stat(5), field 22;
// USER_HZ).
func (p Processes) StartedAfterBoot(process string) (time.Duration, error) {
	name := path.Join("/proc", process, "stat")
	fields, err := p.stat(process)
	if err != nil {
		return 0, err
	}
	const startTime = 22 - 3 // fields begins with field 3
	if len(fields) <= startTime {
		return 0, &fs.PathError{Op: "parse", Path: name, Err: fs.ErrInvalid}
	}
	ticks, err := strconv.ParseInt(fields[startTime], 10, 64)
	if err != nil {
		return 0, &fs.PathError{Op: "parse", Path: name, Err: err}
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// stat returns the fields of /proc/<process>/stat from field 3 on. The process's name, field 2, may have anything in
// it.
func (p Processes) stat(process string) ([]string, error) {
	stat, err := p.h.ReadAttribute(path.Join("/proc", process, "stat"))
	return strings.Fields(stat[strings.LastIndex(stat, ")")+1:]), err
}
