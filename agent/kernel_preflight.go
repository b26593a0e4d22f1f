package agent

import (
	"context"
	"log/slog"
	"path"
	"reflect"
	"time"

	"github.com/acceld/acceld/accel"
)

// installing is how long /lib/modules must stay unchanged before the agent looks at a new kernel: the kernel's
// package, its header package and their scripts run one after the other.
const installing = 10 * time.Second

// KernelPreflightOptions are what [KernelPreflight] works with.
type KernelPreflightOptions struct {
	Machine func() accel.Machine
	// Installed returns the releases of the kernels that are installed.
	Installed func() []string
	// Preflight prepares the driver of a definition for an installed kernel. It may take as long as a build.
	Preflight func(ctx context.Context, def *accel.Definition, facts accel.Facts, release string) accel.Readiness
	// Tell receives the answers for one kind, by kernel release.
	Tell func(ctx context.Context, kind string, next map[string]accel.Readiness)
	// Watch is the Watch method of host.Host.
	Watch func(ctx context.Context, names ...string) (<-chan string, error)
	Log   *slog.Logger
}

// KernelPreflight is the task that prepares drivers for installed kernels that are newer than the running one. So
// what a reboot would find is known, and in the store, before the reboot. It checks a kernel once for each driver
// definition. If the answer was no, it checks again at the next change of a kernel or a driver.
type KernelPreflight struct {
	o     KernelPreflightOptions
	wake  chan struct{}
	ready chan struct{}
	// answers are the results so far, by kind and release. Only Run uses them.
	answers map[string]map[string]answered
}

// answered is one answer, with the driver definition that it is about.
type answered struct {
	driver accel.DriverDefinition
	accel.Readiness
}

// NewKernelPreflight returns the task.
func NewKernelPreflight(o KernelPreflightOptions) *KernelPreflight {
	return &KernelPreflight{
		o: o, wake: make(chan struct{}, 1), ready: make(chan struct{}), answers: map[string]map[string]answered{},
	}
}

// String names the task.
func (k *KernelPreflight) String() string { return "kernel preflight" }

// Ready is closed at once: nothing waits for a kernel that does not run.
func (k *KernelPreflight) Ready() <-chan struct{} { return k.ready }

// Wake reports that a kind's driver works now, or that the desired driver has changed.
func (k *KernelPreflight) Wake() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run checks the installed kernels whenever they change.
func (k *KernelPreflight) Run(ctx context.Context) error {
	close(k.ready)
	for again := true; again; {
		again = k.round(ctx)
	}
	return nil
}

// round checks once and waits for the next change. It returns false when ctx has ended.
func (k *KernelPreflight) round(ctx context.Context) bool {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	kernels := k.o.Installed()
	dirs := []string{"/lib/modules"}
	for _, release := range kernels {
		dirs = append(dirs, path.Join("/lib/modules", release))
	}
	changes, err := k.o.Watch(watching, dirs...)
	if err != nil {
		k.o.Log.Warn("new kernels will not be noticed", "error", err)
	}
	k.look(ctx, kernels)
	select {
	case <-ctx.Done():
		return false
	case <-k.wake:
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

// look checks every newer kernel that has no good answer yet, for every kind whose driver works.
func (k *KernelPreflight) look(ctx context.Context, kernels []string) {
	m := k.o.Machine()
	for kind, def := range m.Want.Kinds {
		if !m.Have[kind].Driver.Serves {
			continue
		}
		before, next := k.answers[kind], map[string]answered{}
		for _, release := range kernels {
			if accel.Natural(release, m.Facts.Kernel.Release) <= 0 || ctx.Err() != nil {
				continue
			}
			if was, known := before[release]; known && was.Problem == nil && reflect.DeepEqual(was.driver, def.Driver) {
				next[release] = was
				continue
			}
			r := k.o.Preflight(ctx, def, m.Facts, release)
			if ctx.Err() != nil {
				return
			}
			next[release] = answered{def.Driver, r}
			if r.Problem != nil {
				k.o.Log.Warn("an installed kernel would have no driver", "kind", kind, "kernel", release,
					"reason", r.Problem.Reason, "message", r.Problem.Message)
			} else {
				k.o.Log.Info("driver ready for an installed kernel", "kind", kind, "kernel", release, "key", r.Key)
			}
		}
		k.answers[kind] = next
		told := map[string]accel.Readiness{}
		for release, x := range next {
			told[release] = x.Readiness
		}
		if len(before)+len(told) > 0 {
			k.o.Tell(ctx, kind, told)
		}
	}
}
