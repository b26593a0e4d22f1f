package loop

import (
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
)

// lookAgain is how often users of a driver are looked for when nothing tells that one has ended: a pod that was given a
// device and has no process on it, whatever an eviction waits for, and whoever does not answer. It applies while an
// upgrade waits for them, and only then.
const lookAgain = 10 * time.Second

// lookAgainAnyway is how long an upgrade waits for the end of a process that was looked at: the net under the event.
const lookAgainAnyway = 5 * time.Minute

// upgradeCase is what is known of an upgrade when its next step is decided.
type upgradeCase struct {
	kind   string
	policy accel.UpgradePolicy
	now    time.Time
	phase  accel.UpgradePhase
	// prepared is true when the new driver is in the store.
	prepared bool
	// ordered is true where a policy of the cluster says when the driver may be replaced, acting while the node has its
	// slot.
	ordered, acting bool
	// drained is since when devices are offered to nobody; zero while they are. withheld is true when the kubelet has
	// taken that over and counts none.
	drained  time.Time
	withheld bool
	// looked is the answer to the question who uses the driver; nil when it is not asked yet.
	looked *lookedFor
}

// lookedFor is who uses a driver.
type lookedFor struct {
	holders []accel.Holder
	// unanswered says that there may be more, because somebody did not answer; refused that they were not evicted.
	unanswered, refused *accel.Problem
}

// upgradeStep is what an upgrade does next.
type upgradeStep int

const (
	// upgradeWaits: there is nothing to do before an event or a time.
	upgradeWaits upgradeStep = iota
	// upgradePrepares: get the new driver into the store.
	upgradePrepares
	// upgradeLooks: find out who uses the old driver.
	upgradeLooks
	// upgradeReplaces: replace the driver.
	upgradeReplaces
)

// upgradeDecision is what comes of an [upgradeCase].
type upgradeDecision struct {
	step  upgradeStep
	phase accel.UpgradePhase
	// drained is since when devices are offered to nobody from now on; zero: they are offered.
	drained time.Time
	// evict asks the API server to evict who is found by the look.
	evict bool
	// problem is why the upgrade does not go on; nil when it does. retryAt is when it is tried again; zero: as its
	// reason says.
	problem *accel.Problem
	retryAt time.Time
	// givenUp ends the try: nothing but a change of the machine begins another one, and a slot is given back.
	givenUp bool
	// await lets the end of a holder make the upgrade due; until ends that, when it is not zero.
	await bool
	until time.Time
}

// decideUpgrade decides what an upgrade does next. It is pure. A driver is replaced when it is ready, when a policy of
// the cluster lets the node go on, when devices are given to nobody, and when everybody who could know has said after
// that that nobody uses it.
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
		// The node is watched: that it has its slot is an event.
	case !c.drained.IsZero() && !c.withheld:
		// The kubelet still counts devices: that it does not any more is an event.
	default:
		d.step = upgradeLooks
		d.evict = !c.drained.IsZero() && c.policy.Holders == accel.HoldersEvict
	}
	return d
}

// decideByHolders decides by who uses the driver.
func decideByHolders(c upgradeCase, d upgradeDecision) upgradeDecision {
	holders, unanswered := c.looked.holders, c.looked.unanswered
	waits := c.policy.Holders == accel.HoldersWait || c.policy.Holders == accel.HoldersEvict
	draining := !c.drained.IsZero()
	switch {
	case len(holders) == 0 && unanswered == nil && draining:
		d.phase = accel.UpgradeReplacing
		return d
	case len(holders) == 0 && unanswered == nil: // nobody may be given a device between this look and the unloading
		d.phase, d.drained = accel.UpgradeDraining, c.now
		return d
	case len(holders) == 0 && (!waits || !draining): // not to know is no reason to take devices from everybody
		d.phase, d.drained, d.problem, d.retryAt = accel.UpgradeWaiting, time.Time{}, unanswered, c.now.Add(lookAgain)
		return d
	case !waits:
		d.phase, d.drained = accel.UpgradeWaiting, time.Time{}
		d.problem, d.await = accel.HoldersProblem(c.kind, holders), true
		return d
	}
	if !draining {
		d.phase, d.drained = accel.UpgradeDraining, c.now
		if c.policy.Holders == accel.HoldersEvict {
			return d // evicted when the kubelet gives devices to nobody else
		}
	}
	return decideToWait(c, d)
}

// decideToWait decides how long an upgrade waits that holds devices back.
func decideToWait(c upgradeCase, d upgradeDecision) upgradeDecision {
	d.problem = c.looked.unanswered
	if len(c.looked.holders) > 0 {
		d.problem, d.await = accel.HoldersProblem(c.kind, c.looked.holders), true
	}
	limit, _ := time.ParseDuration(c.policy.Timeout) // the configuration was checked; without one there is no limit
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
