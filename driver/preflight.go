package driver

import (
	"context"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/source"
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

// PreflightAll is Preflight for several kinds, one after the other. It stops early when ctx ends.
func (d *Driver) PreflightAll(ctx context.Context, defs []*accel.Definition, facts accel.Facts) []PreflightResult {
	var out []PreflightResult
	for _, def := range defs {
		if ctx.Err() != nil {
			break
		}
		out = append(out, d.Preflight(ctx, def, facts, PreflightOptions{}))
	}
	return out
}

func (d *Driver) preflight(ctx context.Context, def *accel.Definition, facts accel.Facts,
	r *PreflightResult,
) *accel.Problem {
	if store.KernelID(facts.Kernel) == "" {
		return accel.Problemf(accel.KernelUnknown,
			"cannot tell which build of kernel %q is installed: what is stored for it could be for another",
			facts.Kernel.Release)
	}
	last := accel.Problemf(accel.NoDriverSource, "no source has a driver of %q for kernel %q", def.Kind,
		facts.Kernel.Release)
	var tried []string
	for _, s := range d.sources.For(def, facts, source.Options{}) {
		a := s.Ask(ctx)
		switch a.Verdict {
		case source.Satisfied:
			r.Source, r.Version, r.Key = s.Type, a.Plan.Version(), a.Plan.Key
			a.Plan.Close()
			return nil
		case source.Unavailable:
			if ctx.Err() != nil {
				return a.Problem
			}
			tried = append(tried, source.Sentence(s.Name, source.Unavailable, a.Problem))
			if a.Problem.Reason != accel.NoDriverSource {
				last = a.Problem
			}
		default:
			a.Problem.Tried = slices.Concat(tried, []string{source.Sentence(s.Name, a.Verdict, a.Problem)})
			return a.Problem
		}
	}
	final := accel.Problemf(last.Reason, "%s", last.Message)
	final.Tried = tried
	return final
}
