package driver

import (
	"context"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/store"
)

// PreflightOptions change how [Driver.Preflight] works.
type PreflightOptions struct {
	// Discard removes what was built or fetched to find the answer.
	Discard bool
}

// PreflightResult says what a reboot into a kernel will find for one kind.
type PreflightResult struct {
	Kind   string `json:"kind"`
	Kernel string `json:"kernel"` // uname -r
	// Ready is true if a driver is available for that kernel and passes every check that does not need the kernel to
	// run.
	Ready bool `json:"ready"`
	// Source is where the driver is, or came from: "store", "installed", "build" or another source of the definition.
	Source  accel.SourceType `json:"source,omitempty"`
	Version string           `json:"version,omitempty"`
	// Key is the store entry that the reboot will use; empty for an installed driver, and for one that was discarded.
	Key string `json:"key,omitempty"`
	// Seconds is how long the preflight took.
	Seconds float64 `json:"seconds"`
	// Problem says why the kind will have no driver; its Tried lists what each source answered.
	Problem *accel.Problem `json:"problem,omitempty"`
}

// Preflight checks whether a kernel will have a driver, without loading one. facts.Kernel is that kernel, which may
// be running or only installed. Preflight asks the sources in the order in which the boot will ask them. What must be
// built or fetched is therefore in the store afterwards, checked against that kernel's own files, and the boot only
// has to load it.
func (d *Driver) Preflight(ctx context.Context, def *accel.Definition, facts accel.Facts,
	o PreflightOptions,
) PreflightResult {
	start := time.Now()
	r := PreflightResult{Kind: def.Kind, Kernel: facts.Kernel.Release}
	before := d.store.Keys()
	r.Problem = d.preflight(ctx, def, facts, &r)
	r.Ready = r.Problem == nil
	if o.Discard && r.Key != "" && !slices.Contains(before, r.Key) {
		if err := d.h.RemoveAll(d.store.EntryDir(r.Key)); err != nil {
			d.log.Warn("cannot remove a driver that was not to be kept", "key", r.Key, "error", err)
		} else {
			r.Key = ""
		}
	}
	r.Seconds = time.Since(start).Seconds()
	return r
}

func (d *Driver) preflight(ctx context.Context, def *accel.Definition, facts accel.Facts,
	r *PreflightResult,
) *accel.Problem {
	if store.KernelID(facts.Kernel) == "" {
		return accel.Problemf(accel.KernelUnknown,
			"cannot tell which build of kernel %q is installed: what is stored for it could be for another",
			facts.Kernel.Release)
	}
	def, problem := d.sources.Resolve(ctx, def, facts)
	if problem != nil {
		return problem
	}
	p, problem := d.sources.Preflight(ctx, def, facts)
	if problem != nil {
		return problem
	}
	defer p.Close()
	r.Source, r.Version, r.Key = p.Source, p.Version(), p.Key
	return nil
}
