package agent

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/dra"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/runtime"
)

// kubeletDir is where a kubelet keeps its configuration and state files, and creates the directory of device plugins.
const kubeletDir = "/var/lib/kubelet"

// watcher wakes the loop when the kernel sends an event, or when a file changes that the steps read or wrote.
type watcher struct {
	host    *host.Host
	runtime *runtime.Runtime
	wake    func(helps bool)
	log     *slog.Logger
	group   *guard.Group
	events  <-chan host.Uevent
	// seen is called with every event.
	seen func(host.Uevent)

	// unfollow ends the watches of the steps' files. Once the agent runs, only the reloader's task uses it.
	unfollow context.CancelFunc
	// engine is the container runtime whose files are watched; cluster is what the names of sources may contain. Only
	// the loop uses them.
	engine  accel.ContainerEngine
	cluster accel.Cluster
	// moved has room for one value, which means: other files must be watched.
	moved chan struct{}
}

// newWatcher returns a watcher that does not watch yet. It adds the goroutines that it starts to group.
func newWatcher(
	s *Setup, r *runtime.Runtime, facts accel.Facts, wake func(helps bool), group *guard.Group,
) *watcher {
	return &watcher{
		host: s.Host, runtime: r, wake: wake, log: s.Log, group: group,
		engine: facts.Runtime, cluster: facts.Cluster, moved: make(chan struct{}, 1),
	}
}

// watch starts to watch everything.
func (w *watcher) watch(ctx context.Context, defs map[string]*accel.Definition, facts accel.Facts) (err error) {
	if w.events, err = w.host.Kernel().Uevents(ctx); err != nil {
		return accel.Problemf(accel.ReasonForError(err, accel.InternalError),
			"cannot listen to the kernel's events: %v", err)
	}
	return w.followSteps(ctx, defs, facts)
}

// run wakes the loop at kernel events that can be about an accelerator, until ctx ends.
func (w *watcher) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.events:
			if !ok {
				return nil
			}
			w.seen(e)
			if concerns(e) {
				w.wake(false)
			}
		}
	}
}

// followSteps watches the files that the steps of the definitions read or write. It replaces earlier watches.
func (w *watcher) followSteps(ctx context.Context, defs map[string]*accel.Definition, facts accel.Facts) error {
	if w.unfollow != nil {
		w.unfollow()
	}
	ctx, w.unfollow = context.WithCancel(ctx)
	// What a step wrote: if something else changes it, that is drift.
	written := append(w.runtime.Paths(), "/dev")
	// What a step reads: a change may help a step that failed.
	read := append(w.runtime.Sources(), "/lib/modules/"+facts.Kernel.Release, kubeletDir)
	for _, def := range defs {
		read = append(read, source.Dirs(def, facts)...)
	}
	if err := w.follow(ctx, written, false, routine); err != nil {
		return err
	}
	if err := w.follow(ctx, read, true, routine); err != nil {
		return err
	}
	return w.followEngines(ctx, facts.Runtime)
}

// refollow calls followSteps while the agent runs.
func (w *watcher) refollow(ctx context.Context, defs map[string]*accel.Definition, facts accel.Facts) {
	if err := w.followSteps(ctx, defs, facts); err != nil {
		w.log.Warn("changes of the files that steps read will be seen late", "error", err)
	}
}

// follow wakes the loop when an entry of one of the directories changes, unless passOver says to ignore it.
func (w *watcher) follow(ctx context.Context, dirs []string, helps bool, passOver func(name string) bool) error {
	changes, err := w.host.Watch(ctx, dirs...)
	if err != nil {
		return fmt.Errorf("cannot watch %s: %w", strings.Join(dirs, ", "), err)
	}
	w.group.Keep(ctx, "changes in "+dirs[0], func(context.Context) error {
		for name := range changes {
			if !passOver(name) {
				w.wake(helps)
			}
		}
		return nil
	})
	return nil
}

// followEngines watches the places where a container runtime creates its socket, if the host has no runtime yet.
func (w *watcher) followEngines(ctx context.Context, now accel.ContainerEngine) error {
	if now.Name != "" {
		return nil // the steps read its socket already
	}
	sockets := detect.EngineSockets()
	var dirs []string
	for _, s := range sockets {
		dirs = append(dirs, path.Dir(s))
	}
	slices.Sort(dirs)
	return w.follow(ctx, slices.Compact(dirs), true, func(name string) bool {
		return !slices.Contains(sockets, name) && !slices.Contains(dirs, name)
	})
}

// see requests other watches when the host gets a container runtime or another one, or when the cluster facts change
// that names of sources contain.
func (w *watcher) see(facts accel.Facts) {
	now := facts.Runtime
	same := now.Name == w.engine.Name && now.Endpoint == w.engine.Endpoint && now.Config == w.engine.Config
	if same && facts.Cluster == w.cluster {
		return
	}
	w.engine, w.cluster = now, facts.Cluster
	select {
	case w.moved <- struct{}{}:
	default: // a request is pending already
	}
}

// routine reports whether a file comes and goes with every pod, so that its change says nothing about this host: the
// ledger's temporary files, the CDI specs of claims, which their plugin manages, and the kubelet's own state files
// (pkg/kubelet/allocation, kuberuntime, cm: allocated_pods_state, dra_manager_state and others; checkpointmanager
// first writes them under a name that starts with a dot). A pod is no reason to read the machine again or to retry
// what has failed.
func routine(name string) bool {
	dir, base := path.Split(name)
	private := dir == kubeletDir+"/" && (strings.HasPrefix(base, ".") || strings.HasSuffix(base, "_state"))
	return private || ledger.Passing(name) || dra.ClaimSpec(name)
}

// concerns reports whether an event can be about an accelerator: one of the subsystems that have some, a module, or
// anything below a PCI function, such as the device nodes of a driver.
func concerns(e host.Uevent) bool {
	return e.Action == host.UeventOverflow || e.Subsystem == "module" || strings.HasPrefix(e.DevPath, "/devices/pci") ||
		slices.Contains(accel.SubsystemNames(), e.Subsystem)
}
