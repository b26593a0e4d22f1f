package source

import (
	"context"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/build"
	"github.com/acceld/acceld/driver/store"
)

func buildRow() row {
	return row{
		typ: accel.SourceBuild, slow: true, name: func(s accel.Source) string { return "build from " + s.Path },
		ask: (*Sources).askBuild,
	}
}

// Build compiles the driver of def from the first available build source and puts it into the store, without loading
// it. If the store already has exactly that result, no compiler runs.
func (x *Sources) Build(ctx context.Context, def *accel.Definition, facts accel.Facts) (store.Entry, *accel.Problem) {
	last := accel.Problemf(accel.NoDriverSource, "the definition of %q has no build source", def.Kind)
	var tried []string
	for _, s := range def.Driver.Sources {
		if s.Type != accel.SourceBuild {
			continue
		}
		e, outcome, problem := x.builder.Build(ctx, def, facts, s, nil)
		if outcome == build.Built {
			return e, nil
		}
		tried = append(tried, Sentence("build from "+s.Path, verdictOfBuild(outcome), problem))
		last = problem
		if outcome != build.Unavailable {
			break
		}
	}
	last.Tried = tried
	return store.Entry{}, last
}

// verdictOfBuild is the verdict of a build source for an outcome.
func verdictOfBuild(o build.Outcome) Verdict {
	switch o {
	case build.Built:
		return Satisfied
	case build.Unavailable:
		return Unavailable
	case build.Refused:
		return Refused
	}
	return Failed
}

// askBuild compiles the driver, unless the store already has exactly that result, or another host is building and
// publishing it.
func (x *Sources) askBuild(ctx context.Context, def *accel.Definition, facts accel.Facts, s accel.Source,
	o Options,
) Answer {
	if len(sharing(def)) == 0 {
		e, outcome, problem := x.builder.Build(ctx, def, facts, s, nil)
		if outcome != build.Built {
			return Answer{Verdict: verdictOfBuild(outcome), Problem: problem}
		}
		return x.useFetched(def, facts, e, accel.SourceBuild, o)
	}
	vote := &election{x: x, def: def, facts: facts, o: o}
	defer vote.end()
	if away := vote.elsewhere(ctx); away != nil {
		return *away
	}
	compiled := false
	var away *Answer
	e, outcome, problem := x.builder.Build(ctx, def, facts, s, func(ctx context.Context, key string) bool {
		away = vote.gate(ctx, key)
		compiled = away == nil
		return compiled
	})
	switch {
	case away != nil: // has a plan if the artifact was published before this host was elected
		return *away
	case outcome != build.Built:
		return Answer{Verdict: verdictOfBuild(outcome), Problem: problem}
	case compiled:
		x.share(def, facts, e, vote.release)
		vote.release = nil // the publisher releases it
	}
	return x.useFetched(def, facts, e, accel.SourceBuild, o)
}
