package source

import (
	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
)

// target describes what the modules of a source are judged for.
func (q *search) target(source accel.SourceType, e store.Entry) kmod.Target {
	return kmod.Target{
		Host: q.h, Log: q.log, Def: q.def, Facts: q.facts, Source: source, Key: e.Key, Firmware: e.Firmware,
		Require: q.o.Trust.Require, Vouched: e.Key != "" && !e.Kept,
		Conflict: func() *accel.Problem {
			_, problem := q.firmware.Placeable(e.Firmware, q.facts.Kernel.Release)
			return problem
		},
	}
}

// Plan makes a plan for a generation: from its entry in the store, or from the files installed on the host if they
// are still the same.
func (x *Sources) Plan(def *accel.Definition, facts accel.Facts, g *store.Generation) Answer {
	q := &search{x, g.Definition(def), facts, Options{}}
	if p := q.quarantined(g.ID); p != nil {
		return Answer{Verdict: Refused, Problem: p}
	}
	if g.Key != "" {
		m, err := x.store.Manifest(g.Key)
		if err != nil {
			return Answer{Verdict: Unavailable, Problem: accel.Problemf(accel.NoDriverSource, "the store has no entry %q: %v", g.Key,
				err)}
		}
		a := q.use(store.Entry{Manifest: m, Path: x.store.EntryDir(g.Key)})
		if a.Verdict == Satisfied {
			a.Plan.Source, a.Plan.ID = g.Source, g.ID
		}
		return a
	}
	a := q.installed()
	if a.Verdict == Satisfied && !store.GenerationOf(a.Plan, q.def).Same(g) {
		a.Plan.Close()
		return Answer{Verdict: Unavailable, Problem: accel.Problemf(accel.NoDriverSource,
			"the installed driver is another one by now")}
	}
	return a
}

// Prepared returns the generation of a driver that was put into the store. It is nil if its entry is gone or is refused
// by now.
func (x *Sources) Prepared(def *accel.Definition, facts accel.Facts, ref accel.DriverRef) *store.Generation {
	m, err := x.store.Manifest(ref.Key)
	if err != nil {
		return nil
	}
	g := store.Entry{Manifest: m}.Generation(def)
	if m.Kept { // a copy of a driver that is installed on the host
		g.Source, g.ID = accel.SourceInstalled, m.SourceDigest
	}
	a := x.Plan(def, facts, g)
	if a.Verdict != Satisfied {
		return nil
	}
	defer a.Plan.Close()
	return store.GenerationOf(a.Plan, def)
}
