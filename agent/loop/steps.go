package loop

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/pace"
)

// calm is the minimum time between two runs of the same step of a kind, so that a step whose effect does not last
// never becomes a hot loop.
const calm = time.Second

// work is what a step does, closed over copies of what it needs. The function that it returns applies the outcome in
// the loop's goroutine.
type work func() (func(*kind), *accel.Problem)

// worker starts the steps of kinds. It is the loop plus the values that live as long as Run.
type worker struct {
	*Loop
	ctx context.Context //nolint:containedctx // the context of Run: every step ends with it
	// plugins is the context that Run got: the plugins do not end when Run fails and is called again.
	plugins context.Context //nolint:containedctx // see above
	steps   *guard.Group
}

// background runs work concurrently with the loop and passes the outcome to it.
func (w *worker) background(k *kind, step accel.Step, do work) {
	name := k.def.Kind
	w.steps.Go(func() {
		merge, problem := w.try(do, func(k *kind, p *accel.Problem) {
			if k.up != nil && (step == accel.StepNone || step == accel.StepUpgrade) {
				k.up.busy = false
				w.failUpgrade(k, p)
			}
		})
		w.report(outcome{kind: name, step: step, merge: merge, problem: problem})
	})
}

// try does work. A panic in it is a problem, of which failed makes a note in the loop's goroutine.
func (w *worker) try(do work, failed func(*kind, *accel.Problem)) (merge func(*kind), problem *accel.Problem) {
	if err := guard.Try(func() error { merge, problem = do(); return nil }); err != nil {
		problem = accel.Problemf(accel.PartFailed, "%v", err)
		merge = func(k *kind) { failed(k, problem) }
	}
	return merge, problem
}

// report passes an outcome to the loop.
func (w *worker) report(r outcome) {
	select {
	case w.done <- r:
	case <-w.ctx.Done():
	}
}

// start runs the step that a kind needs, unless a step runs already or a failed one is not due yet.
func (w *worker) start(k *kind) {
	step := k.status.Next
	if step == accel.StepNone || k.running != accel.StepNone || w.ctx.Err() != nil {
		return
	}
	if f := k.have.Failure; f != nil && f.Step == step && !due(f, time.Now()) {
		return
	}
	if k.ended == step && time.Since(k.endedAt) < calm {
		return // it succeeded, but its gate is not passed yet: give the machine a moment before another run
	}
	if step == accel.StepUpgrade {
		w.upgrade(k)
		return
	}
	if do := w.work(k, step); do != nil {
		k.running = step
		w.background(k, step, do)
	}
}

// work returns what a step does; nil for steps that only wait for an event.
func (w *worker) work(k *kind, step accel.Step) work {
	accs := slices.Clone(k.have.Accelerators)
	if own := w.alone(k, step); own != nil {
		return own
	}
	switch step {
	case accel.StepDriver:
		if w.prerequisite(k) != "" {
			return nil // observePrerequisite has reported it
		}
		return w.around(k, step, w.ensureDriver(k.def, accs))
	case accel.StepProve:
		if accs := unproven(k); len(accs) > 0 {
			return w.around(k, step, w.prove(k, accs))
		}
	case accel.StepRuntime:
		return w.around(k, step, w.applyRuntime(k.def, accs))
	case accel.StepWithdraw:
		return w.withdraw(k.def)
	case accel.StepRegister:
		w.startPlugin(k)
	case accel.StepMonitor:
		if k.have.Monitoring.Collected.IsZero() && !k.sampling {
			k.sampling = true
			w.sample(k.def.Kind, step, w.collectKind(k.def, accs))
		}
	}
	return nil
}

// finish takes over the outcome of a step.
func (l *Loop) finish(r outcome) {
	k := l.kinds[r.kind]
	if k == nil {
		return // its kind is not configured any more
	}
	if r.merge != nil {
		r.merge(k)
	}
	if r.step == accel.StepNone {
		return // a sample: its failure shows as missing series, and the next sample is due anyway
	}
	if k.running == r.step {
		k.running = accel.StepNone
	}
	k.ended, k.endedAt = r.step, time.Now()
	if r.step != accel.StepUpgrade { // an upgrade keeps its own failure
		k.note(r.step, r.problem, time.Now())
	}
	if r.problem != nil {
		l.o.Log.Warn("step failed", "kind", r.kind, "step", r.step,
			"reason", r.problem.Reason, "message", r.problem.Message, "tried", r.problem.Tried)
		if l.o.Observer != nil {
			l.o.Observer.ObserveFailure(r.kind, r.step, r.problem.Reason)
		}
	}
	l.facts = l.o.Probes.Facts() // read back what the step changed, never assume it
}

// note records or clears the failure of a step.
func (k *kind) note(step accel.Step, problem *accel.Problem, now time.Time) {
	old := k.have.Failure
	if problem == nil {
		if old != nil && old.Step == step {
			k.have.Failure = nil
		}
		return
	}
	k.have.Failure = failure(old, step, problem, now)
}

