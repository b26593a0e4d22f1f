package loop

import (
	"context"
	"time"

	"github.com/acceld/acceld/accel"
)

// upgrading is what the loop keeps about a desired driver that is not the one in use. It is shown as Driver.Upgrade
// of the kind; upgrade reads it to know the progress. None of it outlives the agent: the driver's journal records
// what has touched the machine.
type upgrading struct {
	wish     string
	since    time.Time
	phase    accel.UpgradePhase
	to       accel.DriverRef // set once it is prepared
	prepared bool
	// busy is true while the new driver is being prepared or holders are looked for. Neither blocks other steps.
	busy    bool
	holders []accel.Holder
	// drained is the time since which no device is given out; zero while devices are given out.
	drained time.Time
	failure *accel.Failure
	// word is the node's report to the controller if a policy of the cluster orders upgrades. acting is true from
	// when the node has its slot until the upgrade has succeeded or failed.
	report accel.UpgradeReport
	acting bool
	// stop ends the wait for a holder's end.
	stop context.CancelFunc
}

// observeUpgrade follows which driver is desired and shows the progress of the upgrade.
func (l *Loop) observeUpgrade(k *kind, now time.Time) {
	wanted := k.have.Driver.Upgrade
	if k.up != nil && k.running != accel.StepUpgrade && (wanted == nil || wanted.Wish != k.up.wish) {
		k.up.end()
		k.up = nil
	}
	if wanted == nil {
		return
	}
	if k.up == nil {
		k.up = &upgrading{wish: wanted.Wish, since: now, phase: accel.UpgradePending}
		l.o.Log.Info("driver upgrade wanted", "kind", k.def.Kind,
			"from", wanted.From, "to", wanted.To, "why", wanted.Why)
	}
	l.observeSlot(k, now)
	shown := *wanted
	shown.Since, shown.Phase, shown.Failure, shown.Holders = k.up.since, k.up.phase, k.up.failure, k.up.holders
	if k.up.prepared {
		shown.To = k.up.to
	}
	k.have.Driver.Upgrade = &shown
}

// end cancels the wait and offers devices again.
func (u *upgrading) end() {
	if u.stop != nil {
		u.stop()
		u.stop = nil
	}
	u.drained, u.phase = time.Time{}, accel.UpgradePending
}

// heldBack reports whether devices are withheld because their driver is about to be replaced.
func heldBack(h accel.Have) bool {
	u := h.Driver.Upgrade
	return u != nil && (u.Phase == accel.UpgradeDraining || u.Phase == accel.UpgradeReplacing)
}

// upgradeCase returns what is known about a kind's upgrade now.
func (l *Loop) upgradeCase(k *kind, looked *lookedFor) upgradeCase {
	u := k.up
	return upgradeCase{
		kind: k.def.Kind, policy: k.def.Driver.Upgrade, now: time.Now(), phase: u.phase, prepared: u.prepared,
		ordered: l.ordered(k), acting: u.acting, drained: u.drained, withheld: l.withheld(k), looked: looked,
	}
}

// upgrade takes the next step of an upgrade: prepare the new driver, make sure that nobody uses the old one, replace
// it.
func (w *worker) upgrade(name string, k *kind) {
	u := k.up
	if u == nil || u.busy {
		return
	}
	d := decideUpgrade(w.upgradeCase(k, nil))
	u.phase = d.phase
	switch d.step {
	case upgradeReplaces:
		k.running = accel.StepUpgrade
		w.background(name, accel.StepUpgrade, w.replace(k, u))
	case upgradePrepares:
		u.busy = true
		w.background(name, accel.StepNone, w.prepare(k, u))
		w.Changed()
	case upgradeLooks:
		u.busy = true
		w.background(name, accel.StepNone, w.lookForHolders(name, k, u, d.evict))
	case upgradeWaits:
	}
}

// prepare fetches or builds the new driver into the store.
func (w *worker) prepare(k *kind, u *upgrading) work {
	def, facts := k.def, w.facts
	return func() (func(*kind), *accel.Problem) {
		to, problem := w.o.Effects.Prepare(w.ctx, def, facts)
		return func(k *kind) {
			u.busy = false
			if k.up != u {
				return // the desired driver has changed meanwhile
			}
			u.phase = accel.UpgradePending
			if problem != nil {
				w.failUpgrade(k, u, problem, time.Now())
				if u.report = (accel.UpgradeReport{}); problem.Reason.Doc().Permanent && k.have.Driver.Upgrade != nil {
					u.gaveUp(k.have.Driver.Upgrade.To, problem)
				}
				return
			}
			u.to, u.prepared, u.failure, u.report = to, true, nil, accel.UpgradeReport{}
		}, nil
	}
}

