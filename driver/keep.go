package driver

import (
	"errors"
	"path"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
)

// keep returns the generation of a plan that is in the store. A driver that is installed on the host is copied there
// first: the next version of its package takes its file away, and then nobody could go back to it.
func (d *Driver) keep(def *accel.Definition, facts accel.Facts, p *kmod.Plan) (*Generation, *accel.Problem) {
	g := generationOf(p, def)
	if g.Key != "" {
		return g, nil
	}
	id := Identity{
		Kind: def.Kind, Version: p.Version(), SourceDigest: p.ID, Arch: facts.Kernel.Arch,
		KernelRelease: facts.Kernel.Release, KernelID: kernelID(facts.Kernel),
	}
	g.Key = id.key()
	if _, err := d.manifest(g.Key); err == nil {
		return g, nil
	}
	w, done, problem := d.workspace("")
	if problem != nil {
		return nil, problem
	}
	defer done()
	m := Manifest{Schema: storeSchema, Key: g.Key, Identity: id, Built: d.o.Now().UTC(), Kept: true}
	for _, x := range p.Modules {
		if x.Prior {
			continue // a part of the kernel's package
		}
		s := StoredModule{Name: x.Name, File: x.Name + ".ko", BuildID: x.BuildID, SrcVersion: x.SrcVersion, Vermagic: x.Vermagic, Depends: x.Depends, Version: x.Image.Version}
		if s.SHA256, problem = d.store(x.Content, path.Join(w.entry, s.File)); problem != nil {
			return nil, problem
		}
		m.Modules = append(m.Modules, s)
	}
	if err := errors.Join(d.describe(w, m), d.publish(w, g.Key)); err != nil {
		return nil, accel.ProblemOf(err, "cannot keep the driver of %q", def.Kind)
	}
	return g, nil
}

// planOf plans a generation: its entry in the store, or the files installed on the host while they are still the same.
func (d *Driver) planOf(def *accel.Definition, facts accel.Facts, g *Generation) answer {
	if p := d.quarantined(g.ID); p != nil {
		return answer{refused, nil, p}
	}
	def = g.definition(def)
	if g.Key != "" {
		m, err := d.manifest(g.Key)
		if err != nil {
			return answer{unavailable, nil, accel.Problemf(accel.NoDriverSource, "the store has no entry %q: %v", g.Key, err)}
		}
		a := d.useEntry(def, facts, Entry{Manifest: m, Path: d.entryDir(g.Key)})
		if a.verdict == satisfied {
			a.plan.Source, a.plan.ID = g.Source, g.ID
		}
		return a
	}
	a := d.askInstalled(def, facts, EnsureOptions{})
	if a.verdict == satisfied && !generationOf(a.plan, def).same(g) {
		a.plan.Close()
		return answer{unavailable, nil, accel.Problemf(accel.NoDriverSource, "the installed driver is another one by now")}
	}
	return a
}

// liveGeneration is the driver that serves now, in a form that can be loaded back: as it was chosen, or found again by
// its build-id and copied. It is nil when nothing is loaded or no file of it is left.
func (d *Driver) liveGeneration(def *accel.Definition, facts accel.Facts, s sight) *Generation {
	if g := d.ours(def, facts, d.choice(def.Kind, facts.Kernel), s.modules); g != nil {
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
	g, problem := d.keep(def, facts, back)
	if problem != nil {
		d.log.Warn("no copy of the loaded driver can be kept", "kind", def.Kind, "reason", problem.Reason, "message", problem.Message)
		return nil
	}
	return g
}
