package loop

import (
	"context"
	"time"

	"github.com/acceld/acceld/accel"
)

// upgrading is what the loop keeps about a desired driver that is not the one in use. It is shown as Driver.Upgrade
// of the kind. Each pass decides about it ([decideUpgrade]), and upgrade starts the step that was decided. None of it
// outlives the agent: the driver's journal records what has touched the machine.
type upgrading struct {
	wish     string
	since    time.Time
	prepared *accel.DriverRef // the new driver in the store; nil until it is there
	// busy is true while the new driver is being prepared or holders are looked for. Neither blocks other steps.
	busy bool
	// looked is the result of a look for holders that was not decided about yet. holders is the last result.
	looked  *lookedFor
	holders []accel.Holder
	failure *accel.Failure
	// upgradeDecision is the last decision.
	upgradeDecision
	// evictor evicts the holders since no device is given out; nil before it is needed.
	evictor func(ctx context.Context, look func() []accel.Holder) *accel.Problem
	// stop ends the wait for a holder's end.
	stop context.CancelFunc
}

// observeUpgrade follows which driver is desired, decides what the upgrade does next, and shows its progress.
func (w *worker) observeUpgrade(k *kind, now time.Time) {
	wanted := k.have.Driver.Upgrade
	if k.up != nil && k.running != accel.StepUpgrade && (wanted == nil || wanted.Wish != k.up.wish) {
		k.up.stop()
		k.up = nil
	}
	if wanted == nil {
		return
	}
	if k.up == nil {
		k.up = &upgrading{
			wish: wanted.Wish, since: now, stop: func() {},
			upgradeDecision: upgradeDecision{phase: accel.UpgradePending},
		}
		w.o.Log.Info("driver upgrade wanted", "kind", k.def.Kind,
			"from", wanted.From, "to", wanted.To, "why", wanted.Why)
	}
	u := k.up
	if !u.busy {
		w.follow(k, decideUpgrade(w.upgradeCase(k, now)))
	}
	shown := *wanted
	shown.Since, shown.Phase, shown.Failure, shown.Holders = u.since, u.phase, u.failure, u.holders
	if u.prepared != nil {
		shown.To = *u.prepared
	}
	k.have.Driver.Upgrade = &shown
}

// upgradeCase returns what is known about a kind's upgrade now.
func (l *Loop) upgradeCase(k *kind, now time.Time) upgradeCase {
	u, seen := k.up, l.handshake(k)
	c := upgradeCase{
		kind: k.def.Kind, policy: k.def.Driver.Upgrade, policiesUnknown: l.want.PoliciesUnknown, now: now,
		phase: u.phase, drained: u.drained, report: u.report, acting: u.acting, failure: u.failure,
		granted: seen.Grant.Version, written: seen.UpgradeReport, looked: u.looked,
		withheld: !l.want.Kubernetes || k.plugin == nil || !k.have.Plugin.Registered || k.have.Plugin.Allocatable.Is(0),
	}
	if u.prepared != nil {
		c.target = u.prepared.Target()
	}
	c.hindrance = hindrance(l.facts, k.def)
	c.begun = l.o.KubeSync != nil && l.o.KubeSync().Drained
	return c
}

// follow takes over a decision and records why the upgrade waits.
func (w *worker) follow(k *kind, d upgradeDecision) {
	u := k.up
	if d.acting && !u.acting {
		w.o.Log.Info("driver upgrade has its slot", "kind", k.def.Kind, "version", d.report.Version,
			"policy", k.def.Driver.Upgrade.By)
	}
	u.upgradeDecision, u.looked = d, nil
	if d.problem == nil && !d.clear {
		return
	}
	u.stop() // what it waited for until now
	if d.problem == nil {
		u.failure = nil
		return
	}
	w.failUpgrade(k, d.problem)
	if d.byEvent || !d.retryAt.IsZero() {
		u.failure.RetryAt = d.retryAt
	}
	if d.await {
		w.awaitHolder(k, u)
	}
}

// failUpgrade records why an upgrade does not continue.
func (l *Loop) failUpgrade(k *kind, problem *accel.Problem) {
	old := k.up.failure
	k.up.failure = failure(old, accel.StepUpgrade, problem, time.Now())
	if old == nil || old.Reason != problem.Reason || old.Message != problem.Message {
		l.o.Log.Warn("driver upgrade waits", "kind", k.def.Kind,
			"reason", problem.Reason, "message", problem.Message, "tried", problem.Tried)
	}
}

