package host

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// AwaitExit returns when one of the processes has exited, or with ctx's error. A process that does not exist has
// exited. Without any process it waits for ctx.
func (p Processes) AwaitExit(ctx context.Context, pids []int) error {
	var fds []unix.PollFd
	defer func() {
		for _, f := range fds {
			_ = unix.Close(int(f.Fd)) // nothing is written to them
		}
	}()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot wait for process %d: %w", pid, os.NewSyscallError("pidfd_open", err))
		}
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("cannot wait for processes: %w", os.NewSyscallError("eventfd", err))
	}
	fds = append(fds, unix.PollFd{Fd: int32(wake), Events: unix.POLLIN})
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // a write to an eventfd always has eight bytes
		close(told)
	})
	defer func() {
		if !stop() {
			<-told // it must not write to a descriptor that was closed and reused
		}
	}()
	for {
		_, err := unix.Poll(fds, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot wait for processes: %w", os.NewSyscallError("poll", err))
		}
		for _, f := range fds[:len(fds)-1] {
			if f.Revents != 0 {
				return nil
			}
		}
		return ctx.Err()
	}
}
