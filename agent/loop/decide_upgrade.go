package loop

import (
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

// lookAgain is how often an upgrade that waits for users of the driver looks for them if no event reports their end.
// There is no event for a pod that was given a device but has no process on it, for another module that uses the
// driver, for the outcome of an eviction, or for a source that does not answer.
const lookAgain = 10 * time.Second

// lookAgainAnyway is when an upgrade looks for the users again although it awaits the end of a process: a fallback in
// case the event is missed.
const lookAgainAnyway = 5 * time.Minute

// upgradeCase is what is known about an upgrade when its next step is decided.
type upgradeCase struct {
	kind   string
	policy accel.UpgradePolicy
	now    time.Time
	phase  accel.UpgradePhase
	// prepared is true when the new driver is in the store.
	prepared bool
	// ordered is true if a policy of the cluster decides when the driver may be replaced. acting is true while the
	// node has its slot.
	ordered, acting bool
	// drained is the time since which no device is offered; zero while devices are offered. withheld is true when the
	// kubelet has taken that over and counts none.
	drained  time.Time
	withheld bool
	// looked says who uses the driver; nil before the look.
	looked *lookedFor
}

// lookedFor says who uses a driver.
type lookedFor struct {
	holders []accel.Holder
	// unanswered is set if there may be more holders, because a source did not answer. refused is set if the eviction
	// of the holders failed.
	unanswered, refused *accel.Problem
}

// upgradeStep is what an upgrade does next.
type upgradeStep int

const (
	// upgradeWaits: nothing to do before an event or a point in time.
	upgradeWaits upgradeStep = iota
	// upgradePrepares: get the new driver into the store.
	upgradePrepares
	// upgradeLooks: find out who uses the old driver.
	upgradeLooks
	// upgradeReplaces: replace the driver.
	upgradeReplaces
)

// upgradeDecision is the decision about an [upgradeCase].
type upgradeDecision struct {
	step  upgradeStep
	phase accel.UpgradePhase
	// drained is the time since which no device is offered; zero if devices are offered.
	drained time.Time
	// evict means that the API server must evict the holders that the look finds.
	evict bool
	// problem is why the upgrade waits; nil if it continues. retryAt is when it is tried again; if zero, the reason
	// of the problem decides.
	problem *accel.Problem
	retryAt time.Time
	// givenUp ends the attempt: only a change of the machine starts another one. The node gives its slot back.
	givenUp bool
	// await makes the upgrade due when a holder ends. If until is not zero, the waiting ends at that time.
	await bool
	until time.Time
}

// decideUpgrade decides what an upgrade does next. It is pure. A driver is replaced when the new one is ready, a
// policy of the cluster lets the node continue, no device is offered any more, and every source has since confirmed
// that nobody uses the driver.
func decideUpgrade(c upgradeCase) upgradeDecision {
	d := upgradeDecision{phase: c.phase, drained: c.drained}
	switch {
	case c.looked != nil:
		return decideByHolders(c, d)
	case c.phase == accel.UpgradeReplacing:
		d.step = upgradeReplaces
	case !c.prepared:
		d.step, d.phase = upgradePrepares, accel.UpgradePreparing
	case c.ordered && !c.acting:
		// The node waits for its slot. The node object is watched, so the grant is an event.
	case !c.drained.IsZero() && !c.withheld:
		// The kubelet still counts devices. When it stops, that is an event.
	default:
		d.step = upgradeLooks
		d.evict = !c.drained.IsZero() && c.policy.Holders == accel.HoldersEvict
	}
	return d
}

// decideByHolders decides from the list of holders.
func decideByHolders(c upgradeCase, d upgradeDecision) upgradeDecision {
	holders, unanswered := c.looked.holders, c.looked.unanswered
	waits := c.policy.Holders == accel.HoldersWait || c.policy.Holders == accel.HoldersEvict
	draining := !c.drained.IsZero()
	module := slices.ContainsFunc(holders, func(h accel.Holder) bool { return strings.HasPrefix(h.Other, "module ") })
	switch {
	case len(holders) == 0 && unanswered == nil && draining:
		d.phase = accel.UpgradeReplacing
		return d
	case len(holders) == 0 && unanswered == nil: // no pod may get a device between this look and the unloading
		d.phase, d.drained = accel.UpgradeDraining, c.now
		return d
	case len(holders) == 0 && (!waits || !draining): // an unknown is no reason to withhold devices from every pod
		d.phase, d.drained, d.problem, d.retryAt = accel.UpgradeWaiting, time.Time{}, unanswered, c.now.Add(lookAgain)
		return d
	case !waits:
		d.phase, d.drained = accel.UpgradeWaiting, time.Time{}
		d.problem, d.await = accel.HoldersProblem(c.kind, holders), true
		return d
	case module: // it does not end by itself: devices would be withheld, and pods evicted, for nothing
		d.phase, d.drained = accel.UpgradeWaiting, time.Time{}
		d.problem, d.retryAt = accel.HoldersProblem(c.kind, holders), c.now.Add(lookAgain)
		return d
	}
	if !draining {
		d.phase, d.drained = accel.UpgradeDraining, c.now
		if c.policy.Holders == accel.HoldersEvict {
			return d // evict only after the kubelet has stopped giving out devices
		}
	}
	return decideToWait(c, d)
}

// decideToWait decides how long an upgrade that withholds devices waits.
func decideToWait(c upgradeCase, d upgradeDecision) upgradeDecision {
	d.problem = c.looked.unanswered
	if len(c.looked.holders) > 0 {
		d.problem, d.await = accel.HoldersProblem(c.kind, c.looked.holders), true
	}
	limit, _ := time.ParseDuration(c.policy.Timeout) // the configuration was validated; an empty timeout means no limit
	if limit > 0 && c.now.Sub(d.drained) >= limit {
		late := *d.problem
		late.Message = "given up after " + limit.String() + ": " + late.Message
		d.problem, d.phase, d.drained, d.givenUp = &late, accel.UpgradeWaiting, time.Time{}, true
		return d
	}
	if c.looked.refused != nil {
		d.problem = c.looked.refused
	}
	d.retryAt = c.now.Add(lookAgainAnyway)
	silent := slices.ContainsFunc(c.looked.holders, func(h accel.Holder) bool { return h.PID == 0 })
	if silent || c.looked.refused != nil || c.looked.unanswered != nil {
		d.retryAt = c.now.Add(lookAgain)
	}
	if limit > 0 {
		if d.until = d.drained.Add(limit); d.until.Before(d.retryAt) {
			d.retryAt = d.until
		}
	}
	return d
}
