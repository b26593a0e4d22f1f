package probe

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/pace"
)

const (
	// usual is how long a program may be silent if its definition does not say.
	usual = 30 * time.Second
	// longest is the maximum length of a line, in bytes: sixteen devices with seven partitions each take 40 kB.
	longest = 1 << 20
	// dying is how long to wait for a killed program before it is considered to hang in the kernel.
	dying = 5 * time.Second
	// settled is the run time after which the next exit counts as a first failure again.
	settled = time.Minute
)

// program is the program of one kind, whether or not it runs.
type program struct {
	o    Options
	kind string
	end  context.CancelFunc
	book book
	divisions
	sets sets
	ctx  context.Context //nolint:containedctx // run's context: divisions end with it
	// news wakes run when the requirements have changed.
	news chan struct{}

	mu     sync.Mutex
	def    *accel.Definition
	bound  []string // addresses that the kind's driver is bound to; nil before the first want
	pauses int
	pid    int           // 0 while none runs
	idle   chan struct{} // closed while none runs
	said   string        // the last message that was logged
}

func newProgram(o Options, def *accel.Definition) *program {
	idle := make(chan struct{})
	close(idle)
	p := &program{o: o, kind: def.Kind, def: def, news: make(chan struct{}, 1), idle: idle}
	p.divisions = divisions{of: map[string]*division{}, asks: make(chan accel.ProbeRequest)}
	p.book = book{changed: o.Changed, metrics: map[string]bool{}}
	for _, name := range o.Metrics {
		p.book.metrics[name] = true
	}
	p.remember()
	return p
}

// want sets the definition and the devices for which the program must run; bound is not nil.
func (p *program) want(def *accel.Definition, bound []string) {
	p.mu.Lock()
	changed := p.bound == nil || key(p.def, p.bound) != key(def, bound) || p.def.Probe.Silence != def.Probe.Silence
	p.def, p.bound = def, bound
	p.mu.Unlock()
	if changed {
		p.wake()
	}
}

func (p *program) wake() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// wish returns what must run; ok is false if nothing must.
func (p *program) wish() (def *accel.Definition, bound []string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.def, p.bound, p.pauses == 0 && len(p.bound) > 0
}

func (p *program) pause(ctx context.Context) (resume func()) {
	p.mu.Lock()
	p.pauses++
	idle := p.idle
	p.mu.Unlock()
	p.wake()
	late := time.NewTimer(2 * dying)
	defer late.Stop()
	select {
	case <-idle:
	case <-late.C: // it hangs in the kernel; whoever unloads the driver will name it
	case <-ctx.Done():
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			p.mu.Lock()
			p.pauses--
			p.mu.Unlock()
			p.wake()
		})
	}
}

func (p *program) isRunning(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid == pid && pid != 0
}

