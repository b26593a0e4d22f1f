package driver

import (
	"context"
	"errors"
	"slices"
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
	var order []accel.LoadedModule // the order of removal
	for _, m := range slices.Backward(def.Driver.Modules) {
		if live, ok := kmod.Live(d.h, m.Name); ok {
			order = append(order, live)
		}
	}
	if len(order) == 0 {
		return nil
	}
	if facts.Kernel.ModulesDisabled {
		return accel.Problemf(accel.ModulesDisabled,
			"kernel.modules_disabled is 1: the modules of %q cannot be removed until the next boot", def.Kind)
	}
	if problem := accel.HoldersProblem(def.Kind, d.devices.Users(def, accs, order)); problem != nil {
		return problem
	}
	back := d.loader.restorable(def, facts, order)
	defer back.Close()
	at := d.tell.Begin(accel.Progress{Kind: def.Kind, Stage: accel.StageUnload, Total: int64(len(order))})
	defer func() { at.End(problem) }()
	for i, m := range order {
		at.At(i, m.Name)
		limited, cancel := context.WithTimeout(ctx, d.o.LoadTimeout)
		err := d.loader.kernel.Unload(limited, m.Name)
		cancel()
		if err == nil || errors.Is(err, syscall.ENOENT) {
			continue
		}
		problem := d.loader.unloadFailed(def, facts, accs, m, err)
		d.loader.reload(ctx, facts, back, order[:i], problem)
		return problem
	}
	at.At(len(order), "")
	d.log.Info("driver unloaded", "kind", def.Kind, "modules", len(order))
	return nil
}

// unloadFailed turns a failure to remove one module into a typed problem.
func (l *loader) unloadFailed(def *accel.Definition, facts accel.Facts, accs []accel.Accelerator, m accel.LoadedModule,
	err error,
) *accel.Problem {
	var errno syscall.Errno
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return accel.Problemf(accel.LoadTimeout, "the removal of module %q did not end within %v", m.Name, l.timeout)
	case errors.As(err, &errno):
		problem := kmod.UnloadProblem(m.Name, errno, facts.Kernel.ModulesDisabled)
		if problem.Reason == accel.InUse {
			if live, ok := kmod.Live(l.h, m.Name); ok {
				if named := accel.HoldersProblem(def.Kind, l.devices.Users(def, accs,
					[]accel.LoadedModule{live})); named != nil {
					return named
				}
			}
		}
		return problem
	}
	return accel.ProblemOf(err, "cannot remove module %q", m.Name)
}

// Holders returns who uses the driver of the kind: processes that have a device node open or mapped, and other
// modules. A use that the kernel counts but that nobody can be named for is one holder.
func (d *Driver) Holders(def *accel.Definition, accs []accel.Accelerator) []accel.Holder {
	return d.devices.Users(def, accs, d.look(def, accs).modules)
}
