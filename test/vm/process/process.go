// Package process starts the test bed's children and makes sure that none outlives it: each child is killed by the
// kernel when its parent dies, and is recorded on disk so that the next run can end what slipped through. It ends only
// processes that it started itself, recognised by process id and start time.
package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Child is a running program.
type Child struct {
	name   string
	cmd    *exec.Cmd
	record string
	done   chan struct{}
	err    error
}

// record is what the disk remembers of a child: enough to recognise it, and its owner, beyond doubt.
type record struct {
	Name  string `json:"name"`
	Child ident  `json:"child"`
	Owner ident  `json:"owner"`
}

// ident names one process for ever: process ids are reused, a pair of id and start time is not.
type ident struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// Starter starts children and keeps their records in one folder.
type Starter struct {
	dir   string
	spawn chan func()
	once  sync.Once
}

// NewStarter returns a Starter whose records live in dir.
func NewStarter(dir string) (*Starter, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot create folder for process records: %w", err)
	}
	return &Starter{dir: dir, spawn: make(chan func())}, nil
}

// loop runs on one thread for as long as the process lives: PR_SET_PDEATHSIG fires when the thread that forked ends,
// and the Go runtime ends threads as it likes unless a goroutine holds on to one (prctl(2)).
func (s *Starter) loop() {
	runtime.LockOSThread()
	for start := range s.spawn {
		start()
	}
}

// Start starts a program in its own process group with its output going to out.
func (s *Starter) Start(name string, out io.Writer, cmd *exec.Cmd) (*Child, error) {
	s.once.Do(func() { go s.loop() })
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	s.spawn <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start %q: %w", name, err)
	}
	c := &Child{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		c.err = cmd.Wait()
		close(c.done)
	}()
	if err := s.remember(c); err != nil {
		c.Stop(0)
		return nil, err
	}
	return c, nil
}

func (s *Starter) remember(c *Child) error {
	child, err := identify(c.cmd.Process.Pid)
	if err != nil {
		return nil //nolint:nilerr // It is gone already: nothing is left to remember, and Exited tells the caller.
	}
	owner, err := identify(os.Getpid())
	if err != nil {
		return err
	}
	content, err := json.Marshal(record{Name: c.name, Child: child, Owner: owner})
	if err != nil {
		return fmt.Errorf("cannot encode process record: %w", err)
	}
	c.record = filepath.Join(s.dir, strconv.Itoa(child.PID)+".json")
	if err := os.WriteFile(c.record, content, 0o644); err != nil {
		return fmt.Errorf("cannot record process %q: %w", c.name, err)
	}
	return nil
}

// PID is the child's process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Done is closed when the child has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Exited tells how the child ended, or nil while it runs.
func (c *Child) Exited() error {
	select {
	case <-c.done:
		if c.err == nil {
			return fmt.Errorf("%q ended", c.name)
		}
		return fmt.Errorf("%q ended: %w", c.name, c.err)
	default:
		return nil
	}
}

// Stop asks the child to end, waits for the grace period, kills its whole group, and forgets it.
func (c *Child) Stop(grace time.Duration) {
	if grace > 0 {
		c.signal(syscall.SIGTERM)
		select {
		case <-c.done:
		case <-time.After(grace):
		}
	}
	c.signal(syscall.SIGKILL)
	<-c.done
	if c.record != "" {
		os.Remove(c.record)
	}
}

// Freeze stops the child and its group while do runs.
func (c *Child) Freeze(do func() error) error {
	c.signal(syscall.SIGSTOP)
	defer c.signal(syscall.SIGCONT)
	return do()
}

// signal reaches the whole group, but only while its leader is not yet reaped: after that the number may be another's.
func (c *Child) signal(sig syscall.Signal) {
	select {
	case <-c.done:
	default:
		syscall.Kill(-c.cmd.Process.Pid, sig)
	}
}

// Sweep ends the recorded processes of owners that are gone and returns their names.
func (s *Starter) Sweep() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(s.dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("cannot list process records: %w", err)
	}
	var ended []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return ended, fmt.Errorf("cannot read process record: %w", err)
		}
		var r record
		if err := json.Unmarshal(content, &r); err != nil {
			os.Remove(file)
			continue
		}
		if alive(r.Owner) {
			continue
		}
		if alive(r.Child) {
			syscall.Kill(-r.Child.PID, syscall.SIGKILL)
			ended = append(ended, fmt.Sprintf("%s (%d)", r.Name, r.Child.PID))
		}
		os.Remove(file)
	}
	return ended, nil
}

func alive(id ident) bool {
	now, err := identify(id.PID)
	return err == nil && now == id
}

// identify reads the start time, in clock ticks since boot: field 22 of /proc/<pid>/stat (proc(5)), counted after the
// parenthesis because the program's name may hold spaces.
func identify(pid int) (ident, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ident{}, fmt.Errorf("cannot identify process %d: %w", pid, err)
	}
	_, rest, _ := strings.Cut(string(content[strings.LastIndexByte(string(content), ')')+1:]), " ")
	fields := strings.Fields(rest)
	const startTime = 22 - 3
	if len(fields) <= startTime || fields[0] == "Z" {
		return ident{}, fmt.Errorf("cannot identify process %d: it is a zombie or its stat is too short", pid)
	}
	start, err := strconv.ParseUint(fields[startTime], 10, 64)
	if err != nil {
		return ident{}, fmt.Errorf("cannot read the start time of process %d: %w", pid, err)
	}
	return ident{PID: pid, Start: start}, nil
}
