package driver

import (
	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
)

// liveGeneration is the current driver in a form that can be loaded again: as it was chosen, or found by its build-id
// and copied to the store. It is nil if nothing is loaded, or if restorable does not find every live module.
func (d *Driver) liveGeneration(def *accel.Definition, facts accel.Facts, s sight) *store.Generation {
	if g := d.ours(def, facts, d.store.Choice(def.Kind, facts.Kernel), s.modules); g != nil {
		return g
	}
	if len(s.modules) == 0 {
		return nil
	}
	back := d.loader.restorable(def, facts, s.modules)
	defer back.Close()
	if len(back.Modules) != len(s.modules) {
		return nil
	}
	back.Source, back.ID = accel.SourceInstalled, kmod.PlanID(back)
	g, problem := d.store.Keep(def, facts, back)
	if problem != nil {
		d.log.Warn("no copy of the loaded driver can be kept", "kind", def.Kind, "reason", problem.Reason, "message",
			problem.Message)
		return nil
	}
	return g
}
