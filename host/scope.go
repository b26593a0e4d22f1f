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
	"syscall"
)

// ScopeOptions say what the programs of a [Scope] may use.
type ScopeOptions struct {
	// Name must be unique on the machine. The systemd scope or control group is named after it.
	Name        string
	Description string
	// CPUWeight is the share of a busy processor, 1 to 10000; everything else has 100 (systemd.resource-control(5)). 0
	// leaves the default.
	CPUWeight int
	// MemoryBytes caps the memory of all programs together, without swap; 0 means no cap.
	MemoryBytes int64
}

// Scope runs programs that must not harm the machine. They have the lowest priority, a memory cap, no network and no
// privileges, and all of them end with the scope or with this process. What the machine does not support is left out:
// [Scope.Limits] says what applies.
type Scope struct {
	h     *Host
	o     ScopeOptions
	group *controlGroup // nil: no control group
	bare  int           // how many levels the kernel has refused
}

// controlGroup is how a scope limits its programs together.
type controlGroup struct {
	dir string                                   // its directory as the machine sees it
	add func(ctx context.Context, pid int) error // moves a process into it
	end func() error                             // kills what is left in it and removes it
}

// Program is a program to run in a scope.
type Program struct {
	Path string // of the program, as the machine sees it
	Args []string
	Env  []string // "NAME=value", added to those of [Programs.Command]
	Dir  string   // the working directory; "/" when empty
	User int      // the user and group to run as; 0 for this process's own
	// Root is the file system that it runs in, and in which Path and Dir are; nil for the machine's. It needs a user.
	Root *Root
	// Output takes both standard output and standard error.
	Output io.Writer
}

// OpenScope creates a scope: a transient systemd scope if systemd is the machine's service manager, otherwise a
// control group of our own, otherwise only a priority and per-process limits. The error says why the scope offers less
// than it could; the scope is usable all the same.
func (p Programs) OpenScope(ctx context.Context, o ScopeOptions) (*Scope, error) {
	s := &Scope{h: p.h, o: o}
	if os.Geteuid() != 0 {
		s.bare = len(scopeLevels()) - 1
		return s, nil
	}
	if !p.h.Live() { // a copy of a machine: isolated, but without a control group
		return s, nil
	}
	var err error
	if p.h.Exists("/run/systemd/system") { // sd_booted(3)
		s.group, err = openSystemdScope(ctx, p.h, o)
	} else {
		s.group, err = openControlGroup(p.h, o)
	}
	return s, err
}

// scopeLevel is a degree of isolation.
type scopeLevel struct {
	namespaces uintptr
	user       bool
}

// scopeLevels returns the levels to try, in order, until the kernel accepts one. In a PID namespace, the exit of the
// first process ends all others, whatever they did to escape. When the first one has been waited for, all of them are
// gone (pid_namespaces(7)).
func scopeLevels() []scopeLevel {
	const namespaces = syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC
	return []scopeLevel{{namespaces, true}, {namespaces, false}, {syscall.CLONE_NEWNET, false}, {0, false}}
}

// Limits says, for the log, what limits the scope's programs.
func (s *Scope) Limits() string {
	if s.group == nil {
		return "priority and limits by process"
	}
	return s.group.dir
}

// Run runs a program until it exits. The error is that of [exec.Cmd.Wait], or says why the program could not be
// started. When ctx ends, everything that the program started is killed.
func (s *Scope) Run(ctx context.Context, p Program) error {
	if p.Root != nil {
		return s.runInRoot(ctx, p)
	}
	for {
		cmd, gate, ended, err := s.start(ctx, p, scopeLevels()[s.bare])
		if err != nil {
			refused := errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSPC)
			if refused && s.bare < len(scopeLevels())-1 {
				s.bare++
				continue
			}
			return fmt.Errorf("cannot start %q: %w", p.Path, err)
		}
		_, _ = io.WriteString(gate, s.admit(ctx, cmd.Process.Pid)) // if it was killed meanwhile, Wait says so
		_ = gate.Close()
		return <-ended
	}
}

// start starts a shell that waits for a line before it becomes the program, so that limits hold from the program's
// first instruction.
func (s *Scope) start(ctx context.Context, p Program, level scopeLevel) (cmd *exec.Cmd, gate io.WriteCloser,
	ended <-chan error, err error,
) {
	shell, err := s.h.Programs().LookPath("sh")
	if err != nil {
		return nil, nil, nil, err
	}
	if !s.h.Exists(p.Path) {
		return nil, nil, nil, &os.PathError{Op: "exec", Path: p.Path, Err: syscall.ENOENT}
	}
	args := []string{"-c", `read -r memory || exit 1; ulimit -S -v "$memory"; exec "$@"`, "sh"}
	if nice, err := s.h.Programs().LookPath("nice"); err == nil {
		args = append(args, nice, "-n", "19") // setpriority(2): the lowest
	}
	cmd = s.h.Programs().Command(ctx, shell, append(append(args, p.Path), p.Args...)...)
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
	if gate, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	ended, err = Start(cmd)
	return cmd, gate, ended, err
}

// admit moves a process that waits at its gate into the control group. It returns the line that opens the gate: the
// address space that each program may use, in KiB as ulimit(1) takes it, or "unlimited".
func (s *Scope) admit(ctx context.Context, pid int) string {
	if limit := s.limit(ctx, pid); limit > 0 {
		return strconv.FormatInt(limit, 10) + "\n"
	}
	return "unlimited\n"
}

// limit moves a process that waits into the control group. It returns the address space that each program may use, in
// KiB; 0 if that is not limited, or if the control group limits them together.
func (s *Scope) limit(ctx context.Context, pid int) int64 {
	grouped := s.group != nil && s.group.add(ctx, pid) == nil
	if s.o.MemoryBytes == 0 || grouped && s.capped() {
		return 0
	}
	return s.o.MemoryBytes >> 10
}

// capped reports whether the control group limits memory.
func (s *Scope) capped() bool {
	text, err := s.h.ReadAttribute(path.Join(s.group.dir, "memory.max"))
	return err == nil && text != "max"
}

// OutOfMemory reports whether the kernel killed a program of the scope for using too much memory.
func (s *Scope) OutOfMemory() bool {
	if s.group == nil {
		return false
	}
	text, _ := s.h.ReadAttribute(path.Join(s.group.dir, "memory.events"))
	count, _ := Line(text, "oom_kill")
	n, err := strconv.ParseUint(count, 10, 64)
	return err == nil && n > 0
}

// Close ends whatever is left in the scope.
func (s *Scope) Close() error {
	if s.group == nil {
		return nil
	}
	return s.group.end()
}
