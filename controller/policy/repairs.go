package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
)

// RepairLimits are the limits of a policy on repairs.
type RepairLimits struct {
	// Nodes is how many nodes may repair devices at a time, at least 1. Devices is how many devices may be under
	// repair; 0 is no limit. PerDomain is how many nodes of a domain may; 0 if there are no domains.
	Nodes, Devices, PerDomain int
	// Breaker is how many nodes may have devices that need a reset at once. DomainBreaker stops a domain most of whose
	// nodes have such devices.
	Breaker       int
	DomainBreaker bool
	// Timeout is how long a slot counts.
	Timeout time.Duration
	Windows []Window
	Paused  bool
}

// ward is one kind of device of one node.
type ward struct {
	Node, Kind string
	// Domain is where nodes fail together; empty for a node that is alone.
	Domain string
	Report accel.RepairReport
	// Ready is whether the node is up, and Hindered whether somebody else works on it.
	Ready, Hindered bool
	// Skip is true for one that does not belong to the policy any more and still acts on its slot.
	Skip bool
	// Granted is the start of the slot that the node was told of, and TakenBack that of the last one that no controller
	// can tell it of any more.
	Granted, TakenBack time.Time
}

// wardKey identifies a ward.
type wardKey struct{ Node, Kind string }

func (w ward) key() wardKey { return wardKey{w.Node, w.Kind} }

// Why a node that needs a repair has no slot, in addition to those of an upgrade.
const (
	Devices      Why = "MaxDevices"    // the maximum number of devices is under repair
	Domain       Why = "MaxPerDomain"  // the maximum number of nodes of its domain repair devices
	Tripped      Why = "Breaker"       // too many nodes have devices that need a reset
	DomainFailed Why = "DomainBreaker" // most nodes of its domain have such devices
)

// RepairPlan is what applies from now on.
type RepairPlan struct {
	// Slots are the slots that stay valid, and Given the new ones; sorted by node and kind.
	Slots, Given []Slot
	// Ended are the slots that are no longer valid, and why.
	Ended map[Slot]Why
	// Waits are those that need a repair and have no slot, and why.
	Waits map[wardKey]Why
	// Late are nodes that have had their slot for longer than it counts.
	Late []string
	// Ill is how many nodes have devices that need a reset, and Tripped whether these are too many.
	Ill     int
	Tripped bool
	// Next is when the passing of time alone will change the plan; zero if it will not.
	Next time.Time
}

// DecideRepairs gives and ends slots for repairs, as of now. Wards must be all kinds of all nodes of the policy, each
// once. It is pure, as [Decide] is, and the same order of writes makes it safe.
func DecideRepairs(now time.Time, l RepairLimits, wards []ward, slots []Slot) RepairPlan {
	d := &repairDecision{
		now: now, limits: l, plan: RepairPlan{Ended: map[Slot]Why{}, Waits: map[wardKey]Why{}},
		wards: map[wardKey]ward{}, busy: map[string]bool{}, perDomain: map[string]map[string]bool{},
		failing: map[string]bool{},
	}
	for _, w := range wards {
		d.wards[w.key()] = w
	}
	d.count(wards)
	d.keep(slots)
	d.give(wards)
	order := func(a, b Slot) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Kind, b.Kind)) }
	slices.SortFunc(d.plan.Slots, order)
	slices.SortFunc(d.plan.Given, order)
	slices.Sort(d.plan.Late)
	return d.plan
}

type repairDecision struct {
	now    time.Time
	limits RepairLimits
	plan   RepairPlan
	wards  map[wardKey]ward
	// busy are the nodes that count against the limits, perDomain the same by domain, and devices how many devices
	// they have that need a reset.
	busy      map[string]bool
	perDomain map[string]map[string]bool
	devices   int
	// failing are the domains most of whose nodes have devices that need a reset.
	failing map[string]bool
}

