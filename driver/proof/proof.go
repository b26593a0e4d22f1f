package proof

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/deadline"
	"github.com/acceld/acceld/host"
)

const (
	// program is the program that computes; it lies beside the agent's own.
	program = "acceld-prove"
	// usual is how long one device may take if the definition does not say.
	usual = 30 * time.Second
	// dying is how long a killed program may take to exit before it is considered to hang in the kernel.
	dying = 5 * time.Second
)

// Options of a [Prover].
type Options struct {
	Host *host.Host
	// Operations remember the programs that hang in the kernel.
	Operations *deadline.Operations
	// Beside is the directory of the agent's own programs, in this process's file system.
	Beside string
	// Ours reports whether a process belongs to acceld, so that it does not count as a user of a device; nil if none
	// does.
	Ours func(pid int) bool
}

// Prover runs self-tests. It is safe for concurrent use.
type Prover struct {
	o Options

	mu      sync.Mutex
	running map[int]bool // by PID
}

// New returns a Prover.
func New(o Options) *Prover { return &Prover{o: o, running: map[int]bool{}} }

// Device is a device that should compute.
type Device struct {
	// ID is its PCI address, or the ID of a partition; empty means the only device that the library has.
	ID string
	// UUID is the name by which the interface can be shown this device or partition alone; empty if it is not known.
	UUID string
	// Part means that it is a partition: the library is shown nothing else.
	Part bool
	// Divided means that the device was divided before it was reset or got a new driver. It has no partitions now, and
	// may need some before the library sees it.
	Divided bool
	// Nodes are its own device nodes, Shared those that it needs and shares.
	Nodes, Shared []accel.DeviceNode
	// Libraries is a directory that the loader searches first, as the host sees it; empty for the host's own alone.
	Libraries string
}

// Outcome is what came of one self-test. If both Skipped and Problem are empty, the device has computed.
type Outcome struct {
	Line accel.ProofLine
	// Skipped says why the test did not take place; that speaks neither for nor against the device.
	Skipped string
	// Problem is why the device did not pass.
	Problem *accel.Problem
}

// Prove lets one device compute. A library may show partitions of another device in place of a whole one (CUDA does:
// NVIDIA MIG user guide, "CUDA device enumeration"); then it is asked again, for this device alone.
func (p *Prover) Prove(ctx context.Context, c *accel.CheckProgram, d Device) Outcome {
	only := ""
	if d.Part {
		if only = d.UUID; only == "" {
			return Outcome{Skipped: "its UUID is not known, by which alone the library sees it"}
		}
	}
	o := p.attempt(ctx, c, d, only)
	if unseen(o) && only == "" && d.UUID != "" && c.ByUUID() {
		o = p.attempt(ctx, c, d, d.UUID)
	}
	if unseen(o) && d.Divided {
		return Outcome{Line: o.Line, Skipped: "it was divided, and the library does not see it before it is again"}
	}
	return o
}

// unseen reports whether a self-test failed because the library does not have the device.
func unseen(o Outcome) bool {
	return o.Problem != nil && o.Line.Fault != nil && o.Line.Fault.Kind == accel.FaultNoDevice
}

// attempt runs the program once. If only is not empty, it is the UUID of all that the library may see.
func (p *Prover) attempt(ctx context.Context, c *accel.CheckProgram, d Device, only string) Outcome {
	limit, err := time.ParseDuration(c.Timeout)
	if err != nil { // it is empty, or was validated when the definition was read
		limit = usual
	}
	got := make(chan Outcome, 1)
	err = p.o.Operations.Within(ctx, limit+dying, program+" "+d.ID, func() error {
		got <- p.run(ctx, limit, c, d, only)
		return nil
	})
	switch {
	case errors.Is(err, deadline.ErrNoAnswer):
		return failed(accel.CheckFailed, "device %q did not compute through %s: %s hangs in the kernel: %v", d.ID,
			c.API, program, err)
	case err != nil:
		return failed(accel.CheckNotRun, "the self-test of device %q was not finished: %v", d.ID, err)
	}
	return <-got
}

// run starts the program and judges what it says.
func (p *Prover) run(ctx context.Context, limit time.Duration, c *accel.CheckProgram, d Device, only string) Outcome {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	seed := rand.Uint64()
	argv := []string{
		filepath.Join(p.o.Beside, program), "-api", c.API, "-library", c.Library, "-device", d.ID,
		"-uuid", only, "-seed", strconv.FormatUint(seed, 10),
	}
	cmd, release, err := p.o.Host.Programs().Own(limited, argv)
	if err != nil {
		return p.absent(c, d, err)
	}
	defer release()
	cmd.Dir, cmd.Env = "/", append(cmd.Env, c.Env...)
	if d.Libraries != "" {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+d.Libraries)
	}
	p.unprivileged(cmd, d)
	pid := 0
	left, err := host.Finish(cmd, longest, func(started int) {
		pid = started
		p.note(pid, true)
	})
	defer p.note(pid, false)
	switch {
	case err != nil:
		return p.absent(c, d, err)
	case ctx.Err() != nil:
		return failed(accel.CheckNotRun, "the self-test of device %q was called off: %v", d.ID, ctx.Err())
	case limited.Err() != nil:
		return failed(accel.CheckFailed, "device %q did not compute through %s within %v", d.ID, c.API, limit)
	}
	line, err := parse(left, d.ID, seed)
	if err != nil {
		return failed(accel.CheckNotRun, "device %q did not compute through %s: %s %v", d.ID, c.API, program, err)
	}
	return p.judge(c, d, line)
}

// absent is the outcome if the program cannot be started.
func (p *Prover) absent(c *accel.CheckProgram, d Device, err error) Outcome {
	if c.Optional && errors.Is(err, fs.ErrNotExist) {
		return Outcome{Skipped: fmt.Sprintf(
			"%s is not beside acceld, or the host does not have the C library that it needs", program)}
	}
	return failed(accel.CheckNotRun, "device %q could not be asked to compute: %v", cmp.Or(d.ID, "the only one"), err)
}

// note remembers which processes are programs of this Prover.
func (p *Prover) note(pid int, runs bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if runs {
		p.running[pid] = true
	} else {
		delete(p.running, pid)
	}
}

// ours reports whether a process belongs to acceld.
func (p *Prover) ours(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running[pid] || p.o.Ours != nil && p.o.Ours(pid)
}

func failed(reason accel.Reason, format string, args ...any) Outcome {
	return Outcome{Problem: accel.Problemf(reason, format, args...)}
}
