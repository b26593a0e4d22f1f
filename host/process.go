package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Helper prepares a program from this process's own file system, not the machine's; argv[0] is usually the agent
// itself. Files become the descriptors 3, 4, … The program leads its own process group and dies with this process.
// Start it with [Start] if it must not die earlier.
func (h *Host) Helper(ctx context.Context, argv []string, files ...*os.File) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.ExtraFiles = files
	return cmd
}

// Start starts a program that [Host.Command] or [Host.Helper] prepared, on a thread that stays until the program has
// exited: the kernel sends Pdeathsig when the thread that started a program exits, not when the process does
// (prctl(2)). A thread exits with a goroutine that is locked to it, and any thread may get such a goroutine later.
// Ended receives what [exec.Cmd.Wait] returns.
func Start(cmd *exec.Cmd) (ended <-chan error, err error) {
	started, over := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread() // the thread may have started other programs
		err := cmd.Start()
		started <- err
		if err == nil {
			over <- cmd.Wait()
		}
	}()
	return over, <-started
}

// Lock takes the exclusive lock (flock(2)) on the file name, which it creates if missing, and writes text into it for
// people. It waits until ctx ends. The lock ends when its holder calls release or dies.
func (h *Host) Lock(ctx context.Context, name, text string) (release func(), err error) {
	f, err := h.openLock(name)
	if err != nil {
		return nil, err
	}
	got := make(chan error, 1)
	go func() { got <- flock(f, unix.LOCK_EX) }()
	select {
	case err = <-got:
	case <-ctx.Done():
		go func() { // flock cannot be cancelled: release a lock that comes late
			if err := <-got; err == nil {
				_ = flock(f, unix.LOCK_UN) // closing does it too
			}
			_ = f.Close()
		}()
		return nil, fmt.Errorf("cannot lock %q: %w", name, ctx.Err())
	}
	return h.locked(f, name, text, err)
}

// TryLock is [Host.Lock] without waiting: if another process holds the lock, the error's chain has EWOULDBLOCK.
func (h *Host) TryLock(name, text string) (release func(), err error) {
	f, err := h.openLock(name)
	if err != nil {
		return nil, err
	}
	return h.locked(f, name, text, flock(f, unix.LOCK_EX|unix.LOCK_NB))
}

// Locked reports whether the lock on the file name is held. It is false also if that cannot be determined.
func (h *Host) Locked(name string) bool {
	f, err := h.openFile(name, unix.O_RDONLY)
	if err != nil {
		return false
	}
	defer closeQuietly(f) // also releases the lock, if it was free
	return errors.Is(flock(f, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

func (h *Host) openLock(name string) (*os.File, error) {
	p, err := h.parent(name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(p, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	return f, relabel(err, name)
}

func (h *Host) locked(f *os.File, name, text string, err error) (func(), error) {
	if err != nil {
		_ = f.Close() // the earlier error is the one that matters
		return nil, fmt.Errorf("cannot lock %q: %w", name, err)
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteString(text) // the text is a courtesy; the lock is what counts
	}
	return func() { _ = f.Close() }, nil
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// MakeTemp creates a directory with a unique name and mode 0700 in the directory dir and returns its path.
func (h *Host) MakeTemp(dir, prefix string) (string, error) {
	p, err := h.Path(dir)
	if err != nil {
		return "", err
	}
	made, err := os.MkdirTemp(p, prefix)
	if err != nil {
		return "", relabel(err, dir)
	}
	return path.Join(dir, filepath.Base(made)), nil
}

// Create creates the file name for reading and writing. It fails if name exists.
func (h *Host) Create(name string, mode fs.FileMode) (*os.File, error) {
	p, err := h.parent(name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(p, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	return f, relabel(err, name)
}

// MakeNode creates the character device name with the given numbers and mode, regardless of the umask. It fails if
// name exists.
func (h *Host) MakeNode(name string, major, minor uint32, mode fs.FileMode) error {
	p, err := h.parent(name)
	if err != nil {
		return err
	}
	if err := unix.Mknod(p, unix.S_IFCHR|uint32(mode.Perm()), int(unix.Mkdev(major, minor))); err != nil {
		return &fs.PathError{Op: "mknod", Path: name, Err: err}
	}
	return relabel(os.Chmod(p, mode.Perm()), name)
}

// Symlink creates the symbolic link name with the target text.
func (h *Host) Symlink(text, name string) error {
	p, err := h.parent(name)
	if err != nil {
		return err
	}
	return relabel(os.Symlink(text, p), name)
}

// StartedAfterBoot returns the time between the boot and the start of a process, including time asleep. The process is
// "self" or a PID. Linux reports the start in ticks, 100 a second on every architecture (proc_pid_stat(5), field 22;
// USER_HZ).
func (h *Host) StartedAfterBoot(process string) (time.Duration, error) {
	name := path.Join("/proc", process, "stat")
	stat, err := h.ReadAttribute(name)
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:]) // the name, field 2, may have anything in it
	const startTime = 22 - 3                                        // fields begins with field 3
	if len(fields) <= startTime {
		return 0, &fs.PathError{Op: "parse", Path: name, Err: fs.ErrInvalid}
	}
	ticks, err := strconv.ParseInt(fields[startTime], 10, 64)
	if err != nil {
		return 0, &fs.PathError{Op: "parse", Path: name, Err: err}
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}
