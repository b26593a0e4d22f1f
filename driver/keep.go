package driver

import (
	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
)

// planOf plans a generation: its entry in the store, or the files installed on the host while they are still the same.
func (d *Driver) planOf(def *accel.Definition, facts accel.Facts, g *store.Generation) answer {
	if p := d.attempts.Quarantined(g.ID); p != nil {
		return answer{refused, nil, p}
	}
	def = g.Definition(def)
	if g.Key != "" {
		m, err := d.store.Manifest(g.Key)
		if err != nil {
			return answer{unavailable, nil, accel.Problemf(accel.NoDriverSource, "the store has no entry %q: %v", g.Key, err)}
		}
		a := d.useEntry(def, facts, store.Entry{Manifest: m, Path: d.store.EntryDir(g.Key)})
		if a.verdict == satisfied {
			a.plan.Source, a.plan.ID = g.Source, g.ID
		}
		return a
	}
	a := d.askInstalled(def, facts, EnsureOptions{})
	if a.verdict == satisfied && !store.GenerationOf(a.plan, def).Same(g) {
		a.plan.Close()
		return answer{unavailable, nil, accel.Problemf(accel.NoDriverSource, "the installed driver is another one by now")}
	}
	return a
}

// liveGeneration is the driver that serves now, in a form that can be loaded back: as it was chosen, or found again by
// its build-id and copied. It is nil when nothing is loaded or no file of it is left.
func (d *Driver) liveGeneration(def *accel.Definition, facts accel.Facts, s sight) *store.Generation {
	if g := d.ours(def, facts, d.store.Choice(def.Kind, facts.Kernel), s.modules); g != nil {
		return g
	}
	if len(s.modules) == 0 {
		return nil
	}
	back := d.restorable(def, facts, s.modules)
	defer back.Close()
	if len(back.Modules) != len(s.modules) {
		return nil
	}
	back.Source, back.ID = accel.SourceInstalled, kmod.PlanID(back)
	g, problem := d.store.Keep(def, facts, back)
	if problem != nil {
		d.log.Warn("no copy of the loaded driver can be kept", "kind", def.Kind, "reason", problem.Reason, "message", problem.Message)
		return nil
	}
	return g
}
