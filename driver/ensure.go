package driver

import (
	"context"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/driver/store"
)

// Ensure makes the driver of one kind present: modules live, devices bound, nodes there. It does nothing if that is
// already the case. A problem's Tried lists what each source answered.
func (d *Driver) Ensure(ctx context.Context, def *accel.Definition, facts accel.Facts,
	accs []accel.Accelerator,
) (accel.DriverHave, *accel.Problem) {
	return d.EnsureWith(ctx, def, facts, accs, source.Options{})
}

// EnsureWith is Ensure with options. It first completes or reverts an interrupted upgrade. If nothing is loaded, it
// prefers a driver that served before to one that must be built or fetched, and to one that fails. The last good
// driver then serves until [Driver.Upgrade] brings the configured one.
//
// If the definition allows taking devices over from other drivers, EnsureWith does so once it has found a driver and
// judged it good. It returns them if the driver does not come up.
func (d *Driver) EnsureWith(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator,
	o source.Options,
) (accel.DriverHave, *accel.Problem) {
	began := time.Now()
	if o.Retry {
		d.takes.end(def.Kind, began, nil)
	}
	have, problem := d.ensure(ctx, def, facts, accs, o)
	problem = d.devices.BlameFirmware(def, facts, accs, problem)
	if have.Serves || problem != nil {
		d.takes.end(def.Kind, began, problem)
	}
	if !have.Serves && (problem == nil || problem.Reason != accel.AlreadyRunning) {
		d.takeover.settle(ctx, def, accs)
	}
	return have, problem
}

func (d *Driver) ensure(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator,
	o source.Options,
) (accel.DriverHave, *accel.Problem) {
	interrupted, problem := d.recover(ctx, def, facts, accs)
	if problem != nil {
		return accel.DriverHave{}, problem
	}
	if def, problem = d.sources.Resolve(ctx, def, facts); problem != nil {
		have, _ := d.Probe(def, facts, accs)
		return have, problem
	}
	have, problem := d.Probe(def, facts, accs)
	if have.Serves {
		return have, nil
	}
	if problem != nil && problem.Reason == accel.UserSpaceMissing {
		return d.halves.ensure(ctx, def, facts, accs, o, have.Version)
	}
	if problem != nil && problem.Reason == accel.CompanionDown {
		if problem := d.halves.serve(ctx, def, have.Version); problem != nil {
			return have, problem
		}
		return d.Probe(def, facts, accs)
	}
	if problem != nil && (problem.Reason == accel.ProbeFailed || problem.Reason == accel.NodeMissing) {
		have, problem = d.rebind(ctx, def, facts, accs)
		if have.Serves {
			return have, nil
		}
	}
	if problem = d.takeover.contested(def, accs, problem); problem != nil {
		problem.Tried = append(problem.Tried, source.Sentence("loaded", source.Refused, problem))
		return have, problem
	}
	if c := d.store.Choice(def.Kind, facts.Kernel); c.Current != nil {
		have, problem := d.ensureGood(ctx, def, facts, accs, o, c, interrupted)
		if have.Serves || c.Rejected != nil && c.Rejected.Stuck != nil || problem != nil &&
			problem.Reason == accel.RebootRequired {
			return have, problem
		}
	}
	p, tried, problem := d.sources.Acquire(ctx, def, facts, o)
	if problem != nil {
		return have, problem
	}
	defer p.Close()
	have, problem = d.load(ctx, def, facts, accs, p)
	if problem != nil {
		problem.Tried = slices.Concat(tried, []string{source.Sentence(string(p.Source), source.Failed, problem)})
		return have, problem
	}
	d.log.Debug("driver sources", "kind", def.Kind, "tried", tried, "took", p.Source)
	return have, nil
}