// withheld reports whether the kubelet gives the devices to no pod.
func (l *Loop) withheld(k *kind) bool {
	return !l.want.Kubernetes || k.plugin == nil || !k.have.Plugin.Registered || k.have.Plugin.Allocatable.Is(0)
}

// lookForHolders finds who uses the old driver, evicts the pods among them if evict is set, and decides from the
// result.
func (w *worker) lookForHolders(name string, k *kind, u *upgrading, evict bool) work {
	def, accs := k.def, present(k.have.Accelerators)
	return func() (func(*kind), *accel.Problem) {
		var looked lookedFor
		looked.holders, looked.unanswered = w.o.Effects.Holders(w.ctx, def, accs)
		if evict && len(looked.holders) > 0 {
			looked.refused = w.o.Effects.Evict(w.ctx, looked.holders)
		}
		return func(k *kind) {
			u.busy = false
			if k.up == u {
				u.holders = looked.holders
				w.follow(name, k, decideUpgrade(w.upgradeCase(k, &looked)))
			}
		}, nil
	}
}

// follow carries out the decision about the holders: it withholds devices or offers them again, and records why the
// upgrade waits.
func (w *worker) follow(name string, k *kind, d upgradeDecision) {
	u := k.up
	if d.drained.IsZero() {
		u.end()
	}
	u.phase, u.drained = d.phase, d.drained
	if d.problem == nil {
		if len(u.holders) == 0 {
			u.failure = nil
		}
		return
	}
	w.failUpgrade(k, u, d.problem, time.Now())
	if !d.retryAt.IsZero() || d.givenUp {
		u.failure.RetryAt = d.retryAt
	}
	if d.givenUp {
		u.gaveUp(u.to, d.problem)
	}
	if d.await {
		w.awaitHolder(name, u, u.holders, d.until)
	}
}

// awaitHolder makes the upgrade due when one of the holders ends.
func (w *worker) awaitHolder(name string, u *upgrading, holders []accel.Holder, over time.Time) {
	if u.stop != nil {
		u.stop()
	}
	var ctx context.Context
	ctx, u.stop = context.WithCancel(w.ctx)
	if !over.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, over)
		stop := u.stop
		u.stop = func() { cancel(); stop() }
	}
	w.steps.Go(func() {
		if w.o.Effects.AwaitHolder(ctx, holders) != nil {
			return // cancelled or timed out: the clock makes it due
		}
		w.done <- outcome{kind: name, merge: func(k *kind) {
			if k.up == u && u.failure != nil {
				again := *u.failure
				again.RetryAt = time.Now()
				u.failure = &again
			}
		}}
	})
}

// replace replaces the driver: the part of an upgrade that touches the machine.
func (w *worker) replace(k *kind, u *upgrading) work {
	def, facts, accs := k.def, w.facts, present(k.have.Accelerators)
	whole, before := k.have.Driver.Serves, driverIdentity(k.have.Driver)
	return func() (func(*kind), *accel.Problem) {
		have, problem := w.o.Effects.Upgrade(w.ctx, def, facts, accs)
		return func(k *kind) {
			u.end()
			u.prepared, u.holders = false, nil
			if len(have.Modules) > 0 || have.Serves {
				k.have.Driver = have
			}
			if problem != nil {
				w.failUpgrade(k, u, problem, time.Now())
				u.gaveUp(u.to, problem)
				k.report = u.report
				return
			}
			u.failure, u.acting, u.report, k.replaced = nil, false, accel.UpgradeReport{}, true
			// Each device that worked before passed its self-test with the new driver, or it would have been reverted.
			// If the sources have the driver that already serves, nothing was tested. StepProve tests the rest.
			if identity := driverIdentity(have); whole && identity != before {
				for _, a := range accs {
					if a.Offered() {
						k.proven[a.ID] = identity
					}
				}
				k.at = time.Now()
			}
			w.o.Log.Info("driver upgraded", "kind", def.Kind, "version", have.Version, "key", have.Key,
				"took", time.Since(u.since).Round(time.Millisecond))
		}, problem
	}
}

// failUpgrade records why an upgrade does not continue.
func (l *Loop) failUpgrade(k *kind, u *upgrading, problem *accel.Problem, now time.Time) {
	old := u.failure
	u.failure = failure(old, accel.StepUpgrade, problem, now)
	if old == nil || old.Reason != problem.Reason || old.Message != problem.Message {
		l.o.Log.Warn("driver upgrade waits", "kind", k.def.Kind,
			"reason", problem.Reason, "message", problem.Message, "tried", problem.Tried)
	}
}