// run keeps the program running while it is wanted, until ctx ends.
func (p *program) run(ctx context.Context) error {
	defer p.book.forget()
	for failures := 0; ctx.Err() == nil; {
		def, bound, ok := p.wish()
		if !ok {
			switch {
			case bound == nil: // nobody has said yet what is wanted
			case len(bound) == 0:
				p.book.forget()
				p.keep(nil)
			default:
				p.book.pause(bound)
			}
			failures = 0
			select {
			case <-p.news:
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		err := p.once(ctx, def, bound)
		switch {
		case err == nil: // the requirements have changed
			failures = 0
			continue
		case time.Since(began) > settled:
			failures, p.said = 0, ""
		}
		failures++
		wait := p.o.Backoff.After(failures)
		var gone absence
		if errors.As(err, &gone) {
			p.book.forget()
			wait = pace.Jitter(p.o.Backoff.Max) // installing a library causes no event
		}
		p.book.ended(err.Error(), silence(def))
		if ctx.Err() == nil {
			p.complain(err, wait)
		}
		p.rest(ctx, wait, silence(def))
	}
	return nil
}

// rest waits, or returns early if the requirements change, and calls Changed when the earlier reports expire.
func (p *program) rest(ctx context.Context, wait, stale time.Duration) {
	again, old := time.NewTimer(wait), time.NewTimer(p.book.left(stale))
	defer again.Stop()
	defer old.Stop()
	for {
		select {
		case <-again.C:
			return
		case <-p.news:
			return
		case <-ctx.Done():
			return
		case <-old.C:
			p.o.Changed()
		}
	}
}

// complain logs why the program does not run, once for each reason.
func (p *program) complain(err error, wait time.Duration) {
	if p.said == err.Error() {
		return
	}
	p.said = err.Error()
	var gone absence
	if errors.As(err, &gone) {
		p.o.Log.Info("probe program has nothing to ask", "kind", p.kind, "message", p.said)
		return
	}
	p.o.Log.Warn("probe program does not run", "kind", p.kind, "error", p.said, "again", wait.Round(time.Millisecond))
}

// absence is a program's message that there is nothing to watch.
type absence string

func (a absence) Error() string { return string(a) }

// once starts the program and listens to it. It returns nil if the program was ended because the requirements changed,
// and otherwise why it does not run.
func (p *program) once(ctx context.Context, def *accel.Definition, bound []string) error {
	alive, kill := context.WithCancel(ctx)
	defer kill()
	if !p.occupy() {
		return nil
	}
	defer p.vacate()
	child, err := reside(alive, p.o.Host, p.o.Beside, def)
	if err != nil {
		return err
	}
	defer child.Input.Close()
	p.mu.Lock()
	p.pid = child.PID
	p.mu.Unlock()
	wanted, why := p.listen(alive, def, bound, child)
	if why == nil && wanted { // it has closed its output, so it is about to exit by itself
		select {
		case <-child.Ended():
		case <-time.After(time.Second):
		}
	}
	kill()
	late := time.NewTimer(dying)
	defer late.Stop()
	select {
	case <-child.Ended():
	case <-late.C:
		p.book.hangs(fmt.Sprintf("%s hangs in the kernel since %s and cannot be ended", filepath.Base(def.Probe.Argv[0]),
			time.Now().Format("15:04:05")))
		p.o.Changed()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// A second instance would hang in the same place.
		select {
		case <-child.Ended():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	switch {
	case !wanted:
		return nil
	case why != nil:
		return why
	}
	return fmt.Errorf("%s has ended: %s", filepath.Base(def.Probe.Argv[0]), child.Err())
}

// occupy marks a program as about to run; it returns false if the program is paused.
func (p *program) occupy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pauses > 0 {
		return false
	}
	p.idle = make(chan struct{})
	return true
}

func (p *program) vacate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid = 0
	close(p.idle)
}

// listen processes what the program writes until it ends, falls silent, sends something invalid or is no longer
// wanted.
func (p *program) listen(ctx context.Context, def *accel.Definition, bound []string, child *host.Resident) (wanted bool,
	why error,
) {
	lines := make(chan []byte)
	guard.Go(func() {
		defer close(lines)
		defer child.Output.Close()
		scan := bufio.NewScanner(child.Output)
		scan.Buffer(make([]byte, 0, 64<<10), longest)
		for scan.Scan() {
			select {
			case lines <- append([]byte(nil), scan.Bytes()...):
			case <-ctx.Done():
				return
			}
		}
		if errors.Is(scan.Err(), bufio.ErrTooLong) {
			select {
			case lines <- nil:
			case <-ctx.Done():
			}
		}
	})
	name, limit := filepath.Base(def.Probe.Argv[0]), silence(def)
	quiet := time.NewTimer(limit)
	defer quiet.Stop()
	introduced := false
	for {
		asks := p.asks
		if !introduced || !p.book.reported() {
			asks = nil // the request is from before what it will report
		}
		select {
		case line, more := <-lines:
			if !more {
				return true, nil
			}
			quiet.Reset(limit)
			if err := p.take(def, bound, line, &introduced); err != nil {
				return true, fmt.Errorf("%s: %w", name, err)
			}
		case r := <-asks:
			if err := tell(child, r); err != nil {
				return true, fmt.Errorf("%s does not listen: %w", name, err)
			}
		case <-quiet.C:
			return true, fmt.Errorf("%s has said nothing for %s", name, limit)
		case <-p.news:
			if now, boundNow, ok := p.wish(); !ok || key(now, boundNow) != key(def, bound) || silence(now) != limit {
				return false, nil
			}
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
}

// tell writes a request to a program. If the program does not read, the pipe buffers some requests before tell fails.
func tell(child *host.Resident, r accel.ProbeRequest) error {
	b, err := json.Marshal(r)
	if err == nil {
		err = child.Input.SetWriteDeadline(time.Now().Add(time.Second))
	}
	if err == nil {
		_, err = child.Input.Write(append(b, '\n'))
	}
	return err
}

// take processes one line.
func (p *program) take(def *accel.Definition, bound []string, text []byte, introduced *bool) error {
	var line accel.ProbeLine
	if text == nil {
		return fmt.Errorf("a line is longer than %d bytes", longest)
	}
	if err := json.Unmarshal(text, &line); err != nil {
		return fmt.Errorf("a line cannot be read: %v", err)
	}
	switch h := line.Hello; {
	case h != nil && h.Protocol != accel.ProbeProtocol:
		return fmt.Errorf("it speaks version %d of the protocol, this agent %d", h.Protocol, accel.ProbeProtocol)
	case h != nil:
		*introduced = true
		p.book.meet(clean(h.Program), bound, silence(def))
	case !*introduced:
		return errors.New("its first line is no hello")
	case line.Absent != "":
		return absence(clean(line.Absent))
	case line.Fault != nil:
		p.book.alive()
		f := *line.Fault
		f.Code, f.Text = clean(f.Code), clean(f.Text)
		if f.At.IsZero() || f.At.After(time.Now()) {
			f.At = time.Now()
		}
		if p.boundTo(f.Device) && f.Code != "" {
			p.o.Fault(def, f)
		}
	case line.Divided != nil:
		p.book.alive()
		p.answered(*line.Divided)
	case line.Set != nil:
		p.book.alive()
		p.sets.answered(*line.Set)
	default:
		if p.book.hear(line) && line.Snapshot != nil {
			p.keep(line.Snapshot)
		}
	}
	return nil
}

// boundTo reports whether the kind's driver is bound to a device.
func (p *program) boundTo(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.bound, id)
}

// silence returns how long the program of a definition may be silent.
func silence(def *accel.Definition) time.Duration {
	d, _ := time.ParseDuration(def.Probe.Silence) // validated when the definition was read
	return cmp.Or(d, usual)
}
