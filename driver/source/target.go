package source

import (
	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
)

// target describes what the modules of a source are judged for.
func (x *Sources) target(def *accel.Definition, facts accel.Facts, source accel.SourceType, e store.Entry) kmod.Target {
	return kmod.Target{
		Host: x.h, Log: x.log, Def: def, Facts: facts, Source: source, Key: e.Key, Firmware: e.Firmware,
		Conflict: func() *accel.Problem {
			_, problem := x.firmware.Placeable(e.Firmware, facts.Kernel.Release)
			return problem
		},
	}
}

// Plan makes a plan for a generation: from its entry in the store, or from the files installed on the host if they
// are still the same.
func (x *Sources) Plan(def *accel.Definition, facts accel.Facts, g *store.Generation) Answer {
	if p := x.attempts.Quarantined(g.ID); p != nil {
		return Answer{Refused, nil, p}
	}
	def = g.Definition(def)
	if g.Key != "" {
		m, err := x.store.Manifest(g.Key)
		if err != nil {
			return Answer{Unavailable, nil, accel.Problemf(accel.NoDriverSource, "the store has no entry %q: %v", g.Key,
				err)}
		}
		a := x.use(def, facts, store.Entry{Manifest: m, Path: x.store.EntryDir(g.Key)})
		if a.Verdict == Satisfied {
			a.Plan.Source, a.Plan.ID = g.Source, g.ID
		}
		return a
	}
	a := x.askInstalled(def, facts, Options{})
	if a.Verdict == Satisfied && !store.GenerationOf(a.Plan, def).Same(g) {
		a.Plan.Close()
		return Answer{Unavailable, nil, accel.Problemf(accel.NoDriverSource,
			"the installed driver is another one by now")}
	}
	return a
}
