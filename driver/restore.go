package driver

import (
	"context"
	"path"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
)

// restorable opens the files of the live modules that it can find by their build-id, in load order. They are loaded
// again if unloading stops half-way, or if an upgrade fails.
func (l *loader) restorable(def *accel.Definition, facts accel.Facts, order []accel.LoadedModule) *kmod.Plan {
	p := &kmod.Plan{}
	x := kmod.NewIndex(l.h, facts.Kernel.Release)
	entries, err := l.store.List()
	if err != nil {
		l.log.Warn("cannot read the store", "error", err)
	}
	for _, want := range def.Driver.Modules {
		i := slices.IndexFunc(order, func(m accel.LoadedModule) bool { return m.Name == kmod.Normal(want.Name) })
		if i < 0 {
			continue
		}
		var vouched, files []string // by who signed the driver, or by themselves
		for _, e := range entries {
			s, ok := e.Module(want.Name)
			switch {
			case !ok || !kmod.Same(order[i], s.BuildID, s.SrcVersion, s.Version):
			case e.Kept:
				files = append(files, path.Join(e.Path, s.File))
			case l.store.Trusted(def, e.Manifest) == nil:
				vouched = append(vouched, path.Join(e.Path, s.File))
			}
		}
		if file, ok := x.FileOf(want); ok {
			files = append(files, file)
		}
		for n, file := range slices.Concat(vouched, files) {
			m, problem := kmod.Open(l.h, file)
			if problem != nil {
				continue
			}
			unsigned := n >= len(vouched) && l.o.Trust.Require && kmod.Signed(l.h, l.log, facts.Kernel, m) != nil
			if !kmod.Same(order[i], m.BuildID, m.SrcVersion, m.Version) || unsigned {
				m.Close()
				continue
			}
			m.Name = kmod.Normal(want.Name)
			p.Modules = append(p.Modules, kmod.Planned{Image: m, Parameters: l.liveParameters(want, m.Name)})
			break
		}
	}
	return p
}

// liveParameters reads the current values of the definition's parameters.
func (l *loader) liveParameters(want accel.Module, live string) map[string]string {
	out := map[string]string{}
	for name := range want.Parameters {
		if value, err := l.h.ReadAttribute(path.Join("/sys/module", live, "parameters", name)); err == nil &&
			value != "(null)" {
			out[name] = value
		}
	}
	return out
}

// reload loads the removed modules again, and adds the outcome for each to problem.
func (l *loader) reload(ctx context.Context, facts accel.Facts, back *kmod.Plan, removed []accel.LoadedModule,
	problem *accel.Problem,
) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.o.LoadTimeout) // also if the caller gives up
	defer cancel()
	for _, m := range slices.Backward(removed) {
		outcome := "done"
		i := slices.IndexFunc(back.Modules, func(p kmod.Planned) bool { return p.Name == m.Name })
		if i < 0 {
			outcome = "no file with its build-id was found"
		} else if _, _, p := l.insert(ctx, facts, back.Modules[i]); p != nil {
			outcome = p.Message
		}
		problem.Tried = append(problem.Tried, "load back module "+m.Name+": "+outcome)
	}
}
