package driver

import (
	"context"
	"errors"
	"path"
	"slices"
	"syscall"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
)

// Unload removes the modules of one kind, whoever loaded them, in reverse order. First it finds everyone who uses them:
// if anyone does, nothing is removed and InUse names them. When the kernel refuses one after others were removed, those
// are loaded back. Modules that are not loaded are no problem. Devices that were taken over go back.
func (d *Driver) Unload(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator) *accel.Problem {
	release, problem := d.locks.Driver(ctx, def.Kind)
	if problem != nil {
		return problem
	}
	defer release()
	problem = d.remove(ctx, def, facts, accs)
	if problem == nil {
		d.returnTaken(ctx, def, accs)
	}
	return problem
}

// remove is Unload under the driver lock.
func (d *Driver) remove(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator) (problem *accel.Problem) {
	if problem := d.awaitStill(ctx, def); problem != nil {
		return problem
	}
	var order []accel.LoadedModule // as they are removed
	for _, m := range slices.Backward(def.Driver.Modules) {
		if live, ok := kmod.Live(d.h, m.Name); ok {
			order = append(order, live)
		}
	}
	if len(order) == 0 {
		return nil
	}
	if facts.Kernel.ModulesDisabled {
		return accel.Problemf(accel.ModulesDisabled, "kernel.modules_disabled is 1: the modules of %q cannot be removed until the next boot", def.Kind)
	}
	if problem := accel.HoldersProblem(def.Kind, d.devices.Users(def, accs, order)); problem != nil {
		return problem
	}
	back := d.restorable(def, facts, order)
	defer back.Close()
	at := d.tell.Begin(accel.Progress{Kind: def.Kind, Stage: accel.StageUnload, Total: int64(len(order))})
	defer func() { at.End(problem) }()
	for i, m := range order {
		at.At(i, m.Name)
		limited, cancel := context.WithTimeout(ctx, d.o.LoadTimeout)
		err := d.kernel.Unload(limited, m.Name)
		cancel()
		if err == nil || errors.Is(err, syscall.ENOENT) {
			continue
		}
		problem := d.unloadFailed(def, facts, accs, m, err)
		d.reload(ctx, facts, back, order[:i], problem)
		return problem
	}
	at.At(len(order), "")
	d.log.Info("driver unloaded", "kind", def.Kind, "modules", len(order))
	return nil
}

// unloadFailed types the refusal to remove one module.
func (d *Driver) unloadFailed(def *accel.Definition, facts accel.Facts, accs []accel.Accelerator, m accel.LoadedModule, err error) *accel.Problem {
	var errno syscall.Errno
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return accel.Problemf(accel.LoadTimeout, "the removal of module %q did not end within %v", m.Name, d.o.LoadTimeout)
	case errors.As(err, &errno):
		problem := kmod.UnloadProblem(m.Name, errno, facts.Kernel.ModulesDisabled)
		if problem.Reason == accel.InUse {
			if live, ok := kmod.Live(d.h, m.Name); ok {
				if named := accel.HoldersProblem(def.Kind, d.devices.Users(def, accs, []accel.LoadedModule{live})); named != nil {
					return named
				}
			}
		}
		return problem
	}
	return accel.ProblemOf(err, "cannot remove module %q", m.Name)
}

// Holders returns who uses the driver of the kind: processes that have a device node open or mapped, other modules. A
// use that the kernel counts and nobody can be named for is one holder.
func (d *Driver) Holders(def *accel.Definition, accs []accel.Accelerator) []accel.Holder {
	return d.devices.Users(def, accs, d.look(def, accs).modules)
}

// restorable opens the files of the live modules that can be found again by their build-id: what is loaded back when
// removing stops half-way. The order is the load order.
func (d *Driver) restorable(def *accel.Definition, facts accel.Facts, order []accel.LoadedModule) *kmod.Plan {
	p := &kmod.Plan{}
	if len(order) < 2 {
		return p // there is no half-way
	}
	x := kmod.NewIndex(d.h, facts.Kernel.Release)
	entries, err := d.store.List()
	if err != nil {
		d.log.Warn("cannot read the store", "error", err)
	}
	for _, want := range def.Driver.Modules {
		i := slices.IndexFunc(order, func(m accel.LoadedModule) bool { return m.Name == kmod.Normal(want.Name) })
		if i < 0 {
			continue
		}
		var files []string
		for _, e := range entries {
			if s, ok := e.Module(want.Name); ok && kmod.Same(order[i], s.BuildID, s.SrcVersion, s.Version) {
				files = append(files, path.Join(e.Path, s.File))
			}
		}
		if file, ok := x.FileOf(want); ok {
			files = append(files, file)
		}
		for _, file := range files {
			m, problem := kmod.Open(d.h, file)
			if problem != nil {
				continue
			}
			if !kmod.Same(order[i], m.BuildID, m.SrcVersion, m.Version) {
				m.Close()
				continue
			}
			m.Name = kmod.Normal(want.Name)
			p.Modules = append(p.Modules, kmod.Planned{Image: m, Parameters: d.liveParameters(want, m.Name)})
			break
		}
	}
	return p
}

// liveParameters reads the values that the definition's parameters have now.
func (d *Driver) liveParameters(want accel.Module, live string) map[string]string {
	out := map[string]string{}
	for name := range want.Parameters {
		if value, err := d.h.ReadString(path.Join("/sys/module", live, "parameters", name)); err == nil && value != "(null)" {
			out[name] = value
		}
	}
	return out
}

// reload loads back what was removed, and says in problem what could not be.
func (d *Driver) reload(ctx context.Context, facts accel.Facts, back *kmod.Plan, removed []accel.LoadedModule, problem *accel.Problem) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.o.LoadTimeout) // also when the caller gives up
	defer cancel()
	for _, m := range slices.Backward(removed) {
		i := slices.IndexFunc(back.Modules, func(p kmod.Planned) bool { return p.Name == m.Name })
		if i < 0 {
			problem.Tried = append(problem.Tried, "load back module "+m.Name+": no file with its build-id was found")
			continue
		}
		if _, _, p := d.insert(ctx, facts, back.Modules[i]); p != nil {
			problem.Tried = append(problem.Tried, "load back module "+m.Name+": "+p.Message)
			continue
		}
		problem.Tried = append(problem.Tried, "load back module "+m.Name+": done")
	}
}
