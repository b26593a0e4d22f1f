package driver

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/deadline"
	"github.com/acceld/acceld/driver/devices"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/driver/store"
)

// resumeLimit is how often an interrupted upgrade resumes before it is rolled back: a driver that kills the agent
// each time must not do so forever.
const resumeLimit = 2

// Prepare gets the configured driver into the store and judges it, so that [Driver.UpgradeTo] needs no source. It does
// not touch the current driver. It returns which driver it prepared. A driver that was rolled back is not prepared
// again: the problem is then RolledBack, and says what failed.
func (d *Driver) Prepare(ctx context.Context, def *accel.Definition, facts accel.Facts) (accel.DriverRef,
	*accel.Problem,
) {
	to, problem := d.prepare(ctx, def, facts)
	return to.Ref(), problem
}

func (d *Driver) prepare(ctx context.Context, def *accel.Definition, facts accel.Facts) (*store.Generation,
	*accel.Problem,
) {
	def, problem := d.sources.Resolve(ctx, def, facts)
	if problem != nil {
		return nil, problem
	}
	c := d.store.Choice(def.Kind, facts.Kernel)
	again := c.Rejected != nil && c.Rejected.Wish == store.Wish(def, facts)
	p, _, problem := d.sources.Acquire(ctx, def, facts,
		source.Options{Fresh: again || def.Driver.Upgrade.Asked.After(c.Asked), Exact: true})
	if problem != nil && again {
		return nil, c.Rejected.Problem // the sources offer nothing else
	}
	if problem != nil {
		return nil, problem
	}
	defer p.Close()
	if rolledBack(c, def, facts, p.ID) {
		return nil, c.Rejected.Problem
	}
	return d.store.Keep(def, facts, p)
}

// rolledBack reports whether a driver was tried for the same wish and failed.
func rolledBack(c store.Choice, def *accel.Definition, facts accel.Facts, id string) bool {
	return c.Rejected != nil && c.Rejected.ID == id && c.Rejected.Wish == store.Wish(def, facts)
}

// Upgrade is [Driver.UpgradeTo] for a driver that was not prepared.
func (d *Driver) Upgrade(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator) (
	accel.DriverHave, *accel.Problem,
) {
	return d.UpgradeTo(ctx, def, facts, accs, accel.DriverRef{})
}

// UpgradeTo replaces the current driver by the one that [Driver.Prepare] returned. If that is not in the store any
// more, UpgradeTo prepares the configured driver again before it changes anything. If the old driver is in use, it
// also changes nothing, and the problem is InUse. Then it unloads the old driver, loads the new one, checks that the
// devices are bound and pass their self-test, and makes it the chosen driver. A device that did not work before may
// still not work: Serves is then false, and the upgrade has succeeded all the same.
//
// If the new driver fails, UpgradeTo unloads it and loads the old one again. The problem is then RolledBack, says what
// failed, and the driver serves. If that fails too, the problem is RollbackFailed. The journal records every step
// before it runs; if the process is killed, the next [Driver.Ensure] completes the upgrade or rolls it back.
func (d *Driver) UpgradeTo(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator,
	ref accel.DriverRef,
) (accel.DriverHave, *accel.Problem) {
	if _, problem := d.recover(ctx, def, facts, accs); problem != nil {
		return accel.DriverHave{}, problem
	}
	have, problem := d.Probe(def, facts, accs)
	if have.Upgrade == nil {
		return have, problem
	}
	to := d.sources.Prepared(def, facts, ref)
	if c := d.store.Choice(def.Kind, facts.Kernel); to != nil && rolledBack(c, def, facts, to.ID) {
		to = nil // since it was prepared; prepare says so
	}
	if to == nil {
		if to, problem = d.prepare(ctx, def, facts); problem != nil {
			return have, problem
		}
	}
	s := d.look(def, accs)
	from := d.liveGeneration(def, facts, s)
	if to.Same(from) && s.serves() { // the sources have the driver that already serves
		if problem := d.halves.serve(ctx, def, to.Version); problem != nil {
			return have, problem
		}
		c := d.store.Choice(def.Kind, facts.Kernel).Serve(to)
		c.Asked, c.Rejected = def.Driver.Upgrade.Asked, nil
		if err := d.store.Choose(def.Kind, facts.Kernel, c); err != nil {
			return have, accel.ProblemOf(err, "cannot note the driver of %q", def.Kind)
		}
		return d.Probe(def, facts, accs)
	}
	return d.replace(ctx, def, facts, accs, from, to)
}

