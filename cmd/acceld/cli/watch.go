package cli

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/dra"
	"github.com/acceld/acceld/driver"
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
	written := []string{"/dev"}
	// What a step reads: a change of it may help one that failed.
	read := []string{"/lib/modules/" + facts.Kernel.Release, kubeletDir}
	for _, def := range defs {
		written = append(written, a.runtime.Paths(def)...)
		read = append(read, driver.SourceDirs(def, facts)...)
	}
	if err := a.follow(ctx, written, false); err != nil {
		return err
	}
	return a.follow(ctx, read, true)
}

// follow wakes the loop when an entry of one of the directories changes.
func (a *running) follow(ctx context.Context, dirs []string, helps bool) error {
	changes, err := a.host.Watch(ctx, dirs...)
	if err != nil {
		return fmt.Errorf("cannot watch %s: %w", strings.Join(dirs, ", "), err)
	}
	a.group.Go(func() {
		for name := range changes {
			if !routine(name) {
				a.loop.Wake(helps)
			}
		}
	})
	return nil
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
