package loop

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
)

// lookAgain is how often users of a driver are looked for whose end makes no event: a pod that was given a device and
// has no process on it, and whatever an eviction waits for. It applies while an upgrade drains, and only then.
const lookAgain = 10 * time.Second

// upgrading is what the loop keeps about a driver that is wanted and not the one that serves. It is shown as
// Driver.Upgrade of the kind, and read by upgrade to know how far it is. Nothing of it outlives the agent: what has
// touched the machine is in the driver's journal.
type upgrading struct {
	wish     string
	since    time.Time
	phase    accel.UpgradePhase
	to       accel.DriverRef // once it is prepared
	prepared bool
	// busy is true while the new driver is prepared or users are looked for: neither keeps other steps from running.
	busy    bool
	holders []accel.Holder
	// drained is since when nobody is given a device; zero while devices are given out.
	drained time.Time
	failure *accel.Failure
	// word is what the node says to the controller where a policy of the cluster orders upgrades; acting is true from when
	// the node has its slot until the old or the new driver serves for good.
	word   accel.Word
	acting bool
	// stop ends waiting for a holder's end.
	stop context.CancelFunc
}

// observeUpgrade follows what the driver says is wanted and shows how far it is.
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
		l.o.Log.Info("driver upgrade wanted", "kind", k.def.Kind, "from", wanted.From, "to", wanted.To, "why", wanted.Why)
	}
	l.observeSlot(k, now)
	shown := *wanted
	shown.Since, shown.Phase, shown.Failure, shown.Holders = k.up.since, k.up.phase, k.up.failure, k.up.holders
	if k.up.prepared {
		shown.To = k.up.to
	}
	k.have.Driver.Upgrade = &shown
}

// end gives up what waits.
func (u *upgrading) end() {
	if u.stop != nil {
		u.stop()
		u.stop = nil
	}
	u.drained, u.phase = time.Time{}, accel.UpgradePending
}

// heldBack reports whether devices are given to nobody because their driver is about to be replaced.
func heldBack(h accel.Have) bool {
	u := h.Driver.Upgrade
	return u != nil && (u.Phase == accel.UpgradeDraining || u.Phase == accel.UpgradeReplacing)
}

// upgrade takes the next step of an upgrade: get the new driver ready, see that nobody uses the old one, replace it.
func (l *Loop) upgrade(ctx context.Context, steps *sync.WaitGroup, name string, k *kind) {
	u := k.up
	if u == nil || u.busy {
		return
	}
	switch {
	case u.phase == accel.UpgradeReplacing:
		k.running = accel.StepUpgrade
		l.background(steps, name, accel.StepUpgrade, l.replace(ctx, k, u))
	case !u.prepared:
		u.busy, u.phase = true, accel.UpgradePreparing
		l.background(steps, name, accel.StepNone, l.prepare(ctx, k, u))
		l.Changed()
	case l.ordered(k) && !u.acting:
		// The node is watched: that it has its slot is an event.
	case !u.drained.IsZero() && !l.withheld(k):
		// The kubelet still counts devices: that it does not any more is an event.
	default:
		u.busy = true
		l.background(steps, name, accel.StepNone, l.lookForHolders(ctx, steps, name, k, u))
	}
}

// background runs work beside the loop and hands its outcome over.
func (l *Loop) background(steps *sync.WaitGroup, name string, step accel.Step, work func() (func(*kind), *accel.Problem)) {
	steps.Go(func() {
		merge, problem := work()
		l.done <- outcome{kind: name, step: step, merge: merge, problem: problem}
	})
}

// prepare gets the new driver into the store.
func (l *Loop) prepare(ctx context.Context, k *kind, u *upgrading) func() (func(*kind), *accel.Problem) {
	def, facts := k.def, l.facts
	return func() (func(*kind), *accel.Problem) {
		to, problem := l.o.Effects.Prepare(ctx, def, facts)
		return func(k *kind) {
			u.busy = false
			if k.up != u {
				return // something else is wanted by now
			}
			u.phase = accel.UpgradePending
			if problem != nil {
				l.failUpgrade(k, u, problem, time.Now())
				if u.word = (accel.Word{}); problem.Reason.Doc().Permanent && k.have.Driver.Upgrade != nil {
					u.gaveUp(k.have.Driver.Upgrade.To, problem)
				}
				return
			}
			u.to, u.prepared, u.failure, u.word = to, true, nil, accel.Word{}
		}, nil
	}
}

// withheld reports whether the kubelet gives the devices to nobody.
func (l *Loop) withheld(k *kind) bool {
	return !l.want.Kubernetes || k.plugin == nil || !k.have.Plugin.Registered || k.have.Plugin.Allocatable.Is(0)
}

// lookForHolders finds who uses the old driver and does what the policy says about them.
func (l *Loop) lookForHolders(ctx context.Context, steps *sync.WaitGroup, name string, k *kind, u *upgrading) func() (func(*kind), *accel.Problem) {
	def, accs, draining := k.def, present(k.have.Accelerators), !u.drained.IsZero()
	return func() (func(*kind), *accel.Problem) {
		holders := l.o.Effects.Holders(ctx, def, accs)
		var problem *accel.Problem
		if draining && def.Driver.Upgrade.Holders == accel.HoldersEvict && len(holders) > 0 {
			problem = l.o.Effects.Evict(ctx, holders)
		}
		return func(k *kind) {
			u.busy = false
			if k.up == u {
				l.judgeHolders(ctx, steps, name, k, holders, problem)
			}
		}, nil
	}
}

