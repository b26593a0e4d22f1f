package agent

import (
	"context"
	"log/slog"
	"path"
	"reflect"
	"time"

	"github.com/acceld/acceld/accel"
)

// installing is how long nothing may change below /lib/modules before a new kernel is looked at: its package, the
// package of its headers and their scripts follow each other.
const installing = 10 * time.Second

// AheadOptions are what [Ahead] works with.
type AheadOptions struct {
	Machine func() accel.Machine
	// Installed returns the releases of the kernels that are installed.
	Installed func() []string
	// Preflight gets the driver of a definition ready for an installed kernel, and may take as long as a build.
	Preflight func(ctx context.Context, def *accel.Definition, facts accel.Facts, release string) accel.Readiness
	// Tell takes the answers for one kind, by release.
	Tell func(ctx context.Context, kind string, next map[string]accel.Readiness)
	// Watch is host.Host's.
	Watch func(ctx context.Context, names ...string) (<-chan string, error)
	Log   *slog.Logger
}

// Ahead is the task that gets drivers ready for kernels that are installed and newer than the running one, so that what
// a reboot would find is known, and in the store, before it. A kernel is asked for once; one whose answer was no again
// when something of it changes.
type Ahead struct {
	o     AheadOptions
	wake  chan struct{}
	ready chan struct{}
	// answers are what was found; Run's.
	answers map[string]map[string]answered
}

// answered is one answer and what it is about.
type answered struct {
	driver accel.DriverDefinition
	accel.Readiness
}

// NewAhead returns the task.
func NewAhead(o AheadOptions) *Ahead {
	return &Ahead{o: o, wake: make(chan struct{}, 1), ready: make(chan struct{}), answers: map[string]map[string]answered{}}
}

// String names the task.
func (a *Ahead) String() string { return "kernels ahead" }

// Ready is closed at once: nobody waits for a kernel that does not run.
func (a *Ahead) Ready() <-chan struct{} { return a.ready }

// Wake tells that a kind's driver works now, or another one is wanted.
func (a *Ahead) Wake() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run looks at the installed kernels whenever they change.
func (a *Ahead) Run(ctx context.Context) error {
	close(a.ready)
	for again := true; again; {
		again = a.round(ctx)
	}
	return nil
}

// round looks once and waits for the next change; false when ctx has ended.
func (a *Ahead) round(ctx context.Context) bool {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	kernels := a.o.Installed()
	dirs := []string{"/lib/modules"}
	for _, release := range kernels {
		dirs = append(dirs, path.Join("/lib/modules", release))
	}
	changes, err := a.o.Watch(watching, dirs...)
	if err != nil {
		a.o.Log.Warn("new kernels will not be noticed", "error", err)
	}
	a.look(ctx, kernels)
	select {
	case <-ctx.Done():
		return false
	case <-a.wake:
		return true
	case <-changes:
	}
	for quiet := time.NewTimer(installing); ; {
		select {
		case <-ctx.Done():
			return false
		case <-changes:
			quiet.Reset(installing)
		case <-quiet.C:
			return true
		}
	}
}

// look asks for every kind whose driver works and every newer kernel that has no good answer yet.
func (a *Ahead) look(ctx context.Context, kernels []string) {
	m := a.o.Machine()
	for kind, def := range m.Want.Kinds {
		if !m.Have[kind].Driver.Right {
			continue
		}
		before, next := a.answers[kind], map[string]answered{}
		for _, release := range kernels {
			if accel.Natural(release, m.Facts.Kernel.Release) <= 0 || ctx.Err() != nil {
				continue
			}
			if was, known := before[release]; known && was.Problem == nil && reflect.DeepEqual(was.driver, def.Driver) {
				next[release] = was
				continue
			}
			r := a.o.Preflight(ctx, def, m.Facts, release)
			if ctx.Err() != nil {
				return
			}
			next[release] = answered{def.Driver, r}
			if r.Problem != nil {
				a.o.Log.Warn("an installed kernel would have no driver", "kind", kind, "kernel", release, "reason", r.Problem.Reason, "message", r.Problem.Message)
			} else {
				a.o.Log.Info("driver ready for an installed kernel", "kind", kind, "kernel", release, "key", r.Key)
			}
		}
		a.answers[kind] = next
		told := map[string]accel.Readiness{}
		for release, x := range next {
			told[release] = x.Readiness
		}
		if len(before)+len(told) > 0 {
			a.o.Tell(ctx, kind, told)
		}
	}
}

// Preflighted takes over what is known about a kind's driver for other kernels.
func (l *Loop) Preflighted(ctx context.Context, kind string, next map[string]accel.Readiness) {
	select {
	case l.done <- outcome{kind: kind, merge: setNext(next)}:
	case <-ctx.Done():
	}
}

func setNext(next map[string]accel.Readiness) func(*kind) {
	return func(k *kind) { k.next = next }
}
