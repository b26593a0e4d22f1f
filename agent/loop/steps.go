package loop

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/pace"
)

// calm is the least time between two runs of the same step of a kind, so that a step whose effect does not last never
// becomes a hot loop.
const calm = time.Second

// start runs the step a kind needs, unless one runs already or a failed one is not due yet.
func (l *Loop) start(ctx context.Context, steps *sync.WaitGroup, name string, k *kind) {
	step := k.status.Next
	if step == accel.StepNone || k.running != accel.StepNone || ctx.Err() != nil {
		return
	}
	if f := k.have.Failure; f != nil && f.Step == step && (f.RetryAt.IsZero() || time.Now().Before(f.RetryAt)) {
		return
	}
	if k.ended == step && time.Since(k.endedAt) < calm {
		return // it succeeded and its gate is still shut: the machine gets a moment before it runs again
	}
	if step == accel.StepUpgrade {
		l.upgrade(ctx, steps, name, k)
		return
	}
	work := l.work(ctx, k, step)
	if work == nil {
		return
	}
	k.running = step
	l.background(steps, name, step, work)
}

// work returns what a step does, closed over copies of what it needs; nil for steps that only wait for an event.
func (l *Loop) work(ctx context.Context, k *kind, step accel.Step) func() (func(*kind), *accel.Problem) {
	accs := slices.Clone(k.have.Accelerators)
	if own := l.alone(ctx, k, step); own != nil {
		return own
	}
	switch step {
	case accel.StepDriver:
		if l.prerequisite(k) != "" {
			return nil // observed, and said
		}
		return l.around(ctx, k, step, l.ensureDriver(ctx, k.def, accs))
	case accel.StepProve:
		return l.around(ctx, k, step, l.prove(ctx, k, unproven(k)))
	case accel.StepRuntime:
		return l.around(ctx, k, step, l.applyRuntime(k.def, accs))
	case accel.StepWithdraw:
		return l.withdraw(k.def)
	case accel.StepRegister:
		l.startPlugin(ctx, k)
	case accel.StepMonitor:
		if k.have.Monitoring.Collected.IsZero() && !k.sampling {
			k.sampling = true
			l.sample(ctx, k.def.Kind, step, l.collectKind(k.def, accs))
		}
	}
	return nil
}

// finish takes over the outcome of a step.
func (l *Loop) finish(r outcome) {
	k := l.kinds[r.kind]
	if k == nil {
		return // its kind is not wanted any more
	}
	if r.merge != nil {
		r.merge(k)
	}
	if r.step == accel.StepNone {
		return // a sample: its failure shows as series that are absent, the next one is due anyway
	}
	if k.running == r.step {
		k.running = accel.StepNone
	}
	k.ended, k.endedAt = r.step, time.Now()
	if r.step != accel.StepUpgrade { // it keeps its own
		l.note(k, r.step, r.problem, time.Now())
	}
	if r.problem != nil {
		l.o.Log.Warn("step failed", "kind", r.kind, "step", r.step, "reason", r.problem.Reason, "message", r.problem.Message, "tried", r.problem.Tried)
		if l.o.Observer != nil {
			l.o.Observer.ObserveFailure(r.kind, r.step, r.problem.Reason)
		}
	}
	l.facts = l.o.Probes.Facts() // what a step changed is read back, never assumed
}

// note remembers or clears the failure of a step.
func (l *Loop) note(k *kind, step accel.Step, problem *accel.Problem, now time.Time) {
	old := k.have.Failure
	if problem == nil {
		if old != nil && old.Step == step {
			k.have.Failure = nil
		}
		return
	}
	k.have.Failure = failure(old, step, problem, now)
}

// failure is a problem of a step with its history.
func failure(old *accel.Failure, step accel.Step, problem *accel.Problem, now time.Time) *accel.Failure {
	f := &accel.Failure{Step: step, Problem: *problem, Since: now, Attempts: 1}
	if old != nil && old.Step == step {
		f.Since, f.Attempts = old.Since, old.Attempts+1
		if waits(step) { // the plugin retries by itself; seeing its problem again is not another attempt
			f.Attempts = old.Attempts
		}
	}
	if waits(step) {
		f.RetryAt = now.Add(pulse)
	} else if !problem.Reason.Doc().Permanent {
		f.RetryAt = now.Add(pace.Backoff{First: time.Second, Max: 5 * time.Minute}.After(f.Attempts))
	}
	return f
}

// waits reports whether a step is carried by the device plugin's own loop.
func waits(step accel.Step) bool { return step == accel.StepRegister || step == accel.StepAwait }

