package driver

import (
	"context"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/deadline"
	"github.com/acceld/acceld/driver/devices"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/driver/store"
)

// load makes the modules of a plan live as one transaction. If a module is refused or no device comes up, it unloads
// what this call loaded, in reverse order. If only some devices come up, they stay in service. The plan was made
// without the driver lock, perhaps while the load of another kind was in progress or rolled back: if a module that it
// relies on is gone, it is made again under the lock.
func (d *Driver) load(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator,
	p *kmod.Plan,
) (accel.DriverHave, *accel.Problem) {
	release, problem := d.locks.Driver(ctx, def.Kind)
	if problem != nil {
		return accel.DriverHave{}, problem
	}
	defer release()
	if problem := d.loader.awaitStill(ctx, def); problem != nil {
		return accel.DriverHave{}, problem
	}
	if gone := p.Gone(d.h); gone != "" {
		d.log.Info("the driver is planned again", "kind", def.Kind, "gone", gone)
		a := d.sources.Plan(def, facts, store.GenerationOf(p, def))
		if a.Verdict != source.Satisfied {
			return accel.DriverHave{}, a.Problem
		}
		defer a.Plan.Close()
		p = a.Plan
	}
	if problem := d.attempts.Quarantined(p.ID); problem != nil {
		return accel.DriverHave{}, problem
	}
	if problem := d.spaces.Hide(def.Kind); problem != nil {
		return accel.DriverHave{}, problem
	}
	if problem := d.attempts.Open(p.ID); problem != nil {
		return accel.DriverHave{}, problem
	}
	loaded, log, problem := d.insertPlan(ctx, def, facts, accs, p)
	if problem != nil {
		d.loader.abandon(ctx, accs, p, loaded, problem)
		return accel.DriverHave{}, problem
	}
	before := d.store.Choice(def.Kind, facts.Kernel)
	if problem := d.choosePlan(def, facts, before, p); problem != nil {
		d.loader.abandon(ctx, accs, p, loaded, problem)
		return accel.DriverHave{}, problem
	}
	have, problem := d.awaitDevices(ctx, def, facts, accs)
	if problem != nil {
		problem.Message += kernelSays(log, def.Driver.Binds)
		if len(loaded) > 0 && !d.devices.AnyBound(def, accs) && ctx.Err() == nil {
			d.loader.abandon(ctx, accs, p, loaded, problem)
			if err := d.store.Choose(def.Kind, facts.Kernel, before); err != nil {
				d.log.Warn("cannot note the driver as before", "kind", def.Kind, "error", err)
			}
			return accel.DriverHave{}, problem
		}
		d.attempts.Close(p.ID, false)
		p := d.spaces.Serve(def, have.Version) // for the devices that came up
		if p == nil {
			p = d.halves.attend(ctx, def, have.Version)
		}
		if p != nil {
			problem.Message += "; " + p.Message
		}
		return have, problem
	}
	d.attempts.Close(p.ID, true)
	if problem := d.spaces.Serve(def, have.Version); problem != nil {
		return have, problem
	}
	if problem := d.halves.attend(ctx, def, have.Version); problem != nil {
		return have, problem
	}
	if have, problem = d.Probe(def, facts, accs); problem != nil {
		return have, problem
	}
	d.log.Info("driver loaded", "kind", def.Kind, "source", p.Source, "version", have.Version, "key", have.Key)
	return have, nil
}

// kernelSays is what the kernel logged about the first of the names about which it logged anything, as the end of a
// sentence; empty if it logged nothing.
func kernelSays(log []string, names ...string) string {
	for _, name := range names {
		if line := kmod.KernelLine(log, name); line != "" {
			return "; the kernel says: " + line
		}
	}
	return ""
}

// choosePlan notes the driver that is being loaded as the current one, and copies it to the store if it is not from
// there.
func (d *Driver) choosePlan(def *accel.Definition, facts accel.Facts, before store.Choice,
	p *kmod.Plan,
) *accel.Problem {
	g := store.GenerationOf(p, def)
	if g.Same(before.Current) && (p.Key == "" || p.Key == before.Current.Key) {
		g.Key = before.Current.Key
	}
	if g.Key == "" {
		if kept, problem := d.store.Keep(def, facts, p); problem == nil {
			g = kept
		} else { // the driver serves anyway, and a rollback to it works for as long as it stays installed
			d.log.Warn("no copy of the installed driver is kept", "kind", def.Kind, "reason", problem.Reason, "message",
				problem.Message)
		}
	}
	if err := d.store.Choose(def.Kind, facts.Kernel, before.Serve(g)); err != nil {
		return accel.ProblemOf(err, "cannot note the driver of %q", def.Kind)
	}
	return nil
}

// awaitDevices waits until every device is bound and has its nodes: udev and devtmpfs follow a load. It creates the
// nodes that neither of them creates.
func (d *Driver) awaitDevices(ctx context.Context, def *accel.Definition, facts accel.Facts,
	accs []accel.Accelerator,
) (accel.DriverHave, *accel.Problem) {
	deadline.Until(ctx, d.settle, func() bool {
		d.devices.MakeNodes(def, accs, false)
		return devices.Problem(def, d.devices.Observe(def, accs), true) == nil &&
			d.devices.SharedProblem(def, true) == nil
	})
	have, problem := d.Probe(def, facts, accs)
	if problem != nil && problem.Reason == accel.UserSpaceMissing { // it is set once the devices are there
		problem = nil
	} else if problem == nil && !have.Serves {
		problem = accel.Problemf(accel.LoadFailed, "the modules of %q went away while they were loaded", def.Kind)
	}
	return have, problem
}
