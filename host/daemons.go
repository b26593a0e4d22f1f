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

	"github.com/acceld/acceld/guard"
)

// DaemonsDir has two files for each service of a host without systemd: one with its settings, and one with its
// output, which ends in ".log".
const DaemonsDir = "/run/acceld/daemons"

// Daemons are services on a host without systemd. Each has a control group of its own below
// /sys/fs/cgroup/system.slice, where systemd would put it, so it outlives the agent and the agent's container.
// Nothing restarts a service that ends.
type Daemons struct{ h *Host }

// NewDaemons returns the services of a host without systemd.
func NewDaemons(h *Host) Daemons { return Daemons{h} }

// stopTime is how long a service may take to end, first by itself and then when it is killed.
const stopTime = 10 * time.Second

// group is the control group of a service.
func (d Daemons) group(name string) string { return path.Join("/sys/fs/cgroup/system.slice", name) }

// Start starts a service that does not run. It returns when the program runs and, if it forks, is in the background.
func (d Daemons) Start(ctx context.Context, s Service) error {
	group := d.group(s.Name)
	if !d.h.Exists("/sys/fs/cgroup/cgroup.procs") {
		return errors.New("without systemd, a service needs control groups of version 2 in /sys/fs/cgroup")
	}
	if err := errors.Join(d.h.MkdirAll(group, 0o755), d.h.MkdirAll(DaemonsDir, 0o755)); err != nil {
		return err
	}
	if s.RuntimeDirectory != "" {
		if err := d.h.MkdirAll(path.Join("/run", s.RuntimeDirectory), 0o755); err != nil {
			return err
		}
	}
	record := strings.Join(append([]string{s.RuntimeDirectory}, append(s.Argv, s.Env...)...), "\n") + "\n"
	if err := d.h.WriteFile(path.Join(DaemonsDir, s.Name), []byte(record), 0o600); err != nil {
		return err
	}
	err := d.run(ctx, s, group)
	if err != nil {
		err = errors.Join(err, d.end(context.WithoutCancel(ctx), s.Name)) // its output stays: it may say why
	}
	return err
}

// run starts the program of a service in its control group.
func (d Daemons) run(ctx context.Context, s Service, group string) error {
	files, err := d.open(path.Join(DaemonsDir, s.Name+".log"), group)
	if err != nil {
		return err
	}
	defer files.close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.Argv[0], s.Argv[1:]...) // it outlives this process
	cmd.Env = append([]string{"PATH=" + searchPath, "LC_ALL=C"}, s.Env...)
	if s.RuntimeDirectory != "" { // as systemd.exec(5) has it
		cmd.Env = append(cmd.Env, "RUNTIME_DIRECTORY="+path.Join("/run", s.RuntimeDirectory))
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", files.log, files.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: int(files.group.Fd())}
	started, ended := make(chan error, 1), make(chan error, 1)
	guard.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread is in another namespace, and ends with the goroutine
		err := files.enter()
		if err == nil {
			err = cmd.Start()
		}
		if started <- err; err == nil {
			ended <- cmd.Wait()
		}
	})
	if err := <-started; err != nil {
		return err
	}
	if !s.Forks {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, serviceTime)
	defer cancel()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("it has not gone to the background: %w", ctx.Err())
	}
}

// daemonFiles are what a start needs of the host, opened before a thread leaves this process's view of it.
type daemonFiles struct {
	log, group, mounts *os.File // mounts is nil if process 1 has the same ones as this process
}

func (d Daemons) open(log, group string) (f daemonFiles, err error) {
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	name, err := d.h.parent(log)
	if err != nil {
		return f, err
	}
	if f.log, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600); err != nil {
		return f, Relabel(err, log)
	}
	if name, err = d.h.Path(group); err != nil {
		return f, err
	}
	if f.group, err = os.Open(name); err != nil {
		return f, Relabel(err, group)
	}
	const mounts = "/proc/1/ns/mnt"
	if name, err = d.h.parent(mounts); err != nil { // the last element is a magic link, as in inNetwork
		return f, err
	}
	theirs, err := os.Stat(name)
	if err != nil {
		return f, fmt.Errorf("cannot tell the mounts of process 1: %w", Relabel(err, mounts))
	}
	if ours, err := os.Stat("/proc/self/ns/mnt"); err == nil && os.SameFile(theirs, ours) {
		return f, nil
	}
	f.mounts, err = os.Open(name)
	return f, err
}

func (f daemonFiles) close() {
	for _, file := range []*os.File{f.log, f.group, f.mounts} {
		if file != nil {
			_ = file.Close() // the program has its own descriptors
		}
	}
}

// enter moves the thread, and what it starts, into the mounts of process 1, and sets no_new_privs.
func (f daemonFiles) enter() error {
	if f.mounts != nil {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("cannot leave the agent's mounts: %w", os.NewSyscallError("unshare", err))
		}
		if err := unix.Setns(int(f.mounts.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("cannot enter the mounts of process 1: %w", os.NewSyscallError("setns", err))
		}
	}
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}

// Stop stops a service, returns when it has no process any more, and forgets it. It is no error if there is no such
// service.
func (d Daemons) Stop(ctx context.Context, name string) error {
	if err := d.end(ctx, name); err != nil {
		return err
	}
	record := path.Join(DaemonsDir, name)
	text, err := d.h.ReadAttribute(record)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if dir, _, _ := strings.Cut(text, "\n"); dir != "" && filepath.IsLocal(dir) {
		if err := d.h.RemoveAll(path.Join("/run", dir)); err != nil {
			return err
		}
	}
	if err := d.h.RemoveAll(record + ".log"); err != nil {
		return err
	}
	if err := d.h.Remove(record); err != nil {
		return err
	}
	_ = d.h.Remove(DaemonsDir) // unless there is another one
	return nil
}

// end ends the processes of a service and removes its control group.
func (d Daemons) end(ctx context.Context, name string) error {
	group := d.group(name)
	for _, pid := range d.processes(group) {
		_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended
	}
	if !d.emptied(ctx, group) {
		if err := d.h.WriteAttribute(path.Join(group, "cgroup.kill"), "1"); err != nil {
			return err
		}
		if !d.emptied(ctx, group) {
			return fmt.Errorf("process %d of %q does not end", append(d.processes(group), 0)[0], name)
		}
	}
	if err := d.h.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = d.h.Remove(path.Dir(group)) // unless there is another one
	return nil
}

// processes are those of a control group.
func (d Daemons) processes(group string) (pids []int) {
	text, _ := d.h.ReadAttribute(path.Join(group, "cgroup.procs")) // gone if the group is
	for field := range strings.FieldsSeq(text) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// emptied waits until a control group has no process.
func (d Daemons) emptied(ctx context.Context, group string) bool {
	const again = 20 * time.Millisecond // a few times in the life of a driver
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	for len(d.processes(group)) > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(again):
		}
	}
	return true
}