// replace takes the driver lock and runs an upgrade from its first step.
func (d *Driver) replace(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator, from,
	to *store.Generation,
) (accel.DriverHave, *accel.Problem) {
	release, problem := d.locks.Driver(ctx, def.Kind)
	if problem != nil {
		return accel.DriverHave{}, problem
	}
	defer release()
	old := from.Definition(def)
	live := d.look(old, accs)
	if problem := accel.HoldersProblem(def.Kind, d.loader.strangers(old, accs, live.modules)); problem != nil {
		have, _ := d.Probe(def, facts, accs)
		return have, problem
	}
	j := &Journal{
		Kind: def.Kind, Step: StepUnload, Kernel: store.KernelName(facts.Kernel), BootID: lock.BootID(d.h), From: from,
		To:   to,
		Wish: store.Wish(def, facts), Asked: def.Driver.Upgrade.Asked, Since: time.Now().UTC(),
	}
	for _, v := range d.devices.Observe(old, accs) {
		if len(live.modules) > 0 && (!v.Works(old)) {
			j.Bad = append(j.Bad, v.ID)
		}
	}
	d.log.Info("driver upgrade begins", "kind", def.Kind, "from", from.Ref(), "to", to.Ref())
	return d.run(ctx, def, facts, accs, j, false)
}

// swap is one upgrade in progress.
type swap struct {
	*Driver
	def   *accel.Definition
	facts accel.Facts
	accs  []accel.Accelerator
	j     *Journal

	problem *accel.Problem // the result, set at the end
	again   bool           // the journal stays, and the next Ensure repeats its step
}

// end is what the last step returns.
func (t *swap) end(problem *accel.Problem) UpgradeStep {
	t.problem = problem
	return ""
}

// retry ends the run with a problem, but keeps the journal so that the step is repeated: no other step can follow it.
func (t *swap) retry(problem *accel.Problem) UpgradeStep {
	t.again = true
	return t.end(problem)
}

// run runs the steps of a journal, from the one it names. It ignores the caller's cancellation once the old driver
// may have been touched: half an upgrade leaves no driver. An interrupted upgrade that resumes also ignores a journal
// that cannot be written: the one on disk leads to the same end, and the host may have no driver until then.
func (d *Driver) run(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator,
	j *Journal, resumed bool,
) (accel.DriverHave, *accel.Problem) {
	t := &swap{Driver: d, def: def, facts: facts, accs: d.devices.Ordinary(accs), j: j}
	if problem := d.journals.write(j); problem != nil {
		if !resumed {
			have, _ := d.Probe(def, facts, accs)
			return have, problem // nothing was changed
		}
		t.unnoted(problem)
	}
	ctx = context.WithoutCancel(ctx)
	for next := t.do(ctx, j.Step); next != ""; next = t.do(ctx, j.Step) {
		j.Step = next
		if problem := d.journals.write(j); problem != nil {
			t.unnoted(problem)
		}
	}
	if !t.again {
		if stays := d.journals.close(j); stays != nil {
			t.problem = stays
		}
	}
	have, _ := d.Probe(def, facts, accs) // what a device had before the upgrade is for Ensure to report
	return have, t.problem
}

// unnoted logs that the journal does not name the next step. That is not fatal: an interrupted upgrade also looks at
// the modules to find where to resume.
func (t *swap) unnoted(problem *accel.Problem) {
	t.log.Warn("cannot note a step of an upgrade", "kind", t.j.Kind, "step", t.j.Step, "reason", problem.Reason,
		"message", problem.Message)
}

// do runs one step and returns the next one, "" after the last.
func (t *swap) do(ctx context.Context, s UpgradeStep) UpgradeStep {
	t.log.Debug("driver upgrade", "kind", t.j.Kind, "step", s)
	switch s {
	case StepUnload:
		return t.unload(ctx)
	case StepLoad:
		return t.load(ctx)
	case StepProve:
		return t.prove(ctx)
	case StepCommit:
		return t.commit(ctx)
	case StepRevert:
		return t.revert(ctx)
	case StepRestore:
		return t.restore(ctx)
	case StepReject:
		return t.reject(ctx)
	}
	return t.end(accel.Problemf(accel.InternalError, "the journal of %q names the step %q", t.j.Kind, s))
}

// unload removes the old driver. If nothing was removed, the upgrade ends and the old driver still serves.
func (t *swap) unload(ctx context.Context) UpgradeStep {
	old := t.j.From.Definition(t.def)
	problem := t.remove(ctx, old, t.facts, t.accs)
	if problem == nil {
		return StepLoad
	}
	if t.look(old, t.accs).missing {
		t.j.Problem = problem
		return StepRestore
	}
	return t.end(problem)
}

// load makes the new driver live and waits until its devices are bound, except those that the old driver did not
// serve.
func (t *swap) load(ctx context.Context) UpgradeStep {
	problem := t.bring(ctx, t.j.To)
	if problem == nil {
		return StepProve
	}
	ours := []accel.Reason{accel.NoSpace, accel.ReadOnly, accel.PermissionDenied} // not the driver's fault
	t.j.Problem, t.j.Fault = problem, !slices.Contains(ours, problem.Reason)
	return StepRevert
}

