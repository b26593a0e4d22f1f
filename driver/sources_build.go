package driver

import (
	"context"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/build"
	"github.com/acceld/acceld/driver/store"
)

// Build compiles the driver of def from the first build source that is there and puts it into the store, without
// loading it. When the store has exactly what would come out, no compiler runs.
func (d *Driver) Build(ctx context.Context, def *accel.Definition, facts accel.Facts) (store.Entry, *accel.Problem) {
	last := accel.Problemf(accel.NoDriverSource, "the definition of %q has no build source", def.Kind)
	var tried []string
	for _, s := range def.Driver.Sources {
		if s.Type != accel.SourceBuild {
			continue
		}
		e, outcome, problem := d.builder.Build(ctx, def, facts, s, nil)
		if outcome == build.Built {
			return e, nil
		}
		tried = append(tried, sentence("build from "+s.Path, verdictOfBuild(outcome), problem))
		last = problem
		if outcome != build.Unavailable {
			break
		}
	}
	last.Tried = tried
	return store.Entry{}, last
}

// verdictOfBuild is how a build source answers after the work on it.
func verdictOfBuild(o build.Outcome) verdict {
	switch o {
	case build.Built:
		return satisfied
	case build.Unavailable:
		return unavailable
	case build.Refused:
		return refused
	}
	return failed
}

// askBuild compiles the driver, unless the store has exactly what would come out, or another host is at it and
// publishes.
func (d *Driver) askBuild(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.Source, o EnsureOptions) answer {
	if len(sharing(def)) == 0 {
		e, outcome, problem := d.builder.Build(ctx, def, facts, s, nil)
		if outcome != build.Built {
			return answer{verdict: verdictOfBuild(outcome), problem: problem}
		}
		return d.useFetched(def, facts, e, accel.SourceBuild, o)
	}
	x := &election{d: d, def: def, facts: facts, o: o}
	defer x.end()
	if away := x.elsewhere(ctx); away != nil {
		return *away
	}
	compiled := false
	var away *answer
	e, outcome, problem := d.builder.Build(ctx, def, facts, s, func(ctx context.Context, key string) bool {
		away = x.gate(ctx, key)
		compiled = away == nil
		return compiled
	})
	switch {
	case away != nil: // with a plan, when it was there by the time that this host was elected
		return *away
	case outcome != build.Built:
		return answer{verdict: verdictOfBuild(outcome), problem: problem}
	case compiled:
		d.share(def, facts, e, x.release)
		x.release = nil // the publisher's now
	}
	return d.useFetched(def, facts, e, accel.SourceBuild, o)
}