// failure returns a problem of a step with its history.
func failure(old *accel.Failure, step accel.Step, problem *accel.Problem, now time.Time) *accel.Failure {
	f := &accel.Failure{Step: step, Problem: *problem, Since: now, Attempts: 1}
	if old != nil && old.Step == step {
		f.Since, f.Attempts = old.Since, old.Attempts+1
		if waits(step) || problem.Reason == accel.WaitingForSlot ||
			problem.Reason == accel.UnderMaintenance { // seeing it again is not another attempt
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

// waits reports whether the device plugin's own loop carries out a step, and retries it.
func waits(step accel.Step) bool { return step == accel.StepRegister || step == accel.StepAwait }

// ensureDriver is the step that leaves driver-missing.
func (w *worker) ensureDriver(def *accel.Definition, accs []accel.Accelerator) work {
	facts := w.facts
	return func() (func(*kind), *accel.Problem) {
		have, problem := w.o.Effects.Ensure(w.ctx, def, facts, present(accs))
		return func(k *kind) {
			if problem == nil {
				k.have.Driver = have
			}
		}, problem
	}
}

// prove is the step that leaves driver-unproven. It tests only the devices that have not passed their self-test.
func (w *worker) prove(k *kind, accs []accel.Accelerator) work {
	def, identity := k.def, driverIdentity(k.have.Driver)
	return func() (func(*kind), *accel.Problem) {
		proof, problem := w.o.Effects.Prove(w.ctx, def, accs)
		if problem != nil {
			return nil, problem
		}
		return func(k *kind) {
			for _, a := range accs {
				k.proven[a.ID] = identity
				delete(k.skipped, a.ID)
			}
			maps.Copy(k.skipped, proof.Skipped)
			for _, id := range slices.Sorted(maps.Keys(proof.Skipped)) {
				w.o.Log.Info("device was not checked", "kind", def.Kind, "device", id, "message", proof.Skipped[id])
			}
			if proof.Sentence != "" {
				k.at = time.Now()
				k.proof = fmt.Sprintf("%s (%s)", proof.Sentence, devices(len(k.proven)-len(k.skipped)))
			}
		}, nil
	}
}

// applyRuntime is the step that leaves runtime-missing.
func (w *worker) applyRuntime(def *accel.Definition, accs []accel.Accelerator) work {
	want := w.want
	return func() (func(*kind), *accel.Problem) {
		have, problem := w.o.Effects.Apply(def, accs, want)
		return func(k *kind) {
			if problem == nil {
				k.have.Runtime = have
			}
		}, problem
	}
}

// withdraw removes what was published about a kind whose last device left.
func (w *worker) withdraw(def *accel.Definition) work {
	return func() (func(*kind), *accel.Problem) {
		return func(k *kind) { k.have.Runtime = accel.RuntimeHave{} }, w.o.Effects.Withdraw(def)
	}
}

// startPlugin is the step that leaves plugin-missing. From then on the plugin registers, and re-registers, by itself.
func (w *worker) startPlugin(k *kind) {
	if k.plugin != nil || w.o.Effects.Plugin == nil {
		return
	}
	var ctx context.Context
	ctx, k.stop = context.WithCancel(w.plugins)
	k.plugin = w.o.Effects.Plugin(ctx, k.def)
	w.Changed() // the next pass gives it the inventory
}

// startEarly starts a kind's plugin if claims still need it to unprepare their devices.
func (w *worker) startEarly(k *kind) {
	early := w.o.Effects.Early
	if k.plugin == nil && w.want.Kubernetes && w.ctx.Err() == nil && early != nil && early(k.def) {
		w.startPlugin(k)
	}
}

// collect starts a sample of the metrics of every kind whose driver works.
func (w *worker) collect() {
	for name, k := range w.kinds {
		if !k.have.Driver.Serves || k.sampling {
			continue
		}
		k.sampling = true
		w.sample(name, accel.StepNone, w.collectKind(k.def, slices.Clone(k.have.Accelerators)))
	}
}

// sample runs a collection that Run does not wait for: a device that hangs in a read must not delay the agent's end.
func (w *worker) sample(name string, step accel.Step, do work) {
	guard.Go(func() {
		merge, problem := w.try(do, func(k *kind, _ *accel.Problem) { k.sampling = false })
		w.report(outcome{kind: name, step: step, merge: merge, problem: problem})
	})
}

// collectKind is the step that leaves unwatched, and every later sample: one complete collection.
func (w *worker) collectKind(def *accel.Definition, accs []accel.Accelerator) work {
	return func() (func(*kind), *accel.Problem) {
		read, problem := map[string]map[string]float64{}, (*accel.Problem)(nil)
		bound := map[string]string{}
		for _, a := range accs {
			if !a.Present() {
				continue
			}
			metrics, err := w.o.Probes.Collect(def, a)
			if err != nil {
				problem = accel.Problemf(accel.CollectFailed, "cannot read metrics of %q: %v", a.ID, err)
			}
			bound[a.ID] = a.Bound
			read[a.ID] = metrics // a metric that could not be read is missing: a stale value must not remain
		}
		return func(k *kind) {
			k.sampling = false
			for i, a := range k.have.Accelerators {
				// Read with another driver, it says nothing about the device as it is now.
				if m, ok := read[a.ID]; ok && a.Bound == bound[a.ID] {
					k.have.Accelerators[i].Metrics = m
				}
			}
			if problem == nil {
				k.have.Monitoring.Collected = time.Now()
			}
		}, problem
	}
}
