package store

import (
	"errors"
	"path"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
)

// Keep returns the generation of a plan, with an entry in the store. It copies a driver that is installed on the host
// to the store first: the next version of its package removes the file, and a rollback would be impossible.
func (s *Store) Keep(def *accel.Definition, facts accel.Facts, p *kmod.Plan) (*Generation, *accel.Problem) {
	g := GenerationOf(p, def)
	if g.Key != "" {
		return g, nil
	}
	id := Identity{
		Kind: def.Kind, Version: p.Version(), SourceDigest: p.ID, Arch: facts.Kernel.Arch,
		KernelRelease: facts.Kernel.Release, KernelID: KernelID(facts.Kernel),
	}
	g.Key = id.Key()
	if _, err := s.Manifest(g.Key); err == nil {
		return g, nil
	}
	w, done, problem := s.Workspace("")
	if problem != nil {
		return nil, problem
	}
	defer done()
	m := Manifest{Schema: Schema, Key: g.Key, Identity: id, Built: s.o.Now().UTC(), Kept: true}
	m.Source = accel.SourceInstalled
	for _, x := range p.Modules {
		if x.Prior {
			continue // it belongs to the kernel's package
		}
		m.Origin = path.Dir(x.Path)
		copied := Module{
			Name: x.Name, File: x.Name + ".ko", BuildID: x.BuildID, SrcVersion: x.SrcVersion, Vermagic: x.Vermagic,
			Depends: x.Depends,
			Version: x.Version,
		}
		if copied.SHA256, problem = s.Copy(x.Content, path.Join(w.Entry, copied.File)); problem != nil {
			return nil, problem
		}
		m.Modules = append(m.Modules, copied)
	}
	if err := errors.Join(s.Describe(w, m), s.Publish(w, def, g.Key)); err != nil {
		return nil, accel.ProblemOf(err, "cannot keep the driver of %q", def.Kind)
	}
	return g, nil
}