// bring loads a generation, unless it is already live, and waits for its devices.
func (t *swap) bring(ctx context.Context, g *store.Generation) *accel.Problem {
	def := g.Definition(t.def)
	if problem := t.loader.awaitStill(ctx, def); problem != nil {
		return problem
	}
	a := t.sources.Plan(t.def, t.facts, g)
	if a.Verdict != source.Satisfied {
		return a.Problem
	}
	defer a.Plan.Close()
	if problem := t.attempts.Open(g.ID); problem != nil {
		if g == t.j.To {
			return problem
		}
		// Going back to the old driver matters more than the note.
		t.log.Warn("cannot note a load", "kind", t.j.Kind, "reason", problem.Reason, "message", problem.Message)
	}
	_, log, problem := t.insertPlan(ctx, def, t.facts, t.accs, a.Plan)
	if problem == nil {
		deadline.Until(ctx, t.settle, func() bool {
			t.devices.MakeNodes(def, t.accs, false)
			return t.bound(def) == nil
		})
		if problem = t.bound(def); problem != nil {
			problem.Message += kernelSays(log, def.Driver.Binds)
		}
	}
	if problem != nil {
		if problem.Reason == accel.LoadTimeout || problem.Reason == accel.RebootRequired {
			t.attempts.Hung(g.ID)
		}
		return problem
	}
	return nil
}

// bound returns the problem of the devices, ignoring those that did not work with the old driver either.
func (t *swap) bound(def *accel.Definition) *accel.Problem {
	all := t.devices.Observe(def, t.accs)
	seen := slices.DeleteFunc(slices.Clone(all), func(v devices.Device) bool { return slices.Contains(t.j.Bad, v.ID) })
	if len(seen) == 0 {
		seen = all
	}
	if problem := devices.Problem(def, seen, true); problem != nil {
		return problem
	}
	return t.devices.SharedProblem(def, true)
}

// prove runs the self-test with the new driver.
func (t *swap) prove(ctx context.Context) UpgradeStep {
	problem := t.halves.attend(ctx, t.def, t.j.To.Version)
	if problem == nil {
		problem = t.compute(ctx)
	}
	if problem != nil {
		t.j.Problem, t.j.Fault = problem, true
		return StepRevert
	}
	t.attempts.Close(t.j.To.ID, true)
	return StepCommit
}

// compute runs the definition's self-test on the devices that worked before the upgrade. If none did, it runs on all:
// no driver is committed without a test, unless the definition has none.
func (t *swap) compute(ctx context.Context) *accel.Problem {
	all := slices.DeleteFunc(slices.Clone(t.accs), func(a accel.Accelerator) bool {
		return !a.Present() || a.Health.State == accel.Unhealthy
	})
	accs := slices.DeleteFunc(slices.Clone(all), func(a accel.Accelerator) bool {
		return slices.Contains(t.j.Bad, a.ID)
	})
	if len(accs) == 0 {
		accs = all
	}
	if len(accs) == 0 || t.def.Check == nil {
		return nil
	}
	at := t.tell.Begin(accel.Progress{Kind: t.j.Kind, Stage: accel.StageProve, What: accs[0].ID})
	_, problem := selfTest{t.Driver, true}.run(ctx, t.def, accs)
	at.End(problem)
	return problem
}

// commit makes the new driver the chosen one and the old one the previous one.
func (t *swap) commit(ctx context.Context) UpgradeStep {
	c := t.store.Choice(t.j.Kind, t.facts.Kernel).Serve(t.j.To)
	c.Asked, c.Rejected = t.j.Asked, nil
	if err := t.store.Choose(t.j.Kind, t.facts.Kernel, c); err != nil {
		return t.retry(accel.ProblemOf(err, "cannot note the driver of %q", t.j.Kind))
	}
	t.halves.resume(ctx, t.def, t.j.To.Version)
	t.log.Info("driver upgraded", "kind", t.j.Kind, "from", t.j.From.Ref(), "to", t.j.To.Ref(), "took",
		time.Since(t.j.Since))
	t.halves.collect(t.facts)
	t.images.Collect(ctx, t.def, t.facts)
	return t.end(nil)
}

// revert removes the new driver.
func (t *swap) revert(ctx context.Context) UpgradeStep {
	t.log.Warn("driver upgrade is taken back", "kind", t.j.Kind, "to", t.j.To.Ref(), "reason", t.j.Problem.Reason,
		"message", t.j.Problem.Message)
	if problem := t.remove(ctx, t.j.To.Definition(t.def), t.facts, t.accs); problem != nil {
		t.j.Stuck = problem
		return StepReject
	}
	if !t.attempts.Read(t.j.To.ID).Hung {
		t.attempts.Close(t.j.To.ID, false)
	}
	return StepRestore
}

