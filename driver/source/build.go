package source

import (
	"context"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/build"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/driver/trust"
)

// Build compiles the driver of def from the first available build source and puts it into the store, without loading
// it. If the store already has exactly that result, no compiler runs.
func (x *Sources) Build(ctx context.Context, def *accel.Definition, facts accel.Facts) (store.Entry, *accel.Problem) {
	last := accel.Problemf(accel.NoDriverSource, "the definition of %q has no build source", def.Kind)
	var tried []string
	for _, s := range def.Driver.Sources {
		if s.Type != accel.SourceBuild {
			continue
		}
		r := x.builder.Build(ctx, def, facts, s, nil)
		if r.Outcome == build.Built {
			return r.Entry, nil
		}
		tried = append(tried, Sentence(named("build from", s), Verdict(r.Outcome), r.Problem))
		last = r.Problem
		if r.Outcome != build.Unavailable {
			break
		}
	}
	last.Tried = tried
	return store.Entry{}, last
}

// Sign signs the build sources of def that are on this host, and returns the files with the signatures.
func (x *Sources) Sign(ctx context.Context, def *accel.Definition, facts accel.Facts, key *trust.Key) ([]string,
	*accel.Problem,
) {
	var out []string
	last := accel.Problemf(accel.NoDriverSource, "the definition of %q has no build source", def.Kind)
	for _, s := range def.Driver.Sources {
		if s.Type != accel.SourceBuild {
			continue
		}
		file, problem := x.builder.Sign(ctx, def, facts, s, key)
		if last = problem; problem != nil {
			break
		}
		out = append(out, file)
	}
	return out, last
}

// askBuild compiles the driver, unless the store already has exactly that result, or another host is building and
// publishing it.
func (q *search) askBuild(ctx context.Context, s accel.Source) Answer {
	vote := &election{search: q}
	defer vote.end()
	var away *Answer
	var gate func(context.Context, string) bool
	compiled := false
	if len(q.sharing()) > 0 {
		if away = vote.elsewhere(ctx); away != nil {
			return *away
		}
		gate = func(ctx context.Context, key string) bool {
			away = vote.gate(ctx, key)
			compiled = away == nil
			return compiled
		}
	}
	r := q.builder.Build(ctx, q.def, q.facts, s, gate)
	switch {
	case away != nil: // has a plan if the artifact was published before this host was elected
		return *away
	case r.Outcome != build.Built:
		return Answer{Verdict: Verdict(r.Outcome), Problem: r.Problem, Note: r.Note}
	case compiled:
		q.share(r.Entry, vote.release)
		vote.release = nil // the publisher releases it
	}
	a := q.useFetched(r.Entry, accel.SourceBuild)
	a.Note = r.Note
	return a
}
