package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/acceld/acceld/host"
)

// Kernel loads and unloads modules.
type Kernel interface {
	// Load loads the uncompressed module in f. The error wraps the kernel's syscall.Errno, or
	// context.DeadlineExceeded if the module's initialisation did not end, or [ErrDied] if the initialisation killed
	// the calling process.
	Load(ctx context.Context, f *os.File, parameters string) error
	// Unload removes a module that is not in use. Its errors are those of Load.
	Unload(ctx context.Context, name string) error
}

// ErrDied means that the process that called the kernel was killed inside the call: the kernel oopsed.
var ErrDied = errors.New("the kernel killed the process that loads the module")

// helperRequest is what the helper reads from its standard input.
type helperRequest struct {
	// Unload names the module to remove. When empty, the helper loads the module in descriptor 3.
	Unload     string `json:"unload,omitempty"`
	Parameters string `json:"parameters,omitempty"`
}

// helperAnswer is what the helper writes to its standard output: the kernel's errno, 0 for success.
type helperAnswer struct {
	Errno int `json:"errno"`
}

// helperDied is the helper's exit status if the kernel killed the thread that made the call.
const helperDied = 3

// LoadModuleMain is the body of the helper process that the agent starts to call the kernel: a module's
// initialisation may hang or oops, and then affects only the process that called it. It reads one request from in,
// answers on out and returns the exit status of the process. File descriptor 3 is the module to load.
func LoadModuleMain(h *host.Host, in io.Reader, out io.Writer) int {
	var request helperRequest
	if err := json.NewDecoder(io.LimitReader(in, 1<<20)).Decode(&request); err != nil {
		return 2
	}
	err := host.OnThread(func() error {
		if request.Unload != "" {
			return h.Kernel().DeleteModule(request.Unload)
		}
		const first = 3 // the first of exec.Cmd's ExtraFiles
		return h.Kernel().LoadModule(os.NewFile(first, "module"), request.Parameters)
	})
	if errors.Is(err, host.ErrThreadDied) {
		return helperDied
	}
	var answer helperAnswer
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		answer.Errno = int(errno)
	case err != nil:
		return 2
	}
	if json.NewEncoder(out).Encode(answer) != nil {
		return 2
	}
	return 0
}

// helperKernel is the running kernel, called through a helper process.
type helperKernel struct {
	h    *host.Host
	argv []string
}

func (k *helperKernel) Load(ctx context.Context, f *os.File, parameters string) error {
	return k.ask(ctx, helperRequest{Parameters: parameters}, f)
}

func (k *helperKernel) Unload(ctx context.Context, name string) error {
	return k.ask(ctx, helperRequest{Unload: name})
}

func (k *helperKernel) ask(ctx context.Context, r helperRequest, files ...*os.File) error {
	if !k.h.Live() {
		return fmt.Errorf("host root %q is not the running machine: %w", k.h.Root(), syscall.EPERM)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	cmd := host.Helper(ctx, k.argv, files...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout = bytes.NewReader(text), &out
	ended, err := host.Start(cmd)
	if err != nil {
		return fmt.Errorf("cannot start the load helper %q: %w", k.argv[0], err)
	}
	// A helper inside the kernel cannot always be killed. It is left alone, and reaped whenever it returns.
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var answer helperAnswer
	if json.Unmarshal(out.Bytes(), &answer) != nil {
		if cmd.ProcessState != nil {
			if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
				return fmt.Errorf("%w (signal %v)", ErrDied, s.Signal())
			}
			if cmd.ProcessState.ExitCode() == helperDied {
				return ErrDied
			}
		}
		return fmt.Errorf("the load helper gave no answer: %w", errors.Join(err, errors.New(out.String())))
	}
	if answer.Errno != 0 {
		return syscall.Errno(answer.Errno)
	}
	return nil
}
