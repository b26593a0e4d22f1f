package probe

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/pace"
)

// Options of a [Supervisor].
type Options struct {
	Host *host.Host
	// Beside is the directory of the agent's own programs, in this process's file system.
	Beside string
	// Dir is where the last reports of programs are kept on the host until the next boot, such as "/run/acceld/probe";
	// empty to keep none.
	Dir string
	// Metrics lists the allowed names of readings.
	Metrics []string
	// Changed is called when the reports about devices have changed; it must not block.
	Changed func()
	// Fault is called for each error that a program reports.
	Fault func(*accel.Definition, accel.ProbeFault)
	// Users names, for people, the pods that hold a device or a part of it. If it is nil, users are unknown and no
	// device is divided.
	Users func(context.Context, *accel.Definition, accel.Accelerator) []string
	// Log receives failures; nil discards them.
	Log *slog.Logger
	// Backoff is the delay before a program that exited is restarted; zero means 1 s to 5 min.
	Backoff pace.Backoff
}

// Supervisor runs the programs of all kinds. It is a task, and safe for concurrent use.
type Supervisor struct {
	o     Options
	ready chan struct{}
	once  sync.Once

	mu       sync.Mutex
	begin    func(*program) // starts running a program; nil before Run
	programs map[string]*program
}

// New returns a supervisor that runs nothing yet.
func New(o Options) *Supervisor {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Backoff == (pace.Backoff{}) {
		o.Backoff = pace.Backoff{First: time.Second, Max: 5 * time.Minute}
	}
	return &Supervisor{o: o, ready: make(chan struct{}), programs: map[string]*program{}}
}

// String names the task.
func (k *Supervisor) String() string { return "probe programs" }

// Ready is closed when programs may run. It does not wait for their reports.
func (k *Supervisor) Ready() <-chan struct{} { return k.ready }

// Run runs programs until ctx ends, then kills them. A program that hangs in the kernel is left behind after a short
// wait.
func (k *Supervisor) Run(ctx context.Context) error {
	var group guard.Group
	k.beginWith(func(p *program) {
		ctx, end := context.WithCancel(ctx)
		p.ctx, p.end = ctx, end
		group.Keep(ctx, "probe program of "+p.kind, p.run)
	})
	k.once.Do(func() { close(k.ready) })
	<-ctx.Done()
	k.beginWith(nil)
	group.Wait()
	return nil
}

// beginWith sets the function that starts a program, or nil, and starts the programs that there are. A panic in it must
// release the lock, because every pass of the loop takes it.
func (k *Supervisor) beginWith(begin func(*program)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.begin = begin; begin == nil {
		return
	}
	for _, p := range k.programs {
		begin(p)
	}
}

// Enrich applies the program's reports to the devices of a kind. It also withholds devices if it is not yet known how
// they are divided, or if they must be divided differently, and divides the latter once no pod holds them. From the
// devices it learns whether the program is wanted: it is while the kind's driver is bound to a device. The result is
// accs.
func (k *Supervisor) Enrich(def *accel.Definition, accs []accel.Accelerator) []accel.Accelerator {
	if def.Probe == nil {
		return accs
	}
	bound := []string{}
	for _, a := range accs {
		if a.Present() && a.Bound != "" && a.Bound == def.Driver.Binds {
			bound = append(bound, a.ID)
		}
	}
	slices.Sort(bound)
	p := k.of(def)
	p.want(def, bound)
	for i := range accs {
		a := &accs[i]
		if !slices.Contains(bound, a.ID) {
			continue
		}
		switch l := p.book.complete(k.o.Host, def, a); {
		case def.Partitions == nil || !def.Partitions.Told:
		case l.unknown:
			a.Withheld = &accel.Withheld{
				By: accel.ByPartitioning, Reason: accel.ProbeUnanswered,
				Message: "how it is divided is not known yet",
			}
		case k.o.Users != nil:
			p.hold(def, a, l)
		}
	}
	return accs
}

// of returns the program of a kind and creates it on first use.
func (k *Supervisor) of(def *accel.Definition) *program {
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

// known returns the program of a kind, or nil if there is none.
func (k *Supervisor) known(kind string) *program {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.programs[kind]
}

// Keep ends the programs of kinds that are no longer in force or no longer have a probe.
func (k *Supervisor) Keep(kinds map[string]*accel.Definition) {
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

// Readings returns the last readings of a device by the program of its kind; none if the program has fallen silent.
func (k *Supervisor) Readings(kind, id string) map[string]float64 {
	p := k.known(kind)
	if p == nil {
		return nil
	}
	return p.book.readingsOf(id)
}

// State returns the state of the program of a kind; nil if it has none.
func (k *Supervisor) State(kind string) *accel.ProbeHave {
	p := k.known(kind)
	if p == nil {
		return nil
	}
	return p.book.state()
}

// Pause ends the program of a kind, because a running program keeps its devices' driver in use. It returns when the
// program has ended, when ctx has ended, or after 10 s if the program hangs in the kernel. The program runs again
// after resume. Until then, its last reports apply to the devices that keep their driver.
func (k *Supervisor) Pause(ctx context.Context, kind string) (resume func()) {
	p := k.known(kind)
	if p == nil {
		return func() {}
	}
	return p.pause(ctx)
}

// Owns reports whether a process is one of the programs.
func (k *Supervisor) Owns(pid int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.programs {
		if p.isRunning(pid) {
			return true
		}
	}
	return false
}

// key returns the same text for two requirements that one process can meet.
func key(def *accel.Definition, bound []string) string {
	return strings.Join(def.Probe.Argv, "\x00") + "\x00\x00" + strings.Join(bound, " ")
}
