package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Root is the file system that a program of a [Scope] gets instead of the machine's: that of an image, with what the
// program needs of the machine in it. The image never changes: what the program writes next to its own directories is
// kept in memory and is gone with it. All mounts are in a namespace of the program, so that nothing is left of them,
// however the program or this process ends.
type Root struct {
	// Image is the directory of the image, as the machine sees it.
	Image string
	// Scratch is an empty directory, as the machine sees it, which the mounts are made on. It stays empty.
	Scratch string
	// Binds are the parts of the machine that are in it, in the order in which they are mounted. In addition, the
	// program finds its own /proc, and a /dev with null, zero, full, urandom and tty.
	Binds []Bind
}

// Bind is a directory of the machine that a [Root] has.
type Bind struct {
	From, To string // its path on the machine and in the root; To is created if the image has none
	Write    bool   // false for read-only
}

// RootCommand is the argument with which this process starts its own program again, see [RootMain].
const RootCommand = "enter-root"

// rootOrder is what a new process of ours is told: everything that it needs to become the program. Paths that are not
// the program's are paths that this process can open.
type rootOrder struct {
	Image   string   `json:"image"`
	Scratch string   `json:"scratch"`
	Binds   []Bind   `json:"binds"`
	Path    string   `json:"path"`
	Args    []string `json:"args"`
	Env     []string `json:"env"`
	Dir     string   `json:"dir"`
	User    int      `json:"user"`
	// MemoryKiB is the address space that each program may use; 0 for any.
	MemoryKiB int64 `json:"memoryKiB"`
}

// rootFailure is the answer of a process that did not become the program.
type rootFailure struct {
	Text  string `json:"text"`
	Errno int    `json:"errno,omitempty"`
}

// runInRoot runs a program in a file system of its own. Unlike other programs it is never run with less isolation than
// that: its files come from somebody else.
func (s *Scope) runInRoot(ctx context.Context, p Program) error {
	if os.Geteuid() != 0 || p.User == 0 {
		return fmt.Errorf("cannot start %q in an image: it needs root to make its mounts, and a user without rights to "+
			"run as: %w", p.Path, syscall.EPERM)
	}
	order, err := s.order(p)
	if err != nil {
		return err
	}
	answers, answer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer closeQuietly(answers)
	cmd := Helper(ctx, []string{"/proc/self/exe", RootCommand}, answer)
	cmd.Stdout, cmd.Stderr = p.Output, p.Output
	cmd.WaitDelay = pipeDelay
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID |
		syscall.CLONE_NEWIPC
	// The pipe stays open until the program has ended: its closing tells the new process that this one is gone.
	gate, err := cmd.StdinPipe()
	if err != nil {
		closeQuietly(answer)
		return err
	}
	ended, err := Start(cmd)
	closeQuietly(answer)
	if err != nil {
		return fmt.Errorf("cannot start %q in namespaces of its own: %w", p.Path, err)
	}
	order.MemoryKiB = s.limit(ctx, cmd.Process.Pid)
	_ = json.NewEncoder(gate).Encode(order) // if it was killed meanwhile, Wait says so
	failed := rootFailed(answers)
	err = <-ended
	if failed == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("cannot start %q in the image %q: %w", p.Path, p.Root.Image, failed)
}

// order prepares what a new process is told.
func (s *Scope) order(p Program) (rootOrder, error) {
	o := rootOrder{
		Path: p.Path, Args: p.Args, Dir: p.Dir, User: p.User,
		Env: append([]string{"PATH=" + searchPath, "LC_ALL=C"}, p.Env...),
	}
	if o.Dir == "" {
		o.Dir = "/"
	}
	var err error
	if o.Image, err = s.h.Path(p.Root.Image); err != nil {
		return o, err
	}
	if o.Scratch, err = s.h.Path(p.Root.Scratch); err != nil {
		return o, err
	}
	for _, b := range p.Root.Binds {
		if b.From, err = s.h.Path(b.From); err != nil {
			return o, err
		}
		o.Binds = append(o.Binds, b)
	}
	return o, nil
}

// rootFailed waits until a new process has become the program, and returns why it did not.
func rootFailed(answers io.Reader) error {
	const longest = 16 << 10
	text, err := io.ReadAll(io.LimitReader(answers, longest))
	if err != nil || len(text) == 0 {
		return err
	}
	var f rootFailure
	if json.Unmarshal(text, &f) != nil {
		return errors.New("it gave no answer")
	}
	if f.Errno != 0 {
		return fmt.Errorf("%s: %w", f.Text, syscall.Errno(f.Errno))
	}
	return errors.New(f.Text)
}
