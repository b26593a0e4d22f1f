package driver

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/devices"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
)

// load makes the modules of a plan live as one transaction: when one is refused, or no device comes up, what this call
// loaded is unloaded again, in reverse. Devices that came up beside ones that did not are left working.
func (d *Driver) load(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator, p *kmod.Plan) (accel.DriverHave, *accel.Problem) {
	release, problem := d.locks.Driver(ctx, def.Kind)
	if problem != nil {
		return accel.DriverHave{}, problem
	}
	defer release()
	if problem := d.awaitStill(ctx, def); problem != nil {
		return accel.DriverHave{}, problem
	}
	if problem := d.attempts.Quarantined(p.ID); problem != nil {
		return accel.DriverHave{}, problem
	}
	if problem := d.attempts.Open(p.ID); problem != nil {
		return accel.DriverHave{}, problem
	}
	loaded, log, problem := d.insertPlan(ctx, def, facts, accs, p)
	if problem != nil {
		d.abandon(ctx, p, loaded, problem)
		return accel.DriverHave{}, problem
	}
	before := d.store.Choice(def.Kind, facts.Kernel)
	if problem := d.choosePlan(def, facts, before, p); problem != nil {
		d.abandon(ctx, p, loaded, problem)
		return accel.DriverHave{}, problem
	}
	have, problem := d.awaitDevices(ctx, def, facts, accs)
	if problem != nil {
		if line := kmod.KernelLine(log, def.Driver.Binds); line != "" {
			problem.Message += "; the kernel says: " + line
		}
		if len(loaded) > 0 && !d.devices.AnyBound(def, accs) && ctx.Err() == nil {
			d.abandon(ctx, p, loaded, problem)
			if err := d.store.Choose(def.Kind, facts.Kernel, before); err != nil {
				d.log.Warn("cannot note the driver as before", "kind", def.Kind, "error", err)
			}
			return accel.DriverHave{}, problem
		}
		d.attempts.Close(p.ID, false)
		return have, problem
	}
	d.attempts.Close(p.ID, true)
	d.log.Info("driver loaded", "kind", def.Kind, "source", p.Source, "version", have.Version, "key", have.Key)
	return have, nil
}

// choosePlan notes what is being loaded as what serves, with a copy in the store where it is not from there.
func (d *Driver) choosePlan(def *accel.Definition, facts accel.Facts, before store.Choice, p *kmod.Plan) *accel.Problem {
	g := store.GenerationOf(p, def)
	if g.Same(before.Current) && (p.Key == "" || p.Key == before.Current.Key) {
		g.Key = before.Current.Key
	}
	if g.Key == "" {
		if kept, problem := d.store.Keep(def, facts, p); problem == nil {
			g = kept
		} else { // it serves all the same, and can be gone back to for as long as it stays installed
			d.log.Warn("no copy of the installed driver is kept", "kind", def.Kind, "reason", problem.Reason, "message", problem.Message)
		}
	}
	if err := d.store.Choose(def.Kind, facts.Kernel, before.Serve(g)); err != nil {
		return accel.ProblemOf(err, "cannot note the driver of %q", def.Kind)
	}
	return nil
}

// insertAll loads what is not live yet. It returns the names of what it loaded, in order, and the kernel's lines.
func (d *Driver) insertAll(ctx context.Context, kind string, facts accel.Facts, p *kmod.Plan) (loaded, log []string, problem *accel.Problem) {
	at := d.tell.Begin(accel.Progress{Kind: kind, Stage: accel.StageLoad, Total: int64(len(p.Modules))})
	defer func() { at.End(problem) }()
	for i, m := range p.Modules {
		at.At(i, m.Name)
		if live, ok := kmod.Live(d.h, m.Name); ok && live.State == kmod.StateLive {
			if !m.Prior && !kmod.Same(live, m.BuildID, m.SrcVersion, m.Image.Version) {
				return loaded, log, accel.Problemf(accel.OtherModuleLoaded, "module %q is loaded with build-id %q, the one in %q has %q", m.Name, live.BuildID, m.Path, m.BuildID)
			}
			continue
		}
		did, lines, problem := d.insert(ctx, facts, m)
		log = append(log, lines...)
		if did {
			loaded = append(loaded, m.Name)
		}
		if problem == nil {
			continue
		}
		if m.Optional && problem.Reason != accel.LoadTimeout && problem.Reason != accel.RebootRequired {
			d.log.Warn("an optional module is left out", "module", m.Name, "problem", problem)
			continue
		}
		return loaded, log, problem
	}
	at.At(len(p.Modules), "")
	return loaded, log, nil
}

