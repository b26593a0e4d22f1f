package cli

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/dra"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
)

// kubeletDir is where a kubelet keeps its configuration and its books, and makes the directory of device plugins.
const kubeletDir = "/var/lib/kubelet"

// watch starts everything that wakes the loop: the kernel's events and the files that the steps read or wrote.
func (a *running) watch(ctx context.Context, facts accel.Facts) error {
	events, err := a.host.Uevents(ctx)
	if err != nil {
		return accel.Problemf(accel.ReasonForError(err, accel.InternalError), "cannot listen to the kernel's events: %v", err)
	}
	a.group.Go(func() {
		for e := range events {
			if concerns(e) {
				a.loop.Wake(false)
			}
		}
	})
	if err := a.followResets(ctx); err != nil {
		return err
	}
	return a.followSteps(ctx, a.defs, facts)
}

// followSteps watches the files that the steps of the definitions read or write, instead of those of earlier ones.
func (a *running) followSteps(ctx context.Context, defs map[string]*accel.Definition, facts accel.Facts) error {
	if a.unfollow != nil {
		a.unfollow()
	}
	ctx, a.unfollow = context.WithCancel(ctx)
	// What a step wrote: somebody else's change of it is drift.
	written := append(a.runtime.Paths(), "/dev")
	// What a step reads: a change of it may help one that failed.
	read := append(a.runtime.Sources(), "/lib/modules/"+facts.Kernel.Release, kubeletDir)
	for _, def := range defs {
		read = append(read, source.Dirs(def, facts)...)
	}
	if err := a.follow(ctx, written, false, routine); err != nil {
		return err
	}
	if err := a.follow(ctx, read, true, routine); err != nil {
		return err
	}
	return a.followEngines(ctx, facts.Runtime)
}

// refollow is followSteps while the agent runs.
func (a *running) refollow(ctx context.Context, defs map[string]*accel.Definition) {
	if err := a.followSteps(ctx, defs, a.loop.Machine().Facts); err != nil {
		a.log.Warn("changes of the files that steps read will be seen late", "error", err)
	}
}

// follow wakes the loop when an entry of one of the directories changes that is none to pass over.
func (a *running) follow(ctx context.Context, dirs []string, helps bool, passOver func(name string) bool) error {
	changes, err := a.host.Watch(ctx, dirs...)
	if err != nil {
		return fmt.Errorf("cannot watch %s: %w", strings.Join(dirs, ", "), err)
	}
	a.group.Go(func() {
		for name := range changes {
			if !passOver(name) {
				a.loop.Wake(helps)
			}
		}
	})
	return nil
}

// followEngines watches where a container runtime would make its socket, on a host that has none yet.
func (a *running) followEngines(ctx context.Context, now accel.ContainerEngine) error {
	if now.Name != "" {
		return nil // its own socket is among what the steps read
	}
	sockets := detect.EngineSockets()
	var dirs []string
	for _, s := range sockets {
		dirs = append(dirs, path.Dir(s))
	}
	slices.Sort(dirs)
	return a.follow(ctx, slices.Compact(dirs), true, func(name string) bool { return !slices.Contains(sockets, name) && !slices.Contains(dirs, name) })
}

// see has other files watched when the host has got a container runtime, or another one, or what sources may be named after is known.
func (a *running) see(facts accel.Facts) {
	now := facts.Runtime
	if now.Name == a.engine.Name && now.Endpoint == a.engine.Endpoint && now.Config == a.engine.Config && facts.Cluster == a.cluster {
		return
	}
	a.engine, a.cluster = now, facts.Cluster
	select {
	case a.moved <- struct{}{}:
	default: // it is to look already
	}
}

// routine reports whether a file comes and goes with every pod, so that its change says nothing about this host: what is made
// beside its place first, the specs of claims, which their plugin looks after, and the kubelet's own books
// (pkg/kubelet/allocation, kuberuntime, cm: allocated_pods_state, dra_manager_state and others; checkpointmanager writes
// them under a name with a dot first). Nobody is to read the whole machine for a pod, nor try again what has failed.
func routine(name string) bool {
	dir, base := path.Split(name)
	books := dir == kubeletDir+"/" && (strings.HasPrefix(base, ".") || strings.HasSuffix(base, "_state"))
	return books || ledger.Passing(name) || dra.ClaimSpec(name)
}

// concerns reports whether an event can be about an accelerator: the PCI bus, a module, or anything below a PCI
// function, such as the device nodes of a driver.
func concerns(e host.Uevent) bool {
	return e.Action == host.UeventOverflow || e.Subsystem == "pci" || e.Subsystem == "module" || strings.HasPrefix(e.DevPath, "/devices/pci")
}

// drivers names the drivers that work, and what is wanted of each kind.
func drivers(m accel.Machine) string {
	var b strings.Builder
	for _, kind := range sorted(m.Want.Kinds) {
		if m.Have[kind].Driver.Right {
			fmt.Fprintf(&b, "%s %s; ", kind, m.Want.Kinds[kind].Driver.Version)
		}
	}
	return b.String()
}

// preflightFor gets the driver of a definition ready for a kernel that is installed.
func (a *running) preflightFor(ctx context.Context, def *accel.Definition, facts accel.Facts, release string) accel.Readiness {
	facts.Kernel, _ = detect.InstalledKernel(a.host, release, facts.Kernel) // what it lacks is in the answer
	r := a.driver.Preflight(ctx, def, facts, driver.PreflightOptions{})
	return accel.Readiness{Key: r.Key, Problem: r.Problem, Checked: time.Now()}
}
