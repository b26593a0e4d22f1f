package host

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/acceld/acceld/guard"
)

// searchPath is where [Programs.LookPath] looks for programs, and their PATH.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Programs are the programs and the shared libraries of the machine.
type Programs struct {
	h    *Host
	arch string // of the processor, as `uname -m` says it; the machine's when empty
}

// Programs returns the machine's programs.
func (h *Host) Programs() Programs { return Programs{h: h} }

// For returns the programs and libraries for a processor, as `uname -m` says it: a directory that is laid out like a
// machine does not know its own.
func (p Programs) For(arch string) Programs { return Programs{h: p.h, arch: arch} }

// Command prepares a program of the machine. If the root is not "/", the program runs inside it, so that it sees the
// machine's own libraries and paths. The environment has a plain PATH and LC_ALL=C; the caller adds the rest.
func (p Programs) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := prepare(ctx, searchPath, name, args...)
	if p.h.root != "/" {
		cmd.SysProcAttr.Chroot = p.h.root
		cmd.Dir = "/"
	}
	return cmd
}

// Exec replaces this process by a program of the machine, which keeps its terminal, its environment and what env adds
// to it. It returns only if it cannot.
func (p Programs) Exec(name string, args, env []string) error {
	if p.h.root != "/" {
		if err := syscall.Chroot(p.h.root); err != nil {
			return fmt.Errorf("cannot enter %q: %w", p.h.root, err)
		}
		if err := os.Chdir("/"); err != nil {
			return fmt.Errorf("cannot enter %q: %w", p.h.root, err)
		}
	}
	err := syscall.Exec(name, append([]string{name}, args...), append(os.Environ(), env...))
	return &fs.PathError{Op: "exec", Path: name, Err: err}
}

// LookPath finds a program of the machine in the PATH of [Programs.Command].
func (p Programs) LookPath(name string) (string, error) {
	for _, dir := range filepath.SplitList(searchPath) {
		file := path.Join(dir, name)
		if st, err := p.h.Stat(file); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("cannot find program %q: %w", name, fs.ErrNotExist)
}

// Helper prepares a program from this process's own file system, not the machine's; argv[0] is usually the agent
// itself. Files become the descriptors 3, 4, … The program leads its own process group and dies with this process.
// Start it with [Start] if it must not die earlier.
func Helper(ctx context.Context, argv []string, files ...*os.File) *exec.Cmd {
	cmd := prepare(ctx, "/usr/sbin:/usr/bin:/sbin:/bin", argv[0], argv[1:]...)
	cmd.ExtraFiles = files
	return cmd
}

// prepare prepares a program with dirs as its PATH. When ctx ends, its whole process group is killed.
func prepare(ctx context.Context, dirs, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"PATH=" + dirs, "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// Start starts a program that [Programs.Command] or [Helper] prepared, on a thread that stays until the program has
// exited: the kernel sends Pdeathsig when the thread that started a program exits, not when the process does
// (prctl(2)). A thread exits with a goroutine that is locked to it, and any thread may get such a goroutine later.
// Ended receives what [exec.Cmd.Wait] returns.
func Start(cmd *exec.Cmd) (ended <-chan error, err error) {
	started, over := make(chan error), make(chan error, 1)
	guard.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread() // the thread may have started other programs
		err := cmd.Start()
		started <- err
		if err == nil {
			over <- cmd.Wait()
		}
	})
	return over, <-started
}