// ensureDriver is the step out of driver-missing.
func (l *Loop) ensureDriver(ctx context.Context, def *accel.Definition, accs []accel.Accelerator) func() (func(*kind), *accel.Problem) {
	facts := l.facts
	return func() (func(*kind), *accel.Problem) {
		have, problem := l.o.Effects.Ensure(ctx, def, facts, present(accs))
		return func(k *kind) {
			if problem == nil {
				k.have.Driver = have
			}
		}, problem
	}
}

// prove is the step out of driver-unproven: only the devices that have not computed are asked to.
func (l *Loop) prove(ctx context.Context, k *kind, accs []accel.Accelerator) func() (func(*kind), *accel.Problem) {
	def, identity := k.def, driverIdentity(k.have.Driver)
	return func() (func(*kind), *accel.Problem) {
		proof, problem := l.o.Effects.Prove(ctx, def, accs)
		if problem != nil {
			return nil, problem
		}
		return func(k *kind) {
			for _, a := range accs {
				k.proven[a.ID] = identity
			}
			k.at, k.proof = time.Now(), fmt.Sprintf("%s (%s)", proof, devices(len(k.proven)))
		}, nil
	}
}

// applyRuntime is the step out of runtime-missing.
func (l *Loop) applyRuntime(def *accel.Definition, accs []accel.Accelerator) func() (func(*kind), *accel.Problem) {
	want := l.want
	return func() (func(*kind), *accel.Problem) {
		have, problem := l.o.Effects.Apply(def, accs, want)
		return func(k *kind) {
			if problem == nil {
				k.have.Runtime = have
			}
		}, problem
	}
}

// withdraw takes back what was published about a kind whose last device left.
func (l *Loop) withdraw(def *accel.Definition) func() (func(*kind), *accel.Problem) {
	return func() (func(*kind), *accel.Problem) {
		return func(k *kind) { k.have.Runtime = accel.RuntimeHave{} }, l.o.Effects.Withdraw(def)
	}
}

// startPlugin is the step out of plugin-missing. From then on the plugin registers, and registers again, by itself.
func (l *Loop) startPlugin(ctx context.Context, k *kind) {
	if k.plugin != nil || l.o.Effects.Plugin == nil {
		return
	}
	ctx, k.stop = context.WithCancel(ctx)
	k.plugin = l.o.Effects.Plugin(ctx, k.def)
	l.Changed() // the next pass gives it the inventory
}

// startEarly starts what offers a kind when pods wait for it to take devices back.
func (l *Loop) startEarly(ctx context.Context, k *kind) {
	if k.plugin == nil && l.want.Kubernetes && ctx.Err() == nil && l.o.Effects.Early != nil && l.o.Effects.Early(k.def) {
		l.startPlugin(ctx, k)
	}
}

// collect is the sampler: metrics of every kind whose driver works.
func (l *Loop) collect(ctx context.Context) {
	for name, k := range l.kinds {
		if !k.have.Driver.Right || k.sampling {
			continue
		}
		k.sampling = true
		work := l.collectKind(k.def, slices.Clone(k.have.Accelerators))
		l.sample(ctx, name, accel.StepNone, work)
	}
}

// sample runs a collection that nobody waits for: a device that hangs in a read must not hold up the agent's end.
func (l *Loop) sample(ctx context.Context, name string, step accel.Step, work func() (func(*kind), *accel.Problem)) {
	go func() {
		merge, problem := work()
		select {
		case l.done <- outcome{kind: name, step: step, merge: merge, problem: problem}:
		case <-ctx.Done():
		}
	}()
}

// collectKind is the step out of unwatched and every later sample: one complete collection.
func (l *Loop) collectKind(def *accel.Definition, accs []accel.Accelerator) func() (func(*kind), *accel.Problem) {
	return func() (func(*kind), *accel.Problem) {
		read, problem := map[string]map[string]float64{}, (*accel.Problem)(nil)
		for _, a := range accs {
			if !a.Present() {
				continue
			}
			metrics, err := l.o.Probes.Collect(def, a)
			if err != nil {
				problem = accel.Problemf(accel.CollectFailed, "cannot read metrics of %q: %v", a.ID, err)
			}
			read[a.ID] = metrics // what did not answer is not there: an old number is no number
		}
		return func(k *kind) {
			k.sampling = false
			for i, a := range k.have.Accelerators {
				if m, ok := read[a.ID]; ok {
					k.have.Accelerators[i].Metrics = m
				}
			}
			if problem == nil {
				k.have.Monitoring.Collected = time.Now()
			}
		}, problem
	}
}
