package source

import (
	"path"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
)

// Verify judges what would be loaded for a kind, from the store or installed on the host, exactly as a load would,
// but does not load it. If there is neither, the problem says so.
func (x *Sources) Verify(def *accel.Definition, facts accel.Facts) kmod.Verification {
	q := &search{x, def, facts, Options{}}
	v := kmod.Verification{Kind: def.Kind, Kernel: facts.Kernel.Release}
	entries, err := x.store.Find(def, facts.Kernel)
	i := slices.IndexFunc(entries, func(e store.Entry) bool { return x.store.Trusted(def, e.Manifest) == nil })
	if err != nil || i < 0 {
		where, problem := kmod.Installed(x.h, def, kmod.NewIndex(x.h, facts.Kernel.Release))
		if problem != nil && len(entries) > 0 {
			v.Source, v.Key = accel.SourceStore, entries[0].Key
			problem = x.store.Trusted(def, entries[0].Manifest)
		}
		if v.Problem = problem; problem != nil {
			return v
		}
		return kmod.Judge(q.target(accel.SourceInstalled, store.Entry{}), where, false)
	}
	e := entries[i]
	var where []kmod.Located
	for _, m := range def.Driver.Modules {
		s, ok := e.Module(m.Name)
		if !ok {
			if !m.Optional {
				where = append(where, kmod.Located{Module: m})
			}
			continue
		}
		if v.Problem = x.store.Check(e, s); v.Problem != nil {
			v.Source, v.Key = accel.SourceStore, e.Key
			return v
		}
		where = append(where, kmod.Located{Module: m, Path: path.Join(e.Path, s.File)})
	}
	return kmod.Judge(q.target(accel.SourceStore, e), where, false)
}

// VerifyFiles judges module files, given as paths on the host, like [Sources.Verify]. Def is the definition of the
// modules, nil if there is none. Other modules of the definition are assumed to be present.
func (x *Sources) VerifyFiles(def *accel.Definition, facts accel.Facts, files []string) kmod.Verification {
	if def == nil {
		def = &accel.Definition{}
		for _, file := range files {
			if base, ok := kmod.NameOf(file); ok {
				def.Driver.Modules = append(def.Driver.Modules, accel.Module{Name: base})
			}
		}
	}
	v := kmod.Verification{Kind: def.Kind, Kernel: facts.Kernel.Release, Source: kmod.SourceFile}
	var where []kmod.Located
	for _, file := range files {
		base, ok := kmod.NameOf(file)
		i := slices.IndexFunc(def.Driver.Modules, func(m accel.Module) bool {
			return slices.ContainsFunc(append([]string{m.Name}, m.Files...),
				func(n string) bool { return kmod.Normal(n) == base })
		})
		switch {
		case !ok:
			v.Problem = accel.Problemf(accel.ModuleInvalid, "%q is not the name of a module file", file)
			return v
		case i < 0:
			v.Problem = accel.Problemf(accel.ModuleInvalid, "the driver of %q has no module %q", def.Kind, base)
			return v
		}
		m := def.Driver.Modules[i]
		m.Optional = false
		where = append(where, kmod.Located{Module: m, Path: file})
	}
	q := &search{x, def, facts, Options{}}
	return kmod.Judge(q.target(kmod.SourceFile, store.Entry{}), where, true)
}