// awaitHolder makes the upgrade due when one of the holders ends.
func (w *worker) awaitHolder(k *kind, u *upgrading) {
	var ctx context.Context
	ctx, u.stop = context.WithCancel(w.ctx)
	name, holders := k.def.Kind, u.holders
	w.steps.Keep(ctx, "kind "+name+": holders", func(ctx context.Context) error {
		if w.o.Effects.AwaitHolder(ctx, holders) == nil { // otherwise cancelled
			w.report(outcome{kind: name, merge: func(k *kind) {
				if k.up == u && u.failure != nil {
					u.failure = dueNow(u.failure)
				}
			}})
		}
		return nil
	})
}

// upgrade starts the step of an upgrade that was decided.
func (w *worker) upgrade(k *kind) {
	u := k.up
	if u.busy {
		return
	}
	switch u.step {
	case upgradePrepares:
		u.busy, u.phase = true, accel.UpgradePreparing
		w.background(k, accel.StepNone, w.prepare(k, u))
		w.Changed()
	case upgradeLooks:
		u.busy = true
		w.background(k, accel.StepNone, w.lookForHolders(k, u))
	case upgradeReplaces:
		k.running = accel.StepUpgrade
		w.background(k, accel.StepUpgrade, w.replace(k, u))
	case upgradeWaits:
	}
}

// prepare fetches or builds the new driver into the store.
func (w *worker) prepare(k *kind, u *upgrading) work {
	def, facts := k.def, w.facts
	return func() (func(*kind), *accel.Problem) {
		to, problem := w.o.Effects.Prepare(w.ctx, def, facts)
		return func(k *kind) {
			if k.up != u {
				return // the desired driver has changed meanwhile
			}
			u.busy, u.phase, u.report = false, accel.UpgradePending, accel.UpgradeReport{}
			if problem == nil {
				u.prepared, u.failure = &to, nil
				return
			}
			w.failUpgrade(k, problem)
			if problem.Reason.Doc().Permanent && k.have.Driver.Upgrade != nil {
				u.report = failedReport(k.have.Driver.Upgrade.To.Target(), problem.Reason)
			}
		}, nil
	}
}

// lookForHolders finds who uses the old driver, and evicts the pods among them if that was decided.
func (w *worker) lookForHolders(k *kind, u *upgrading) work {
	def, accs := k.def, present(k.have.Accelerators)
	switch {
	case !u.evict:
		u.evictor = nil
	case u.evictor == nil:
		u.evictor = w.o.Effects.Evictor()
	}
	evict := u.evictor
	return func() (func(*kind), *accel.Problem) {
		var looked lookedFor
		look := func() []accel.Holder {
			looked.holders, looked.unanswered = w.o.Effects.Holders(w.ctx, def, accs)
			return looked.holders
		}
		if evict != nil {
			looked.refused = evict(w.ctx, look)
		} else {
			look()
		}
		return func(*kind) { u.busy, u.looked, u.holders = false, &looked, looked.holders }, nil
	}
}

// replace replaces the driver: the part of an upgrade that touches the machine.
func (w *worker) replace(k *kind, u *upgrading) work {
	def, facts, accs, to := k.def, w.facts, present(k.have.Accelerators), *u.prepared
	whole, before := k.have.Driver.Serves, driverIdentity(k.have.Driver)
	return func() (func(*kind), *accel.Problem) {
		have, problem := w.o.Effects.Upgrade(w.ctx, def, facts, accs, to)
		return func(k *kind) {
			u.stop()
			u.prepared, u.holders, u.upgradeDecision = nil, nil, upgradeDecision{phase: accel.UpgradePending}
			if len(have.Modules) > 0 || have.Serves {
				k.have.Driver = have
			}
			if problem != nil {
				w.failUpgrade(k, problem)
				u.report = failedReport(to.Target(), problem.Reason)
				k.report = u.report
				return
			}
			u.failure, k.replaced = nil, true
			// Each device that worked before passed its self-test with the new driver, or it would have been reverted.
			// If the sources have the driver that already serves, nothing was tested, and what a program checks may
			// have been skipped. StepProve tests the rest.
			whole = whole && def.Check != nil && def.Check.Program == nil
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