// ensureGood makes a driver present on a kernel that already had one. It takes the configured driver if that is
// available without building, was not rejected, and no reboot interrupted the last upgrade. Otherwise it takes the
// driver that served last.
func (d *Driver) ensureGood(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator,
	o source.Options, c store.Choice, interrupted bool,
) (accel.DriverHave, *accel.Problem) {
	var first *accel.Problem
	if !interrupted && (c.Rejected == nil || c.Rejected.Wish != store.Wish(def, facts)) {
		quick := o
		quick.NoBuild = true
		p, _, problem := d.sources.Acquire(ctx, def, facts, quick)
		if problem == nil {
			have, problem := d.take(ctx, def, facts, accs, c, p)
			p.Close()
			if problem == nil || have.Serves {
				return have, problem
			}
			first = problem
			if c = d.store.Choice(def.Kind, facts.Kernel); c.Rejected != nil && c.Rejected.Stuck != nil {
				return have, problem // both were just tried
			}
		} else {
			first = problem
		}
	}
	a := d.sources.Plan(def, facts, c.Current)
	if a.Verdict != source.Satisfied {
		a.Problem.Tried = append(a.Problem.Tried, source.Sentence("the last good driver", a.Verdict, a.Problem))
		return accel.DriverHave{}, stuck(c, a.Problem)
	}
	defer a.Plan.Close()
	have, problem := d.load(ctx, def, facts, accs, a.Plan)
	if problem != nil {
		return have, stuck(c, problem)
	}
	if c = d.store.Choice(def.Kind, facts.Kernel); c.Rejected != nil && c.Rejected.Stuck != nil {
		c.Rejected.Stuck = nil
		if err := d.store.Choose(def.Kind, facts.Kernel, c); err != nil {
			d.log.Warn("cannot note the driver", "kind", def.Kind, "error", err)
		}
	}
	if first != nil {
		d.log.Info("the last good driver serves", "kind", def.Kind, "version", have.Version, "reason", first.Reason,
			"message", first.Message)
	}
	return have, nil
}

// stuck turns problem into RollbackFailed if the last upgrade and its rollback both failed, so that no driver serves.
func stuck(c store.Choice, problem *accel.Problem) *accel.Problem {
	if c.Rejected == nil || c.Rejected.Stuck == nil {
		return problem
	}
	return accel.Problemf(accel.RollbackFailed, "%s failed (%s) and %s does not come back: %s",
		accel.DriverRef{
			Version: c.Rejected.Version,
			Key:     c.Rejected.ID,
		}, c.Rejected.Problem.Message, c.Current.Ref(), problem.Message)
}

// take loads a plan on a kernel on which a driver served before. If it is the same driver, take loads it directly. If
// it is another one, take runs an upgrade, with nothing loaded, which can be rolled back.
func (d *Driver) take(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator,
	c store.Choice, p *kmod.Plan,
) (accel.DriverHave, *accel.Problem) {
	if store.GenerationOf(p, def).Same(c.Current) {
		return d.load(ctx, def, facts, accs, p)
	}
	to, problem := d.store.Keep(def, facts, p)
	if problem != nil {
		return accel.DriverHave{}, problem
	}
	return d.replace(ctx, def, facts, accs, c.Current, to)
}

// rebind repairs devices under a live driver. It asks the kernel to probe again each device that has no driver,
// because the cause of the refusal may be gone, and creates missing nodes. It has no problem, and nothing to repair, if
// the modules are gone by now: they belonged to the load of another kind, which was rolled back.
func (d *Driver) rebind(ctx context.Context, def *accel.Definition, facts accel.Facts,
	accs []accel.Accelerator,
) (accel.DriverHave, *accel.Problem) {
	release, problem := d.locks.Driver(ctx, def.Kind)
	if problem != nil {
		return accel.DriverHave{}, problem
	}
	defer release()
	if d.look(def, accs).missing {
		return accel.DriverHave{}, nil
	}
	if problem := d.takeover.reserve(def, accs); problem != nil {
		return accel.DriverHave{}, problem
	}
	d.devices.MakeNodes(def, accs, true)
	for _, v := range d.devices.Observe(def, accs) {
		d.reprobe(ctx, v)
	}
	return d.awaitDevices(ctx, def, facts, accs)
}
