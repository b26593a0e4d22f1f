package probe

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/pace"
)

// Options of a [Keeper].
type Options struct {
	Host *host.Host
	// Beside is the directory of the agent's own programs, in this process's file system.
	Beside string
	// Dir is where the host keeps what programs have said until the next boot, such as "/run/acceld/probe"; empty for
	// nowhere.
	Dir string
	// Metrics are the names that readings may have.
	Metrics []string
	// Changed is called when something else is to be said of devices; it must not block.
	Changed func()
	// Fault is called for each error that a program reports.
	Fault func(*accel.Definition, accel.ProbeFault)
	// Users names the pods that hold a device or a part of it, for people; nil: nobody knows, and no device is divided.
	Users func(context.Context, *accel.Definition, accel.Accelerator) []string
	// Log gets what does not run; nil discards it.
	Log *slog.Logger
	// Backoff is how long a program waits that has ended; zero is 1 s to 5 min.
	Backoff pace.Backoff
}

// Keeper runs the programs of all kinds. It is safe for concurrent use, and a task.
type Keeper struct {
	o     Options
	ready chan struct{}
	once  sync.Once

	mu       sync.Mutex
	begin    func(*program) // starts what runs a program; nil before Run
	programs map[string]*program
}

// New returns a keeper that runs nothing yet.
func New(o Options) *Keeper {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Fault == nil {
		o.Fault = func(*accel.Definition, accel.ProbeFault) {}
	}
	if o.Backoff == (pace.Backoff{}) {
		o.Backoff = pace.Backoff{First: time.Second, Max: 5 * time.Minute}
	}
	return &Keeper{o: o, ready: make(chan struct{}), programs: map[string]*program{}}
}

// String names the task.
func (k *Keeper) String() string { return "probe programs" }

// Ready is closed when programs may run. Nobody waits for what they say.
func (k *Keeper) Ready() <-chan struct{} { return k.ready }

// Run runs programs until ctx ends, and ends them. One that hangs in the kernel is left behind after a moment.
func (k *Keeper) Run(ctx context.Context) error {
	var group sync.WaitGroup
	k.mu.Lock()
	k.begin = func(p *program) {
		ctx, end := context.WithCancel(ctx)
		p.ctx, p.end = ctx, end
		group.Go(func() { p.run(ctx) })
	}
	for _, p := range k.programs {
		k.begin(p)
	}
	k.mu.Unlock()
	k.once.Do(func() { close(k.ready) })
	<-ctx.Done()
	k.mu.Lock()
	k.begin = nil
	k.mu.Unlock()
	group.Wait()
	return nil
}

// Complete puts on the devices of a kind what its program says of them, and learns from them whether the program is
// wanted: it is while the kind's driver is bound to a device. The result is accs.
func (k *Keeper) Complete(def *accel.Definition, accs []accel.Accelerator) []accel.Accelerator {
	if def.Probe == nil {
		return accs
	}
	var bound []string
	for _, a := range accs {
		if a.Present() && a.Bound != "" && a.Bound == def.Driver.Binds {
			bound = append(bound, a.ID)
		}
	}
	slices.Sort(bound)
	p := k.of(def)
	p.want(def, bound)
	for i := range accs {
		p.book.complete(k.o.Host, def, &accs[i])
	}
	return accs
}

// Hold holds back devices of which nobody has said yet how they are divided, and those that are to be divided
// otherwise, and sees to it that these are when no pod has them. It is to be called with devices as health has judged
// them: holding back is no verdict. The result is accs.
func (k *Keeper) Hold(def *accel.Definition, accs []accel.Accelerator) []accel.Accelerator {
	p := k.known(def.Kind)
	if p == nil || def.Partitions == nil || !def.Partitions.Told {
		return accs
	}
	for i, a := range accs {
		switch {
		case !a.Present() || a.Bound == "" || a.Bound != def.Driver.Binds:
		case p.book.undivided(a.ID):
			accs[i].Withheld = &accel.Withheld{
				By: accel.ByPartitioning, Reason: accel.ProbeUnanswered,
				Message: "how it is divided is not known yet",
			}
		case k.o.Users != nil && p.book.current(a.ID):
			p.hold(def, &accs[i])
		}
	}
	return accs
}

// of returns the program of a kind, which is made at first sight.
func (k *Keeper) of(def *accel.Definition) *program {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.programs[def.Kind]
	if p == nil {
		p = newProgram(k.o, def)
		k.programs[def.Kind] = p
		if k.begin != nil {
			k.begin(p)
		}
	}
	return p
}

// known returns the program of a kind; nil when there is none.
func (k *Keeper) known(kind string) *program {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.programs[kind]
}

// Keep ends the programs of kinds that are not among those in force, or have none any more.
func (k *Keeper) Keep(kinds map[string]*accel.Definition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for kind, p := range k.programs {
		if def := kinds[kind]; def == nil || def.Probe == nil {
			if p.end != nil {
				p.end()
			}
			delete(k.programs, kind)
		}
	}
}

// Readings are the numbers that the program of a kind has read from a device last; none when it has fallen silent.
func (k *Keeper) Readings(kind, id string) map[string]float64 {
	p := k.known(kind)
	if p == nil {
		return nil
	}
	return p.book.readingsOf(id)
}

// State is what can be said of the program of a kind; nil when it has none.
func (k *Keeper) State(kind string) *accel.ProbeHave {
	p := k.known(kind)
	if p == nil {
		return nil
	}
	return p.book.state()
}

// Pause ends the program of a kind and returns when it has ended, or ctx has: while it runs, its devices' driver is in
// use. It runs again after resume.
func (k *Keeper) Pause(ctx context.Context, kind string) (resume func()) {
	p := k.known(kind)
	if p == nil {
		return func() {}
	}
	return p.pause(ctx)
}

// Owns reports whether a process is a program's.
func (k *Keeper) Owns(pid int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.programs {
		if p.isRunning(pid) {
			return true
		}
	}
	return false
}

// key is equal for two wishes that the same process can fulfil.
func key(def *accel.Definition, bound []string) string {
	return strings.Join(def.Probe.Argv, "\x00") + "\x00\x00" + strings.Join(bound, " ")
}
