package driver

import (
	"cmp"
	"context"
	"errors"
	"syscall"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
)

// Unload removes the modules of one kind, whoever loaded them, in reverse order. It first finds everyone who uses
// them: if anyone does, nothing is removed and InUse names them. If the kernel refuses one module after others were
// removed, those are loaded again. Modules that are not loaded are no problem. Devices that were taken over are
// returned.
func (d *Driver) Unload(ctx context.Context, def *accel.Definition, facts accel.Facts,
	accs []accel.Accelerator,
) *accel.Problem {
	release, problem := d.locks.Driver(ctx, def.Kind)
	if problem != nil {
		return problem
	}
	defer release()
	problem = d.remove(ctx, def, facts, accs)
	if problem == nil {
		d.takeover.giveBack(ctx, def, accs)
	}
	return problem
}

// remove is Unload under the driver lock.
func (d *Driver) remove(ctx context.Context, def *accel.Definition, facts accel.Facts,
	accs []accel.Accelerator,
) (problem *accel.Problem) {
	if problem := d.loader.awaitStill(ctx, def); problem != nil {
		return problem
	}
	order := d.loader.liveOf(def)
	if len(order) == 0 {
		return d.companions.Stop(ctx, def.Kind)
	}
	if facts.Kernel.ModulesDisabled {
		return accel.Problemf(accel.ModulesDisabled,
			"kernel.modules_disabled is 1: the modules of %q cannot be removed until the next boot", def.Kind)
	}
	if problem := accel.HoldersProblem(def.Kind, d.loader.strangers(def, accs, order)); problem != nil {
		return problem
	}
	back := d.loader.restorable(def, facts, order)
	defer back.Close()
	version := sight{modules: order}.version()
	problem = d.companions.Stop(ctx, def.Kind)
	if problem == nil { // now that they are gone, whoever was hidden behind them is seen
		order = d.loader.liveOf(def)
		problem = accel.HoldersProblem(def.Kind, d.loader.users(def, accs, order))
	}
	if problem != nil {
		d.halves.resume(ctx, def, version)
		return problem
	}
	if problem := d.spaces.Hide(def.Kind); problem != nil {
		return problem
	}
	at := d.tell.Begin(accel.Progress{Kind: def.Kind, Stage: accel.StageUnload, Total: int64(len(order))})
	defer func() { at.End(problem) }()
	for i, m := range order {
		at.At(i, m.Name)
		if err := d.loader.unload(ctx, m.Name); err != nil {
			problem := d.loader.unloadFailed(def, facts, accs, m, err)
			d.loader.reload(ctx, facts, back, order[:i], problem)
			d.halves.resume(ctx, def, version)
			return problem
		}
	}
	at.At(len(order), "")
	d.log.Info("driver unloaded", "kind", def.Kind, "modules", len(order))
	return nil
}

// unloadFailed turns a failure to remove one module into a typed problem, which names its users if there are any.
func (l *loader) unloadFailed(def *accel.Definition, facts accel.Facts, accs []accel.Accelerator, m accel.LoadedModule,
	err error,
) *accel.Problem {
	problem := l.unloadProblem(m.Name, err, facts.Kernel.ModulesDisabled)
	if live, ok := kmod.Live(l.h, m.Name); ok && problem.Reason == accel.InUse {
		return cmp.Or(accel.HoldersProblem(def.Kind, l.devices.Users(def, accs, []accel.LoadedModule{live})), problem)
	}
	return problem
}

func (l *loader) unloadProblem(name string, err error, modulesDisabled bool) *accel.Problem {
	var errno syscall.Errno
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return accel.Problemf(accel.LoadTimeout, "the removal of module %q did not end within %v", name,
			l.o.LoadTimeout)
	case errors.As(err, &errno):
		return kmod.UnloadProblem(name, errno, modulesDisabled)
	}
	return accel.ProblemOf(err, "cannot remove module %q", name)
}

// users names who keeps modules from being unloaded: their users, and devices of others that are bound to them.
func (l *loader) users(def *accel.Definition, accs []accel.Accelerator, modules []accel.LoadedModule) []accel.Holder {
	who := l.devices.Users(def, accs, modules)
	var names []string
	for _, m := range modules {
		names = append(names, m.Name)
	}
	for _, id := range l.devices.Others(names, accs) {
		who = append(who, accel.Holder{Other: "device " + id + ", which is not of this kind"})
	}
	return Functions{l.Driver}.add(who, accs)
}

// strangers are the users apart from the kind's own companions, which are stopped before an unload.
func (l *loader) strangers(def *accel.Definition, accs []accel.Accelerator,
	modules []accel.LoadedModule,
) []accel.Holder {
	return l.companions.Without(def.Kind, l.users(def, accs, modules))
}

// Holders returns who uses the driver of the kind: processes that have a device node open or mapped, except its
// companions, other modules, and whoever has a virtual function of a device. A use that the kernel counts but that
// nobody can be named for is one holder.
func (d *Driver) Holders(def *accel.Definition, accs []accel.Accelerator) []accel.Holder {
	who := d.companions.Without(def.Kind, d.devices.Users(def, accs, d.look(def, accs).modules))
	return Functions{d}.add(who, accs)
}
