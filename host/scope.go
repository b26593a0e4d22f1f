package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"syscall"
)

// ScopeOptions say what the programs of a [Scope] may use.
type ScopeOptions struct {
	// Name is unique on the machine: the systemd scope or the control group has it.
	Name        string
	Description string
	// CPUWeight is the share of a busy processor, 1 to 10000 where everybody else has 100
	// (systemd.resource-control(5)); 0 leaves it.
	CPUWeight int
	// MemoryBytes is what all programs together may use, without swap; 0 for no cap.
	MemoryBytes int64
}

// Scope is where programs run that must not harm the machine: with the lowest priority, a cap on memory, no network and
// no rights, and all of them end with the scope or with this process. What the machine does not offer is left out:
// [Scope.Limits] says what holds.
type Scope struct {
	h     *Host
	o     ScopeOptions
	group controlGroup // nil: no control group
	bare  int          // levels that the kernel has refused
}

// controlGroup is how a scope limits its programs together.
type controlGroup interface {
	// add moves a process into it.
	add(ctx context.Context, pid int) error
	// dir is its directory as the machine sees it.
	dir() string
	// end kills what is left in it and removes it.
	end() error
}

// Program is what runs in a scope.
type Program struct {
	Path string // of the program, as the machine sees it
	Args []string
	Env  []string // "NAME=value", besides those of [Host.Command]
	Dir  string   // the working directory; "/" when empty
	User int      // the user and group that it runs as; 0 for this process's own
	// Output takes both standard output and standard error.
	Output io.Writer
}

// OpenScope makes a scope: a transient scope of systemd where that is the machine's service manager, else a control
// group of our own, else only priority and limits by process. The error says why it is less than could be; the scope is
// usable all the same.
func (h *Host) OpenScope(ctx context.Context, o ScopeOptions) (*Scope, error) {
	s := &Scope{h: h, o: o}
	if os.Geteuid() != 0 || !h.Live() {
		s.bare = len(scopeLevels()) - 1
		if os.Geteuid() == 0 {
			s.bare = 0 // a copy of a machine: isolated, without a control group of it
		}
		return s, nil
	}
	var err error
	if h.Exists("/run/systemd/system") { // sd_booted(3)
		s.group, err = h.openSystemdScope(ctx, o)
	} else {
		s.group, err = h.openControlGroup(o)
	}
	if err != nil {
		s.group = nil // not an interface around a nil pointer
	}
	return s, err
}

// scopeLevel is a degree of isolation.
type scopeLevel struct {
	namespaces uintptr
	user       bool
}

// scopeLevels are tried in order until the kernel takes one. In a namespace of processes the first one's end is the end
// of all, whatever they did to get away; it is also complete when the first one has been waited for
// (pid_namespaces(7)).
func scopeLevels() []scopeLevel {
	const namespaces = syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC
	return []scopeLevel{{namespaces, true}, {namespaces, false}, {syscall.CLONE_NEWNET, false}, {0, false}}
}

// Limits says for the log what holds the scope's programs.
func (s *Scope) Limits() string {
	if s.group == nil {
		return "priority and limits by process"
	}
	return s.group.dir()
}

// Run runs a program to its end. The error is that of [exec.Cmd.Wait], or says why it could not be started. When ctx
// ends all that it started is killed.
func (s *Scope) Run(ctx context.Context, p Program) error {
	for {
		cmd, gate, err := s.start(ctx, p, scopeLevels()[s.bare])
		if err != nil {
			refused := errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSPC)
			if refused && s.bare < len(scopeLevels())-1 {
				s.bare++
				continue
			}
			return fmt.Errorf("cannot start %q: %w", p.Path, err)
		}
		_, _ = io.WriteString(gate, s.admit(ctx, cmd.Process.Pid)) // what was killed meanwhile says it by its end
		_ = gate.Close()
		return cmd.Wait()
	}
}

// start starts a shell that waits for a line before it becomes the program, so that limits hold from the program's
// first instruction.
func (s *Scope) start(ctx context.Context, p Program, level scopeLevel) (*exec.Cmd, io.WriteCloser, error) {
	shell, err := s.h.LookPath("sh")
	if err != nil {
		return nil, nil, err
	}
	if !s.h.Exists(p.Path) {
		return nil, nil, &os.PathError{Op: "exec", Path: p.Path, Err: syscall.ENOENT}
	}
	args := []string{"-c", `read -r memory || exit 1; ulimit -S -v "$memory"; exec "$@"`, "sh"}
	if nice, err := s.h.LookPath("nice"); err == nil {
		args = append(args, nice, "-n", "19") // setpriority(2): the lowest
	}
	cmd := s.h.Command(ctx, shell, append(append(args, p.Path), p.Args...)...)
	cmd.Env = append(cmd.Env, p.Env...)
	cmd.Dir = "/"
	if p.Dir != "" {
		cmd.Dir = p.Dir
	}
	cmd.Stdout, cmd.Stderr = p.Output, p.Output
	cmd.WaitDelay = pipeDelay
	cmd.SysProcAttr.Cloneflags = level.namespaces
	if level.user && p.User != 0 {
		id := uint32(p.User)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: id, Gid: id}
	}
	gate, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	return cmd, gate, cmd.Start()
}

// admit moves a process that waits at its gate into the control group and returns the line that opens the gate: the
// address space that each program may use, in KiB as ulimit(1) takes it, where no control group limits them together.
func (s *Scope) admit(ctx context.Context, pid int) string {
	grouped := s.group != nil && s.group.add(ctx, pid) == nil
	if s.o.MemoryBytes == 0 || grouped && s.capped() {
		return "unlimited\n"
	}
	return strconv.FormatInt(s.o.MemoryBytes>>10, 10) + "\n"
}

// capped reports whether the control group limits memory.
func (s *Scope) capped() bool {
	text, err := s.h.ReadString(path.Join(s.group.dir(), "memory.max"))
	return err == nil && text != "max"
}

// OutOfMemory reports whether the kernel killed a program of the scope because it used too much.
func (s *Scope) OutOfMemory() bool {
	if s.group == nil {
		return false
	}
	text, err := s.h.ReadString(path.Join(s.group.dir(), "memory.events"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(text) {
		name, count, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(count, 10, 64); err == nil && name == "oom_kill" && n > 0 {
			return true
		}
	}
	return false
}

// Close ends whatever is left in the scope.
func (s *Scope) Close() error {
	if s.group == nil {
		return nil
	}
	return s.group.end()
}

// Give makes user and group own the tree name, links themselves and not what they point to.
func (h *Host) Give(name string, user int) error {
	p, err := h.parent(name)
	if err != nil {
		return err
	}
	if err := os.Lchown(p, user, user); err != nil {
		return relabel(err, name)
	}
	st, err := os.Lstat(p)
	if err != nil || !st.IsDir() {
		return relabel(err, name)
	}
	entries, err := h.ReadDir(name)
	for _, e := range entries {
		err = errors.Join(err, h.Give(path.Join(name, e.Name()), user))
	}
	return err
}

// Chmod sets the mode of name, links followed.
func (h *Host) Chmod(name string, mode os.FileMode) error {
	p, err := h.Path(name)
	if err != nil {
		return err
	}
	return relabel(os.Chmod(p, mode), name)
}
