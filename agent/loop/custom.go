package loop

import (
	"fmt"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
)

// ownMoment says when a definition's own steps for a published state run.
type ownMoment struct {
	state  accel.Published
	moment accel.Moment
}

// ownSteps is the table that places a definition's own steps. Those in Before run before the work of a step. Those in
// After are the last gate of the state that the step leaves.
func ownSteps(step accel.Step, moment accel.Moment) []accel.Published {
	before, after := moment == accel.Before, moment == accel.After
	switch {
	case step == accel.StepDriver && before, step == accel.StepProve && after:
		return []accel.Published{accel.DriverContainer}
	case step == accel.StepRuntime:
		return []accel.Published{accel.RuntimeEnablement}
	case step == accel.StepRegister && before, step == accel.StepAwait && after:
		return []accel.Published{accel.DevicePlugin}
	case step == accel.StepMonitor:
		return []accel.Published{accel.DeviceMonitoring, accel.FeatureDiscovery}
	}
	return nil
}

// placed returns the published states whose own steps are placed there for a kind, and after those the definition's own
// states that follow them.
func (k *kind) placed(step accel.Step, moment accel.Moment) []accel.Published {
	all := ownSteps(step, moment)
	if moment == accel.After {
		for _, s := range k.def.States {
			if slices.Contains(ownSteps(step, moment), s.After) {
				all = append(all, s.Published())
			}
		}
	}
	return all
}

// gated adds the definitions' own steps and states to the gates of the table.
func gated(rows []row) []row {
	for i, r := range rows {
		states := ownSteps(r.step, accel.After)
		rows[i].reached = func(m accel.Machine, h accel.Have) bool {
			left := func(p accel.Published) bool { return slices.Contains(h.StepsLeft, p) }
			return r.passed(m, h) && !slices.ContainsFunc(states, left)
		}
		rows[i].passed = func(m accel.Machine, h accel.Have) bool {
			left := func(p accel.Published) bool { return len(h.StatesLeft[p]) > 0 }
			return rows[i].reached(m, h) && !slices.ContainsFunc(states, left)
		}
	}
	return rows
}

// observeSteps records the published states whose own steps have not yet completed with the live driver, and the
// definition's own states that are not reached with it.
func (l *Loop) observeSteps(k *kind) {
	k.have.StepsLeft, k.have.StatesLeft = nil, nil
	for _, s := range k.def.States {
		if l.left(k, ownMoment{s.Published(), accel.After}) {
			if k.have.StatesLeft == nil {
				k.have.StatesLeft = map[accel.Published][]accel.Published{}
			}
			k.have.StatesLeft[s.After] = append(k.have.StatesLeft[s.After], s.Published())
		}
	}
	for _, p := range accel.PublishedStates() {
		// Collections run by themselves, so nothing else gates the steps that must run before the first one.
		early := p == accel.DeviceMonitoring || p == accel.FeatureDiscovery
		if l.left(k, ownMoment{p, accel.After}) || early && l.left(k, ownMoment{p, accel.Before}) {
			k.have.StepsLeft = append(k.have.StepsLeft, p)
		}
	}
}

// left reports whether a kind has own steps at a moment that have not completed with the live driver.
func (l *Loop) left(k *kind, at ownMoment) bool {
	identity, done := k.stepped[at]
	return len(k.def.StepsAt(at.state, at.moment)) > 0 && (!done || identity != driverIdentity(k.have.Driver))
}

// observePrerequisite blocks a kind whose driver does not serve while the driver of a kind that it comes after is
// unproven. It ends the block when that driver is proven.
func (l *Loop) observePrerequisite(k *kind, now time.Time) {
	f := k.have.Failure
	message := l.prerequisite(k)
	switch {
	case message == "" && f != nil && f.Reason == accel.PrerequisitePending:
		k.have.Failure = nil
	case message != "" && (f == nil || f.Message != message):
		k.have.Failure = &accel.Failure{
			Step: accel.StepDriver, Problem: *accel.Problemf(accel.PrerequisitePending, "%s", message),
			Since: now, Attempts: 1, RetryAt: now.Add(pulse),
		}
	}
}

// prerequisite returns a message that names the kind that this one waits for; empty if there is none.
func (l *Loop) prerequisite(k *kind) string {
	if k.have.Driver.Serves || accel.CountPresent(k.have.Accelerators) == 0 {
		return ""
	}
	for _, name := range k.def.After {
		other, ok := l.kinds[name]
		switch {
		case !ok:
			return fmt.Sprintf("kind %q comes after %q, which is not in force", k.def.Kind, name)
		case !other.have.Driver.PastCheck():
			return fmt.Sprintf("kind %q comes after %q, whose driver does not work yet", k.def.Kind, name)
		}
	}
	return ""
}

// alone returns the own steps that must run now on their own: either the rest of the gate is passed, or the work
// between them does not end by itself. It returns nil if there are none.
func (w *worker) alone(k *kind, step accel.Step) work {
	var open bool // the rest of the gate
	switch step {
	case accel.StepProve:
		open = len(unproven(k)) == 0
	case accel.StepRuntime:
		open = published(accel.Machine{Want: w.want}, k.have)
	case accel.StepAwait:
		open = k.have.Plugin.Allocatable.Is(accel.CountOffered(accel.Units(k.inventory())))
	case accel.StepMonitor:
		open = !k.have.Monitoring.Collected.IsZero()
	case accel.StepRegister:
	default:
		return nil
	}
	var at []ownMoment
	if step == accel.StepRegister || step == accel.StepMonitor {
		at = w.due(k, step, accel.Before)
	}
	if open && len(at) == 0 {
		at = w.due(k, step, accel.After)
	}
	if len(at) == 0 {
		return nil
	}
	return w.runOwn(k, at)
}

// due returns the own steps of a step at one moment that have not completed.
func (w *worker) due(k *kind, step accel.Step, moment accel.Moment) []ownMoment {
	var out []ownMoment
	for _, p := range k.placed(step, moment) {
		if at := (ownMoment{p, moment}); w.left(k, at) {
			out = append(out, at)
		}
	}
	return out
}

// around runs the own steps of a step before and after its work. Those before it run at every attempt.
func (w *worker) around(k *kind, step accel.Step, do work) work {
	var before []ownMoment
	for _, p := range ownSteps(step, accel.Before) {
		before = append(before, ownMoment{p, accel.Before})
	}
	first, last := w.runOwn(k, before), w.runOwn(k, w.due(k, step, accel.After))
	return func() (func(*kind), *accel.Problem) {
		if _, problem := first(); problem != nil {
			return nil, problem
		}
		merge, problem := do()
		if problem != nil {
			return merge, problem
		}
		passed, problem := last()
		return func(k *kind) {
			if merge != nil {
				merge(k)
			}
			passed(k)
		}, problem
	}
}

// runOwn runs own steps, closed over copies of what they need, and remembers those that completed.
func (w *worker) runOwn(k *kind, at []ownMoment) work {
	def, facts, accs, identity := k.def, w.facts, slices.Clone(k.have.Accelerators), driverIdentity(k.have.Driver)
	return func() (func(*kind), *accel.Problem) {
		for i, o := range at {
			if problem := w.o.Effects.Steps(w.ctx, def, facts, accs, o.state, o.moment); problem != nil {
				return remember(at[:i], identity), problem
			}
		}
		return remember(at, identity), nil
	}
}

// remember returns what notes that own steps have completed.
func remember(at []ownMoment, identity string) func(*kind) {
	return func(k *kind) {
		for _, o := range at {
			k.stepped[o] = identity
		}
	}
}
