package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/guard"
)

// Resident is a program that runs alongside this process for as long as it likes. It dies with this process.
type Resident struct {
	// PID is its process.
	PID int
	// Output is its standard output, until it exits. The caller must read it.
	Output io.ReadCloser
	// Input is its standard input.
	Input *os.File
	ended chan struct{}
	err   error
	tail  tail
}

// Reside starts a program of the machine. If own is true, argv[0] is a path in this process's own file system. That
// file is opened here but runs inside the machine's root, so that it uses the machine's loader and libraries. The
// program is killed when ctx ends; a program that hangs in the kernel exits later, see [Resident.Ended].
func (p Programs) Reside(ctx context.Context, argv []string, own bool) (*Resident, error) {
	cmd := p.Command(ctx, argv[0], argv[1:]...)
	if own && p.h.root != "/" {
		var release func()
		var err error
		if cmd, release, err = p.Own(ctx, argv); err != nil {
			return nil, err
		}
		defer release()
	}
	output, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start %q: %w", argv[0], err)
	}
	in, input, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start %q: %w", argv[0], err), output.Close(), w.Close())
	}
	r := &Resident{Output: output, Input: input, ended: make(chan struct{})}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, w, &r.tail
	cmd.WaitDelay = time.Second // for its own children that still hold its standard error
	over, err := Start(cmd)
	_, _ = w.Close(), in.Close() // the program has its own copies
	if err != nil {
		_, _ = output.Close(), input.Close()
		return nil, fmt.Errorf("cannot start %q: %w", argv[0], err)
	}
	guard.Go(func() {
		r.err = <-over
		close(r.ended)
	})
	r.PID = cmd.Process.Pid
	return r, nil
}

// Own prepares a program from this process's own file system, argv[0], to run inside the machine's root, so that it
// uses the machine's loader and libraries. Whatever user it runs as, only its own file must be executable. The caller
// calls release after the start.
func (p Programs) Own(ctx context.Context, argv []string) (cmd *exec.Cmd, release func(), err error) {
	program, err := os.Open(argv[0])
	if err != nil {
		return nil, nil, fmt.Errorf("cannot start %q: %w", argv[0], err)
	}
	// The kernel's link to the open file leads out of the root, while the loader that the file names is found inside
	// it.
	cmd = p.Command(ctx, "/proc/self/fd/3", argv[1:]...)
	cmd.Args[0] = argv[0]
	cmd.ExtraFiles = []*os.File{program}
	return cmd, func() { _ = program.Close() }, nil
}

// Ended returns a channel that is closed when the program has exited.
func (r *Resident) Ended() <-chan struct{} { return r.ended }

// Err says how the program exited, with the last line of its standard error. It is valid only after Ended.
func (r *Resident) Err() string { return howEnded(r.err, &r.tail) }

// howEnded says how a program exited, with the last line of its standard error.
func howEnded(err error, said *tail) string {
	how := "it ended by itself"
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		how = exit.String()
	case err != nil:
		how = err.Error()
	}
	if last := said.last(); last != "" {
		how += ": " + last
	}
	return how
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(b), nil
}

// last returns the last line.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.text), "?"))
	text = text[strings.LastIndexByte(text, '\n')+1:]
	const longest = 300
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