// insert gives one module to the kernel. It tells whether this call made it live and what the kernel said meanwhile. The
// ledger has it from before the call until it is known that it did not.
func (d *Driver) insert(ctx context.Context, facts accel.Facts, m kmod.Planned) (did bool, log []string, problem *accel.Problem) {
	if problem := d.noteLoad(m); problem != nil {
		return false, nil, problem
	}
	did, log, problem = d.finit(ctx, facts, m)
	if !did && (problem == nil || problem.Reason != accel.LoadTimeout && problem.Reason != accel.RebootRequired) { // those may come yet
		d.forgetLoad(m.Name)
	}
	return did, log, problem
}

// finit calls the kernel.
func (d *Driver) finit(ctx context.Context, facts accel.Facts, m kmod.Planned) (did bool, log []string, problem *accel.Problem) {
	tail, err := d.h.KernelTail()
	if err == nil {
		defer tail.Close()
	}
	limited, cancel := context.WithTimeout(ctx, d.o.LoadTimeout)
	defer cancel()
	loadErr := d.kernel.Load(limited, m.Content, kmod.JoinParameters(m.Parameters))
	if err == nil {
		log = tail.Lines()
	}
	c := kmod.Circumstances{Module: m.Name, Signed: m.Signature != nil, Lockdown: facts.Kernel.Lockdown, ModulesDisabled: facts.Kernel.ModulesDisabled, Log: log}
	if text, err := d.h.ReadString("/proc/sys/kernel/modules_disabled"); err == nil {
		c.ModulesDisabled = text == "1"
	}
	var errno syscall.Errno
	switch {
	case loadErr == nil:
		return true, log, nil
	case errors.Is(loadErr, context.DeadlineExceeded) && kmod.Taint(d.h)&kmod.TaintDied != 0:
		// The thread that crashed could not even end, so the helper waits for it.
		return false, log, accel.Problemf(accel.RebootRequired, "the initialisation of module %q crashed in the kernel%s", m.Name, c.Quote())
	case errors.Is(loadErr, context.DeadlineExceeded):
		return false, log, accel.Problemf(accel.LoadTimeout, "the initialisation of module %q did not end within %v%s", m.Name, d.o.LoadTimeout, c.Quote())
	case ctx.Err() != nil:
		return false, log, accel.Problemf(accel.LoadTimeout, "the load of module %q was called off: %v", m.Name, ctx.Err())
	case errors.Is(loadErr, ErrDied):
		if kmod.Taint(d.h)&kmod.TaintDied == 0 {
			return false, log, accel.Problemf(accel.LoadFailed, "cannot load module %q: %v%s", m.Name, loadErr, c.Quote())
		}
		return false, log, accel.Problemf(accel.RebootRequired, "the initialisation of module %q crashed in the kernel%s", m.Name, c.Quote())
	case errors.As(loadErr, &errno):
		if errno == syscall.EEXIST || errno == syscall.EBUSY {
			return false, log, d.raced(ctx, m)
		}
		return false, log, kmod.LoadProblem(errno, c)
	}
	return false, log, accel.ProblemOf(loadErr, "cannot load module %q", m.Name)
}