// count finds out whether the cause can be the devices.
func (d *repairDecision) count(wards []ward) {
	ill, all, sick := map[string]bool{}, map[string]map[string]bool{}, map[string]map[string]bool{}
	add := func(to map[string]map[string]bool, w ward) {
		if to[w.Domain] == nil {
			to[w.Domain] = map[string]bool{}
		}
		to[w.Domain][w.Node] = true
	}
	for _, w := range wards {
		add(all, w)
		if w.Report.Phase != "" {
			ill[w.Node] = true
			add(sick, w)
		}
	}
	d.plan.Ill = len(ill)
	d.plan.Tripped = len(ill) > max(1, d.limits.Breaker)
	for domain, nodes := range sick {
		d.failing[domain] = domain != "" && d.limits.DomainBreaker && len(nodes) > 1 && 2*len(nodes) > len(all[domain])
	}
}

// keep carries over the slots that remain valid.
func (d *repairDecision) keep(slots []Slot) {
	for _, s := range slots {
		if why := d.ended(s); why != "" {
			d.plan.Ended[s] = why
			continue
		}
		d.plan.Slots = append(d.plan.Slots, s)
		if over := s.Since.Add(d.limits.Timeout); d.now.Before(over) {
			d.wake(over)
			d.take(d.wards[wardKey{s.Node, s.Kind}])
		} else {
			d.plan.Late = append(d.plan.Late, s.Node)
		}
	}
}

// ended says how a slot ended; empty if it is still valid. A node that repairs devices keeps its slot.
func (d *repairDecision) ended(s Slot) Why {
	w, known := d.wards[wardKey{s.Node, s.Kind}]
	switch {
	case !known:
		return Gone
	case w.Report.Acts():
		return ""
	case !w.TakenBack.Before(s.Since):
		return Withdrawn // before now, but its end could not be written
	case w.Report.Phase != accel.RepairPhaseWaiting:
		return Done // nothing is left that it could do
	case w.Skip:
		return Gone
	case d.plan.Tripped || d.failing[w.Domain] || d.limits.Paused || w.Hindered:
		return Withdrawn
	}
	return ""
}

// take counts a node that repairs devices.
func (d *repairDecision) take(w ward) {
	d.busy[w.Node] = true
	d.devices += w.Report.Ill
	if w.Domain != "" {
		if d.perDomain[w.Domain] == nil {
			d.perDomain[w.Domain] = map[string]bool{}
		}
		d.perDomain[w.Domain][w.Node] = true
	}
}

func (d *repairDecision) wake(at time.Time) {
	if d.plan.Next.IsZero() || at.Before(d.plan.Next) {
		d.plan.Next = at
	}
}

// give gives slots to waiting nodes within the limits, by name.
func (d *repairDecision) give(wards []ward) {
	wards = slices.Clone(wards)
	slices.SortFunc(wards, func(a, b ward) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Kind, b.Kind))
	})
	open, change := isOpen(d.limits.Windows, d.now)
	for _, w := range wards {
		has := func(s Slot) bool { return s.Node == w.Node && s.Kind == w.Kind }
		if w.Hindered && w.Report.Phase == accel.RepairPhaseIll && !w.Skip { // it waits for that and not for a slot
			d.plan.Waits[w.key()] = UnderMaintenance
		}
		if w.Report.Phase != accel.RepairPhaseWaiting || w.Skip || slices.ContainsFunc(d.plan.Slots, has) {
			continue
		}
		why := d.refuses(w, open)
		if why == "" {
			d.plan.Given = append(d.plan.Given, Slot{Node: w.Node, Kind: w.Kind, Repair: true, Since: d.now})
			d.take(w)
			d.wake(d.now.Add(d.limits.Timeout))
			continue
		}
		d.plan.Waits[w.key()] = why
		if why == Closed && !change.IsZero() {
			d.wake(change)
		}
	}
}

// refuses says why a node gets no slot now; empty if it gets one.
func (d *repairDecision) refuses(w ward, open bool) Why {
	l, again := d.limits, d.busy[w.Node]
	switch {
	case w.Hindered:
		return UnderMaintenance
	case !w.Ready:
		return NotReady
	case l.Paused:
		return IsPaused
	case d.plan.Tripped:
		return Tripped
	case d.failing[w.Domain]:
		return DomainFailed
	case !open:
		return Closed
	case !again && len(d.busy) >= max(1, l.Nodes):
		return Parallel
	case l.Devices > 0 && len(d.busy) > 0 && d.devices+w.Report.Ill > l.Devices:
		return Devices
	case !again && l.PerDomain > 0 && len(d.perDomain[w.Domain]) >= l.PerDomain:
		return Domain
	}
	return ""
}
