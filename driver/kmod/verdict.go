package kmod

import (
	"slices"
	"sync"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Verification says what would be given to the kernel for one kind, and how it was judged.
type Verification struct {
	Kind string `json:"kind,omitempty"` // empty for a file that belongs to no definition
	// Kernel is the release that the files were judged for.
	Kernel string `json:"kernel"`
	// Source is "store", "installed" or "file".
	Source accel.SourceType `json:"source,omitempty"`
	// Key is the entry of the store; empty for other sources.
	Key string `json:"key,omitempty"`
	// Modules are in the order of the definition, and include the kernel's own modules that they need.
	Modules []ModuleVerdict `json:"modules"`
	// Problem is the first refusal of a non-optional module; nil if the modules would be given to the kernel.
	Problem *accel.Problem `json:"problem,omitempty"`
}

// ModuleVerdict is the verdict on one module file.
type ModuleVerdict struct {
	Name   string  `json:"name"`
	File   string  `json:"file"` // as a path on the host
	Checks []Check `json:"checks"`
}

// SourceFile is the source of a [Verification] of files that the caller named.
const SourceFile accel.SourceType = "file"

// Judge runs every check on a target's modules. Alone means that only some of the definition's modules are judged;
// the others are assumed to be present.
func Judge(t Target, where []Located, alone bool) Verification {
	p := newPlanner(t)
	p.alone = alone
	v := Verification{Kind: p.Def.Kind, Kernel: p.kernel.Release, Source: p.plan.Source, Key: p.plan.Key}
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

// Installed finds the modules of a definition below /lib/modules, or under another file name if modprobe.d has an
// alias.
func Installed(h *host.Host, def *accel.Definition, x *Index) ([]Located, *accel.Problem) {
	var where []Located
	rules := sync.OnceValue(func() *modprobe { return readModprobe(h) }) // most modules are found by their names
	for _, m := range def.Driver.Modules {
		file, ok := x.FileOf(m)
		if !ok {
			for _, other := range rules().alias(m.Name) {
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