// raced decides about a module that somebody else was loading at the same moment.
func (d *Driver) raced(ctx context.Context, m kmod.Planned) *accel.Problem {
	if problem := d.awaitModule(ctx, m.Name); problem != nil {
		return problem
	}
	live, ok := kmod.Live(d.h, m.Name)
	if !ok {
		return accel.Problemf(accel.LoadFailed, "module %q was loaded by somebody else and failed", m.Name)
	}
	if !m.Prior && !kmod.Same(live, m.BuildID, m.SrcVersion, m.Image.Version) {
		return accel.Problemf(accel.OtherModuleLoaded, "somebody else loaded module %q with build-id %q, the one in %q has %q", m.Name, live.BuildID, m.Path, m.BuildID)
	}
	return nil
}

// abandon unloads what a transaction loaded and closes its attempt, unless the kernel still works on it.
func (d *Driver) abandon(ctx context.Context, p *kmod.Plan, loaded []string, problem *accel.Problem) {
	calledOff := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.o.LoadTimeout) // also when the caller gives up
	defer cancel()
	for _, name := range slices.Backward(loaded) {
		if err := d.kernel.Unload(ctx, name); err != nil {
			d.log.Warn("cannot unload a module again", "module", name, "error", err)
		}
	}
	if problem.Reason == accel.LoadTimeout || problem.Reason == accel.RebootRequired {
		if !calledOff { // otherwise the next attempt sees for itself what became of it
			d.attempts.Hung(p.ID)
		}
		return
	}
	d.attempts.Close(p.ID, false)
}

// awaitStill waits until no module of the definition is on its way in or out.
func (d *Driver) awaitStill(ctx context.Context, def *accel.Definition) *accel.Problem {
	for _, m := range def.Driver.Modules {
		if problem := d.awaitModule(ctx, m.Name); problem != nil {
			return problem
		}
	}
	return nil
}

// awaitModule waits until a module is live or gone. Sysfs announces neither.
func (d *Driver) awaitModule(ctx context.Context, name string) *accel.Problem {
	state := ""
	arrived := d.until(ctx, d.o.LoadTimeout, func() bool {
		m, ok := kmod.Live(d.h, name)
		state = m.State
		return !ok || state == kmod.StateLive || kmod.Taint(d.h)&kmod.TaintDied != 0
	})
	if m, ok := kmod.Live(d.h, name); arrived && (!ok || m.State == kmod.StateLive) {
		return nil
	}
	if ctx.Err() != nil {
		return accel.Problemf(accel.LoadTimeout, "module %q is in state %q: %v", name, state, ctx.Err())
	}
	return accel.Problemf(accel.RebootRequired, "module %q is stuck in state %q", name, state)
}

// awaitDevices waits until every device is bound and has its nodes: udev and devtmpfs follow a load. What is for nobody
// to make is made here.
func (d *Driver) awaitDevices(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator) (accel.DriverHave, *accel.Problem) {
	d.until(ctx, d.settle, func() bool {
		d.devices.MakeNodes(def, accs, false)
		return devices.Problem(def, d.devices.Observe(def, accs), true) == nil && d.devices.SharedProblem(def, true) == nil
	})
	have, problem := d.Probe(def, facts, accs)
	if problem == nil && !have.Right {
		problem = accel.Problemf(accel.LoadFailed, "the modules of %q went away while they were loaded", def.Kind)
	}
	return have, problem
}

// until asks at growing distances, 1 ms to 100 ms, until done or limit is over or ctx ends.
func (d *Driver) until(ctx context.Context, limit time.Duration, done func() bool) bool {
	over := time.NewTimer(limit)
	defer over.Stop()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		if done() {
			return true
		}
		next := time.NewTimer(wait)
		select {
		case <-next.C:
		case <-over.C:
			next.Stop()
			return done()
		case <-ctx.Done():
			next.Stop()
			return false
		}
	}
}
