package source

import (
	"context"
	"path"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
)

func storeRow() row {
	return row{typ: accel.SourceStore, always: true, late: 2, ask: func(x *Sources, _ context.Context,
		def *accel.Definition, facts accel.Facts, _ accel.Source, o Options,
	) Answer {
		return x.askStore(def, facts, o)
	}}
}

// askStore finds a driver in the store. It needs neither the driver's source nor a network.
func (x *Sources) askStore(def *accel.Definition, facts accel.Facts, o Options) Answer {
	entries, err := x.store.Find(def, facts.Kernel)
	if err != nil {
		return Answer{Failed, nil, accel.ProblemOf(err, "cannot read the store")}
	}
	if len(entries) == 0 {
		return Answer{Unavailable, nil, accel.Problemf(accel.NoDriverSource, "the store has none for kernel %q",
			facts.Kernel.Release)}
	}
	var last Answer
	for _, e := range entries {
		if o.Retry {
			if p := x.attempts.Forgive(e.Key); p != nil {
				return Answer{Failed, nil, p}
			}
		}
		if p := x.attempts.Quarantined(e.Key); p != nil {
			if last.Verdict != Unavailable {
				last = Answer{Refused, nil, p}
			}
			continue // the last good driver may still serve
		}
		a := x.use(def, facts, e)
		if a.Verdict != Unavailable {
			return a
		}
		last = a // the definition has gained a module since; another entry may have it
	}
	return last
}

// use checks an entry's files and makes a plan.
func (x *Sources) use(def *accel.Definition, facts accel.Facts, e store.Entry) Answer {
	var where []kmod.Located
	for _, m := range def.Driver.Modules {
		s, ok := e.Module(m.Name)
		if !ok {
			if !m.Optional {
				return Answer{Unavailable, nil, accel.Problemf(accel.NoDriverSource,
					"entry %q of the store has no module %q", e.Key, m.Name)}
			}
			continue
		}
		if p := x.store.Check(e, s); p != nil {
			return Answer{Refused, nil, p}
		}
		where = append(where, kmod.Located{Module: m, Path: path.Join(e.Path, s.File)})
	}
	p, problem := kmod.MakePlan(x.target(def, facts, accel.SourceStore, e), where)
	if problem != nil {
		return Answer{Refused, nil, problem}
	}
	return Answer{Verdict: Satisfied, Plan: p}
}
