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

// kernelPreflight prepares drivers for installed kernels that are newer than the running one. So what a reboot would
// find is known, and in the store, before the reboot. It checks a kernel once for each driver definition. If the
// answer was no, it checks again at the next change of a kernel or a driver.
type kernelPreflight struct {
	machine func() accel.Machine
	// installed returns the releases of the kernels that are installed.
	installed func() []string
	// preflight prepares the driver of a definition for an installed kernel. It may take as long as a build.
	preflight func(ctx context.Context, def *accel.Definition, facts accel.Facts, release string) accel.Readiness
	// tell receives the answers for one kind, by kernel release.
	tell func(ctx context.Context, kind string, next map[string]accel.Readiness)
	// watch is the Watch method of host.Host.
	watch func(ctx context.Context, names ...string) (<-chan string, error)
	log   *slog.Logger
	// news has room for one value, which means: check again.
	news chan struct{}
	// answers are the results so far, by kind and release. Only run uses them.
	answers map[string]map[string]answered
}

// answered is one answer, with the driver definition that it is about.
type answered struct {
	driver accel.DriverDefinition
	accel.Readiness
}

// wake reports that a kind's driver works now, or that the desired driver has changed.
func (k *kernelPreflight) wake() {
	select {
	case k.news <- struct{}{}:
	default:
	}
}

// run checks the installed kernels whenever they change, until ctx ends.
func (k *kernelPreflight) run(ctx context.Context) error {
	k.answers = map[string]map[string]answered{}
	for k.round(ctx) {
	}
	return nil
}

// round checks once and waits for the next change. It returns false when ctx has ended.
func (k *kernelPreflight) round(ctx context.Context) bool {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	kernels := k.installed()
	dirs := []string{"/lib/modules"}
	for _, release := range kernels {
		dirs = append(dirs, path.Join("/lib/modules", release))
	}
	changes, err := k.watch(watching, dirs...)
	if err != nil {
		k.log.Warn("new kernels will not be noticed", "error", err)
	}
	k.look(ctx, kernels)
	select {
	case <-ctx.Done():
		return false
	case <-k.news:
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
func (k *kernelPreflight) look(ctx context.Context, kernels []string) {
	m := k.machine()
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
			r := k.preflight(ctx, def, m.Facts, release)
			if ctx.Err() != nil {
				return
			}
			next[release] = answered{def.Driver, r}
			if r.Problem != nil {
				k.log.Warn("an installed kernel would have no driver", "kind", kind, "kernel", release,
					"reason", r.Problem.Reason, "message", r.Problem.Message)
			} else {
				k.log.Info("driver ready for an installed kernel", "kind", kind, "kernel", release, "key", r.Key)
			}
		}
		k.answers[kind] = next
		told := map[string]accel.Readiness{}
		for release, x := range next {
			told[release] = x.Readiness
		}
		if len(before)+len(told) > 0 {
			k.tell(ctx, kind, told)
		}
	}
}
