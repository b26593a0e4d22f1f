package kmod

import (
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

// Judge makes every check of a target's modules. Alone is set where only some of the definition's modules are judged:
// the others are taken for granted.
func Judge(t Target, where []Located, alone bool) Verification {
	p := newPlanner(t)
	p.alone = alone
	v := Verification{Kind: p.def.Kind, Kernel: p.kernel.Release, Source: p.plan.Source, Key: p.plan.Key}
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
		plan.Close()
	}
	return v
}

// Installed finds the modules of a definition below /lib/modules, also under another file name where modprobe.d
// has an alias.
func Installed(h *host.Host, def *accel.Definition, x *Index) ([]Located, *accel.Problem) {
	var where []Located
	var rules *modprobe // most modules are found by their names
	for _, m := range def.Driver.Modules {
		file, ok := x.FileOf(m)
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
			where = append(where, Located{m, file})
		}
	}
	return where, nil
}
