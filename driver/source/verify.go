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
	if entries, err := x.store.Find(def, facts.Kernel); err == nil && len(entries) > 0 {
		e := entries[0]
		var where []kmod.Located
		for _, m := range def.Driver.Modules {
			if s, ok := e.Module(m.Name); ok {
				if problem := x.store.Check(e, s); problem != nil {
					return kmod.Verification{
						Kind: def.Kind, Kernel: facts.Kernel.Release, Source: accel.SourceStore,
						Key: e.Key, Problem: problem,
					}
				}
				where = append(where, kmod.Located{Module: m, Path: path.Join(e.Path, s.File)})
			} else if !m.Optional {
				where = append(where, kmod.Located{Module: m, Path: ""})
			}
		}
		return kmod.Judge(x.target(def, facts, accel.SourceStore, e), where, false)
	}
	where, problem := kmod.Installed(x.h, def, kmod.NewIndex(x.h, facts.Kernel.Release))
	if problem != nil {
		return kmod.Verification{Kind: def.Kind, Kernel: facts.Kernel.Release, Problem: problem}
	}
	return kmod.Judge(x.target(def, facts, accel.SourceInstalled, store.Entry{}), where, false)
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
	var where []kmod.Located
	for _, file := range files {
		base, ok := kmod.NameOf(file)
		i := slices.IndexFunc(def.Driver.Modules, func(m accel.Module) bool {
			return slices.ContainsFunc(append([]string{m.Name}, m.Files...),
				func(n string) bool { return kmod.Normal(n) == base })
		})
		switch {
		case !ok:
			return kmod.Verification{
				Kind: def.Kind, Kernel: facts.Kernel.Release, Source: kmod.SourceFile,
				Problem: accel.Problemf(accel.ModuleInvalid, "%q is not the name of a module file", file),
			}
		case i < 0:
			return kmod.Verification{
				Kind: def.Kind, Kernel: facts.Kernel.Release, Source: kmod.SourceFile,
				Problem: accel.Problemf(accel.ModuleInvalid, "the driver of %q has no module %q", def.Kind, base),
			}
		}
		m := def.Driver.Modules[i]
		m.Optional = false
		where = append(where, kmod.Located{Module: m, Path: file})
	}
	return kmod.Judge(x.target(def, facts, kmod.SourceFile, store.Entry{}), where, true)
}

// CheckFile judges a module file of def for the kernel in facts exactly as a load would, dependencies and parameters
// included, but does not load it. Name is a path on the host.
func (x *Sources) CheckFile(def *accel.Definition, facts accel.Facts, name string) *accel.Problem {
	return x.VerifyFiles(def, facts, []string{name}).Problem
}
