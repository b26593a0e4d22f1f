package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Group is the control group of a pod, or of a container outside pods.
type Group struct {
	// Dir is its directory, as the machine sees it.
	Dir string `json:"dir"`
	// ID is the kernel's number of the group: one that is made again under the same name has another.
	ID uint64 `json:"id"`
	// Pod is the UID of the pod; empty outside pods.
	Pod string `json:"pod,omitempty"`
}

const groups = "/sys/fs/cgroup"

// GroupOf returns the control group of the pod that a process belongs to, or, outside pods, of the process. It fails if
// the process is in no group but the root of the tree.
func (p Processes) GroupOf(pid int) (Group, error) {
	dirs, err := p.groupDirs(pid)
	if err != nil {
		return Group{}, fmt.Errorf("cannot find the control group of process %d: %w", pid, err)
	}
	for _, dir := range dirs {
		g := podAbove(dir)
		if g.ID, err = p.h.Identity(g.Dir); err == nil {
			return g, nil
		}
	}
	return Group{}, fmt.Errorf("process %d is in no control group of its own", pid)
}

// groupDirs returns where the groups of a process may be, except for the roots of trees. A process has one in each
// hierarchy, and a hierarchy may be mounted at several places.
func (p Processes) groupDirs(pid int) (dirs []string, err error) {
	text, err := p.h.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		roots := []string{path.Join(groups, strings.TrimPrefix(fields[1], "name="))} // version 1
		if fields[0] == "0" {
			roots = []string{groups, path.Join(groups, "unified")} // version 2
		}
		// In a control group namespace the path of a process outside begins with "/..".
		if below := path.Clean("/" + fields[2]); below != "/" {
			for _, root := range roots {
				dirs = append(dirs, path.Join(root, below))
			}
		}
	}
	return dirs, nil
}

// podAbove returns the group of the pod that a group is in, or the group itself.
func podAbove(dir string) Group {
	for at := dir; at != groups && at != "/"; at = path.Dir(at) {
		uid := podGroup(path.Base(at))
		if uid != "" && strings.Contains(path.Dir(at), "kubepods") {
			return Group{Dir: at, Pod: strings.ReplaceAll(uid, "_", "-")}
		}
	}
	return Group{Dir: dir}
}

// InUnit reports whether a process belongs to a service of the host's systemd, by its control group.
func (p Processes) InUnit(pid int, service string) bool {
	dirs, _ := p.groupDirs(pid)
	return slices.ContainsFunc(dirs, func(dir string) bool {
		for _, root := range []string{groups, path.Join(groups, "unified"), path.Join(groups, "systemd")} {
			unit := path.Join(root, "system.slice", service)
			if dir == unit || strings.HasPrefix(dir, unit+"/") {
				return true
			}
		}
		return false
	})
}

// There reports whether the group is still there: neither gone nor replaced by another of the same name.
func (p Processes) There(g Group) bool {
	id, err := p.h.Identity(g.Dir)
	return err == nil && id == g.ID
}

// Contains reports whether a process is in the group, or in one below it.
func (p Processes) Contains(g Group, pid int) bool {
	if !p.There(g) {
		return false
	}
	dirs, _ := p.groupDirs(pid) // a process that has ended is in none
	return slices.ContainsFunc(dirs, func(dir string) bool { return dir == g.Dir || strings.HasPrefix(dir, g.Dir+"/") })
}

// Populated reports whether a process is in the group or below it. A group that is gone has none; in one that cannot be
// read there may be one.
func (p Processes) Populated(g Group) bool {
	if !p.There(g) {
		return false
	}
	text, err := p.h.ReadFile(path.Join(g.Dir, "cgroup.events"))
	switch {
	case err == nil:
		return !strings.Contains("\n"+string(text), "\npopulated 0\n")
	case !errors.Is(err, fs.ErrNotExist):
		return p.h.Exists(g.Dir)
	}
	return p.inhabited(g.Dir) // version 1, or gone
}

// inhabited reports whether a process is in a group of version 1, or below it.
func (p Processes) inhabited(dir string) bool {
	text, err := p.h.ReadFile(path.Join(dir, "cgroup.procs"))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV)
	}
	if strings.TrimSpace(string(text)) != "" {
		return true
	}
	entries, err := p.h.ReadDir(dir)
	if err != nil {
		return p.h.Exists(dir)
	}
	for _, e := range entries {
		if e.IsDir() && p.inhabited(path.Join(dir, e.Name())) {
			return true
		}
	}
	return false
}

// lookAgain is how often a group is looked at that gives no event: one of version 1.
const lookAgain = 100 * time.Millisecond

// AwaitEmpty waits until no process is in the group or below it. It returns the error of ctx if that ends first.
func (p Processes) AwaitEmpty(ctx context.Context, g Group) error {
	name, err := p.h.Path(path.Join(g.Dir, "cgroup.events"))
	if err != nil {
		return err
	}
	f, err := os.Open(name)
	if err == nil {
		defer closeQuietly(f)
	}
	for p.Populated(g) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if f == nil {
			select {
			case <-ctx.Done():
			case <-time.After(lookAgain):
			}
			continue
		}
		// The kernel signals a change of the file to whoever has read it (kernfs_notify); the limit is for ctx.
		var b [256]byte
		_, _ = f.ReadAt(b[:], 0)
		if !p.Populated(g) {
			return nil
		}
		ready := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}}
		_, _ = unix.Poll(ready, int(lookAgain.Milliseconds())) // an interrupted wait is one that was short
	}
	return nil
}

// MountNamespace identifies the mount namespace of a process; empty if that cannot be read.
func (p Processes) MountNamespace(pid int) string {
	text, err := p.h.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return ""
	}
	return text
}

// Kill kills the process with a PID if it is the one that is meant, and reports whether it did. It asks meant once it
// has hold of the process: another one may have its PID by then.
func (p Processes) Kill(pid int, meant func() bool) (killed bool, err error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot kill process %d: %w", pid, os.NewSyscallError("pidfd_open", err))
	}
	defer func() { _ = unix.Close(fd) }()
	if !meant() {
		return false, nil
	}
	err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return false, fmt.Errorf("cannot kill process %d: %w", pid, os.NewSyscallError("pidfd_send_signal", err))
	}
	return err == nil, nil
}