// judgeHolders decides by who uses the driver: replace it, hold devices back and wait, or give up for this time.
func (l *Loop) judgeHolders(ctx context.Context, steps *sync.WaitGroup, name string, k *kind, holders []accel.Holder, refused *accel.Problem) {
	u, now, policy := k.up, time.Now(), k.def.Driver.Upgrade
	u.holders = holders
	waits := policy.Holders == accel.HoldersWait || policy.Holders == accel.HoldersEvict
	if len(holders) == 0 {
		u.failure = nil
		if !u.drained.IsZero() {
			u.phase = accel.UpgradeReplacing
		} else { // nobody may be given a device between this look and the unloading
			u.drained, u.phase = now, accel.UpgradeDraining
		}
		return
	}
	problem := accel.HoldersProblem(k.def.Kind, holders)
	if !waits {
		u.end()
		u.phase = accel.UpgradeWaiting
		l.failUpgrade(k, u, problem, now)
		l.awaitHolder(ctx, steps, name, u, holders, time.Time{})
		return
	}
	if u.drained.IsZero() {
		u.drained, u.phase = now, accel.UpgradeDraining
		if policy.Holders == accel.HoldersEvict {
			return // evicted when the kubelet gives devices to nobody else
		}
	}
	limit, _ := time.ParseDuration(policy.Timeout) // the configuration was checked; without one there is no limit
	if limit > 0 && now.Sub(u.drained) >= limit {
		u.end()
		u.phase = accel.UpgradeWaiting
		problem.Message = "given up after " + limit.String() + ": " + problem.Message
		l.failUpgrade(k, u, problem, now)
		u.failure.RetryAt = time.Time{}
		u.gaveUp(u.to, problem)
		l.awaitHolder(ctx, steps, name, u, holders, time.Time{})
		return
	}
	if refused != nil {
		problem = refused
	}
	l.failUpgrade(k, u, problem, now)
	u.failure.RetryAt = now.Add(5 * time.Minute) // the net under the event
	if refused != nil || slices.ContainsFunc(holders, func(h accel.Holder) bool { return h.PID == 0 }) {
		u.failure.RetryAt = now.Add(lookAgain)
	}
	over := time.Time{}
	if limit > 0 {
		if over = u.drained.Add(limit); over.Before(u.failure.RetryAt) {
			u.failure.RetryAt = over
		}
	}
	l.awaitHolder(ctx, steps, name, u, holders, over)
}

// awaitHolder makes the upgrade due when one of the holders ends.
func (l *Loop) awaitHolder(ctx context.Context, steps *sync.WaitGroup, name string, u *upgrading, holders []accel.Holder, over time.Time) {
	if u.stop != nil {
		u.stop()
	}
	ctx, u.stop = context.WithCancel(ctx)
	if !over.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, over)
		stop := u.stop
		u.stop = func() { cancel(); stop() }
	}
	steps.Go(func() {
		if l.o.Effects.AwaitHolder(ctx, holders) != nil {
			return // called off, or over: the clock makes it due
		}
		l.done <- outcome{kind: name, merge: func(k *kind) {
			if k.up == u && u.failure != nil {
				again := *u.failure
				again.RetryAt = time.Now()
				u.failure = &again
			}
		}}
	})
}

// replace is the part that touches the machine.
func (l *Loop) replace(ctx context.Context, k *kind, u *upgrading) func() (func(*kind), *accel.Problem) {
	def, facts, accs := k.def, l.facts, present(k.have.Accelerators)
	return func() (func(*kind), *accel.Problem) {
		have, problem := l.o.Effects.Upgrade(ctx, def, facts, accs)
		return func(k *kind) {
			u.end()
			u.prepared, u.holders = false, nil
			if len(have.Modules) > 0 || have.Right {
				k.have.Driver = have
			}
			if problem != nil {
				l.failUpgrade(k, u, problem, time.Now())
				u.gaveUp(u.to, problem)
				k.word = u.word
				return
			}
			u.failure, u.acting, u.word = nil, false, accel.Word{}
			for _, a := range accs { // each has computed, or it would have been taken back
				if a.Offered() {
					k.proven[a.ID] = driverIdentity(have)
				}
			}
			k.at = time.Now()
			l.o.Log.Info("driver upgraded", "kind", def.Kind, "version", have.Version, "key", have.Key, "took", time.Since(u.since).Round(time.Millisecond))
		}, problem
	}
}

// failUpgrade notes why an upgrade does not go on.
func (l *Loop) failUpgrade(k *kind, u *upgrading, problem *accel.Problem, now time.Time) {
	old := u.failure
	u.failure = failure(old, accel.StepUpgrade, problem, now)
	if old == nil || old.Reason != problem.Reason || old.Message != problem.Message {
		l.o.Log.Warn("driver upgrade waits", "kind", k.def.Kind, "reason", problem.Reason, "message", problem.Message, "tried", problem.Tried)
	}
}