// restore loads the old driver again and runs the self-test.
func (t *swap) restore(ctx context.Context) UpgradeStep {
	if t.j.From == nil {
		t.j.Stuck = accel.Problemf(accel.NoDriverSource, "there was none before, or no file of it is left")
	} else if problem := t.bring(ctx, t.j.From); problem != nil {
		t.j.Stuck = problem
	} else {
		t.attempts.Close(t.j.From.ID, true)
		t.halves.resume(ctx, t.def, t.j.From.Version)
		if problem := t.compute(ctx); problem != nil {
			t.log.Warn("the devices do not compute with the driver before either", "kind", t.j.Kind, "message",
				problem.Message)
		}
	}
	if t.j.Fault || t.j.Stuck != nil {
		return StepReject
	}
	return t.end(t.j.Problem) // the new driver is not to blame
}

// reject notes that the new driver must not be tried again, and why.
func (t *swap) reject(context.Context) UpgradeStep {
	j := t.j
	sentence := j.To.Ref().String() + " failed: " + strings.TrimSuffix(j.Problem.Message, ".")
	problem := accel.Problemf(accel.RolledBack, "%s; %s serves again", sentence, j.From.Ref())
	if j.Stuck != nil {
		problem = accel.Problemf(accel.RollbackFailed, "%s; %s could not be loaded back: %s", sentence, j.From.Ref(),
			j.Stuck.Message)
	}
	problem.Tried = j.Problem.Tried
	c := t.store.Choice(j.Kind, t.facts.Kernel)
	if c.Current == nil {
		c.Current = j.From
	}
	noted := accel.Problemf(accel.RolledBack, "%s (%s)", sentence, j.Problem.Reason)
	c.Asked = j.Asked
	c.Rejected = &store.Rejection{
		ID: j.To.ID, Wish: j.Wish, Version: j.To.Version, Problem: noted, At: time.Now().UTC(),
		Stuck: j.Stuck,
	}
	if err := t.store.Choose(j.Kind, t.facts.Kernel, c); err != nil {
		return t.retry(accel.ProblemOf(err, "cannot note that the driver of %q was taken back", j.Kind))
	}
	t.log.Warn("driver upgrade failed", "kind", j.Kind, "reason", problem.Reason, "message", problem.Message)
	return t.end(problem)
}

// recover completes or rolls back an interrupted upgrade, before anything else is done about the driver. It returns
// true if a reboot interrupted the upgrade: the driver that was being loaded may have caused it.
func (d *Driver) recover(ctx context.Context, def *accel.Definition, facts accel.Facts,
	accs []accel.Accelerator,
) (rebooted bool, problem *accel.Problem) {
	if d.journals.read(def.Kind) == nil {
		return false, nil
	}
	release, problem := d.locks.Driver(ctx, def.Kind)
	if problem != nil {
		return false, problem
	}
	defer release()
	j := d.journals.read(def.Kind) // another process may have ended it meanwhile
	if j == nil {
		return false, nil
	}
	d.log.Info("an upgrade was interrupted", "kind", j.Kind, "step", j.Step, "from", j.From.Ref(), "to", j.To.Ref())
	other := j.BootID != lock.BootID(d.h)
	if j.Kernel != store.KernelName(facts.Kernel) {
		return true, d.journals.close(j) // for another kernel, whose chosen driver is still the old one
	}
	if other {
		return true, d.rebooted(ctx, def, facts, j)
	}
	switch j.Step {
	case StepUnload:
		if s := d.look(j.From.Definition(def), accs); s.serves() && j.From.Live(s.modules) {
			return false, d.journals.close(j) // nothing has been changed yet
		}
	case StepLoad, StepProve:
		if j.Resumed++; j.Resumed > resumeLimit {
			j.Step, j.Fault = StepRevert, true
			j.Problem = accel.Problemf(accel.LoadFailed, "the upgrade was interrupted %d times", j.Resumed)
		}
	}
	have, problem := d.run(ctx, def, facts, accs, j, true)
	if problem != nil && have.Serves {
		d.log.Info("the driver before serves", "kind", j.Kind, "reason", problem.Reason, "message", problem.Message)
		problem = nil
	}
	return false, problem
}

// rebooted ends an upgrade that a reboot interrupted. None of its modules are live any more.
func (d *Driver) rebooted(ctx context.Context, def *accel.Definition, facts accel.Facts, j *Journal) *accel.Problem {
	t := &swap{Driver: d, def: def, facts: facts, j: j}
	switch {
	case j.Step == StepCommit:
		t.commit(ctx)
	case j.Fault:
		j.Stuck = nil
		t.reject(ctx)
	}
	if t.again {
		return t.problem
	}
	return d.journals.close(j)
}
