package loop

import (
	"fmt"
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
	// policiesUnknown is true while the policies of the cluster, which may order upgrades, are not known.
	policiesUnknown bool
	now             time.Time
	// target is the version that is ready in the store; empty until it is.
	target string
	// phase, drained, report and acting are from the last decision; failure is why the upgrade waits.
	phase   accel.UpgradePhase
	drained time.Time
	report  accel.UpgradeReport
	acting  bool
	failure *accel.Failure
	// granted is the version for which the controller has granted the node a slot, and written is the node's report,
	// both from one version of the node object.
	granted string
	written accel.UpgradeReport
	// hindrance is why somebody else's work on the node keeps the upgrade from beginning; nil if nothing does. begun is
	// true if the controller has begun to drain the node for it.
	hindrance *accel.Problem
	begun     bool
	// withheld is true if the kubelet gives the devices to no pod.
	withheld bool
	// looked says who uses the driver; nil if nobody has looked since the last decision.
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
	// report is what the node reports to the controller. acting is true from when the node has its slot until the
	// upgrade has succeeded or failed.
	report accel.UpgradeReport
	acting bool
	// problem is why the upgrade waits. If it is nil, the last failure remains, unless clear ends it.
	problem *accel.Problem
	clear   bool
	// retryAt is when it is tried again; if zero, the reason of the problem decides. byEvent means that no clock does:
	// only an event continues it.
	retryAt time.Time
	byEvent bool
	// await makes the upgrade due when a holder ends.
	await bool
}

// decideUpgrade decides what an upgrade does next. It is pure. A driver is replaced when the new one is ready, a
// policy of the cluster lets the node continue, no device is offered any more, and every source has since confirmed
// that nobody uses the driver. While somebody else works on the node, none of that begins; what has begun is finished.
func decideUpgrade(c upgradeCase) upgradeDecision {
	d := upgradeDecision{phase: c.phase, drained: c.drained, report: c.report, acting: c.acting}
	if c.hindered() {
		return decideToHold(c, d)
	}
	d.clear = c.failure != nil && c.failure.Reason == accel.UnderMaintenance
	if c.looked != nil {
		d = decideByHolders(c, d)
	}
	ordered := (c.policy.By != "" || c.policiesUnknown) && !d.acting
	if ordered && c.target != "" && d.phase != accel.UpgradeReplacing && d.problem == nil && !c.givenUp() {
		d = decideSlot(c, d)
	}
	switch {
	case d.problem != nil:
	case d.phase == accel.UpgradeReplacing:
		d.step = upgradeReplaces
	case c.target == "":
		d.step = upgradePrepares
	case ordered && !d.acting:
		// The node waits for its slot. The node object is watched, so the grant is an event.
	case !d.drained.IsZero() && !c.withheld:
		// The kubelet still counts devices. When it stops, that is an event.
	default:
		d.step = upgradeLooks
		d.evict = !d.drained.IsZero() && c.policy.Holders == accel.HoldersEvict
	}
	return d
}

// hindered reports whether the upgrade must not begin because somebody else works on the node. It has begun when
// devices are withheld for it, or pods were evicted.
func (c upgradeCase) hindered() bool {
	begun := !c.drained.IsZero() || c.phase == accel.UpgradeReplacing || c.begun && c.granted == c.target
	return c.hindrance != nil && c.target != "" && !begun
}

// decideToHold decides about an upgrade while somebody else works on the node. A node that has a slot reports that it
// waits again: it has done nothing with it, and the controller takes it back. An upgrade that has failed stays so.
func decideToHold(c upgradeCase, d upgradeDecision) upgradeDecision {
	d.acting = false
	if c.report.Phase == accel.ReportFailed && c.givenUp() {
		return d
	}
	d.phase, d.problem, d.byEvent = accel.UpgradeWaiting, c.hindrance, true
	switch {
	case c.policiesUnknown:
		d.report = accel.UpgradeReport{}
	case c.policy.By != "":
		d.report = accel.UpgradeReport{Phase: accel.ReportWaiting, Version: c.target}
	}
	return d
}

// givenUp reports whether the upgrade has failed, has been reported as failed, and is not tried again yet.
func (c upgradeCase) givenUp() bool {
	return c.failure != nil && c.failure.Reason != accel.WaitingForSlot &&
		c.failure.Reason != accel.UnderMaintenance && !due(c.failure, c.now)
}

// decideSlot decides whether a node whose upgrades a policy orders may act, and what it reports.
func decideSlot(c upgradeCase, d upgradeDecision) upgradeDecision {
	going := accel.UpgradeReport{Phase: accel.ReportUpgrading, Version: c.target}
	var message string
	switch {
	case c.policiesUnknown:
		message, d.report = "the policies of the cluster are not known yet", accel.UpgradeReport{}
	case c.granted != c.target:
		message = fmt.Sprintf("version %s is ready and waits for a slot of the policy %q", c.target, c.policy.By)
		d.report = accel.UpgradeReport{Phase: accel.ReportWaiting, Version: c.target}
	case c.written != going:
		message, d.report = "the slot is granted; that the node goes on is being written down", going
	default:
		d.report, d.acting, d.clear = going, true, true
		return d
	}
	d.phase, d.drained = accel.UpgradeWaiting, time.Time{} // no policy may have ordered upgrades when it began
	d.problem, d.byEvent = accel.Problemf(accel.WaitingForSlot, "%s", message), true
	return d
}

// failedReport is the node's report of an upgrade that failed.
func failedReport(version string, reason accel.Reason) accel.UpgradeReport {
	return accel.UpgradeReport{Phase: accel.ReportFailed, Version: version, Reason: reason}
}

// decideByHolders decides from the list of holders.
func decideByHolders(c upgradeCase, d upgradeDecision) upgradeDecision {
	holders, unanswered := c.looked.holders, c.looked.unanswered
	waits := c.policy.Holders == accel.HoldersWait || c.policy.Holders == accel.HoldersEvict
	draining := !c.drained.IsZero()
	module := slices.ContainsFunc(holders, func(h accel.Holder) bool { return strings.HasPrefix(h.Other, "module ") })
	switch {
	case len(holders) == 0 && unanswered == nil && draining:
		d.phase, d.clear = accel.UpgradeReplacing, true
		return d
	case len(holders) == 0 && unanswered == nil: // no pod may get a device between this look and the unloading
		d.phase, d.drained, d.clear = accel.UpgradeDraining, c.now, true
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
			d.clear = true
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
		d.problem, d.phase, d.drained, d.byEvent = &late, accel.UpgradeWaiting, time.Time{}, true
		d.report, d.acting = failedReport(c.target, late.Reason), false // the node gives its slot back
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
	if end := d.drained.Add(limit); limit > 0 && end.Before(d.retryAt) {
		d.retryAt = end
	}
	return d
}
