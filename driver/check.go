package driver

import (
	"path"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Verification is what would be given to the kernel for one kind, and how it was judged.
type Verification struct {
	Kind string `json:"kind,omitempty"` // empty for a file that no definition knows
	// Kernel is the release that the files were judged for.
	Kernel string `json:"kernel"`
	// Source is "store", "installed" or "file".
	Source accel.SourceType `json:"source,omitempty"`
	// Key is the entry of the store; empty for others.
	Key string `json:"key,omitempty"`
	// Modules in the order of the definition, what they need from the kernel's own modules included.
	Modules []ModuleVerdict `json:"modules"`
	// Problem is the first refusal, of a module that is not optional; nil when the kernel would be given the modules.
	Problem *accel.Problem `json:"problem,omitempty"`
}

// ModuleVerdict is the judgement of one module file.
type ModuleVerdict struct {
	Name   string  `json:"name"`
	File   string  `json:"file"` // as the host sees it
	Checks []Check `json:"checks"`
}

// SourceFile is the source of a [Verification] of files that were named.
const SourceFile accel.SourceType = "file"

// Verify judges what would be loaded for a kind, from the store or installed on the host, exactly as a load would, and
// gives it to nobody. Without either there is nothing to judge, and the problem says so.
func (d *Driver) Verify(def *accel.Definition, facts accel.Facts) Verification {
	if entries, err := d.find(def, facts.Kernel); err == nil && len(entries) > 0 {
		e := entries[0]
		var where []located
		for _, m := range def.Driver.Modules {
			if s, ok := e.module(m.Name); ok {
				if problem := d.checkDigest(e, s); problem != nil {
					return Verification{Kind: def.Kind, Kernel: facts.Kernel.Release, Source: accel.SourceStore, Key: e.Key, Problem: problem}
				}
				where = append(where, located{m, path.Join(e.Path, s.File)})
			} else if !m.Optional {
				where = append(where, located{m, ""})
			}
		}
		return judge(d.targetOf(def, facts, accel.SourceStore, e.Key), where, false)
	}
	where, problem := locateInstalled(d.h, def, newIndex(d.h, facts.Kernel.Release))
	if problem != nil {
		return Verification{Kind: def.Kind, Kernel: facts.Kernel.Release, Problem: problem}
	}
	return judge(d.targetOf(def, facts, accel.SourceInstalled, ""), where, false)
}

// VerifyFiles judges module files, paths as the host sees them, as [Driver.Verify] does. Def is the definition that has
// the modules, nil for files that none knows; what the definition has besides is taken for granted.
func (d *Driver) VerifyFiles(def *accel.Definition, facts accel.Facts, files []string) Verification {
	if def == nil {
		def = &accel.Definition{}
		for _, file := range files {
			if base, ok := moduleBase(file); ok {
				def.Driver.Modules = append(def.Driver.Modules, accel.Module{Name: base})
			}
		}
	}
	var where []located
	for _, file := range files {
		base, ok := moduleBase(file)
		i := slices.IndexFunc(def.Driver.Modules, func(m accel.Module) bool {
			return slices.ContainsFunc(append([]string{m.Name}, m.Files...), func(n string) bool { return normal(n) == base })
		})
		switch {
		case !ok:
			return Verification{Kind: def.Kind, Kernel: facts.Kernel.Release, Source: SourceFile, Problem: accel.Problemf(accel.ModuleInvalid, "%q is not the name of a module file", file)}
		case i < 0:
			return Verification{Kind: def.Kind, Kernel: facts.Kernel.Release, Source: SourceFile, Problem: accel.Problemf(accel.ModuleInvalid, "the driver of %q has no module %q", def.Kind, base)}
		}
		m := def.Driver.Modules[i]
		m.Optional = false
		where = append(where, located{m, file})
	}
	return judge(d.targetOf(def, facts, SourceFile, ""), where, true)
}

// judge makes every check of a target's modules. Alone is set where only some of the definition's modules are judged: the
// others are taken for granted.
func judge(t target, where []located, alone bool) Verification {
	p := newPlanner(t)
	p.alone = alone
	v := Verification{Kind: p.def.Kind, Kernel: p.kernel.Release, Source: p.plan.source, Key: p.plan.key}
	p.seen = func(module, file string, c Check) {
		i := slices.IndexFunc(v.Modules, func(m ModuleVerdict) bool { return m.Name == module && m.File == file })
		if i < 0 {
			i = len(v.Modules)
			v.Modules = append(v.Modules, ModuleVerdict{Name: module, File: file})
		}
		v.Modules[i].Checks = append(v.Modules[i].Checks, c)
	}
	plan, problem := p.run(where)
	v.Problem = problem
	if problem == nil {
		plan.close()
	}
	return v
}

// CheckFile judges a module file of def for the running kernel exactly as a load would, dependencies and parameters
// included, and gives it to nobody. Name is a path as the machine sees it.
func (d *Driver) CheckFile(def *accel.Definition, facts accel.Facts, name string) *accel.Problem {
	return d.VerifyFiles(def, facts, []string{name}).Problem
}

// locateInstalled finds the modules of a definition below /lib/modules, also under another file name where modprobe.d
// has an alias.
func locateInstalled(h *host.Host, def *accel.Definition, x *moduleIndex) ([]located, *accel.Problem) {
	var where []located
	var rules *modprobe // most modules are found by their names
	for _, m := range def.Driver.Modules {
		file, ok := x.fileOf(m)
		if !ok {
			if rules == nil {
				rules = readModprobe(h)
			}
			for _, other := range rules.alias(m.Name) {
				if file, ok = x.file(other); ok {
					break
				}
			}
		}
		if !ok && !m.Optional {
			return nil, accel.Problemf(accel.NoDriverSource, "module %q is not in %q", m.Name, x.dir)
		}
		if ok {
			where = append(where, located{m, file})
		}
	}
	return where, nil
}
