package policy

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
)

// Limits of one rollout.
type Limits struct {
	// MaxParallel is how many nodes have a slot at a time, at least 1.
	MaxParallel int
	// MaxUnavailable is how many nodes may be without accelerators at a time, whatever the cause; 0 means no such
	// limit. A slot for a node that is already without accelerators does not count against it.
	MaxUnavailable int
	// StopAfter is how many nodes may fail before no more slots are given; at least 1.
	StopAfter int
	// Timeout is how long a node may have its slot before it counts as failed; 0 is no limit. The node keeps the
	// slot, because it may still be replacing the driver.
	Timeout time.Duration
	// Windows are the times in which slots are given; none means always. A node that has a slot may finish outside
	// them.
	Windows []Window
	// Paused stops new slots.
	Paused bool
	// Busy are the nodes that have slots of other rollouts, or replace a driver without a slot. They count against
	// MaxParallel and as unavailable, each once, even if it also has a slot of this rollout.
	Busy map[string]bool
	// Others is what all rollouts under the same limits add to them.
	Others Share
	// Pools are limits of other policies on nodes that they have in common with this one.
	Pools []Pool
}

// Pool is a limit on how many of some nodes are busy, or unavailable.
type Pool struct {
	Nodes, Busy map[string]bool
	Max         int
	Why         Why // [Parallel] or [Unavailable]
}

// takes reports whether one more node may be busy. A node outside the pool, or one that is busy, adds none.
func (p *Pool) takes(node string) bool {
	return !p.Nodes[node] || p.Busy[node] && p.Why == Unavailable || room(p.Busy, node, p.Max)
}

// room reports whether a node may have a slot when these have one. If more have one than the limit allows, because two
// controllers gave slots at the same moment, no node gets another: the slot of one of them is about to be withdrawn.
func room(busy map[string]bool, node string, limit int) bool {
	return len(busy) < limit || len(busy) == limit && busy[node]
}

// Share is what one rollout, or several, adds to limits that are common to more.
type Share struct {
	// Failed are the nodes that have failed, and Unavailable those without accelerators or about to be.
	Failed, Unavailable map[string]bool
	// Canaries is whether a canary node is not done.
	Canaries bool
}

// Add adds the share of another rollout.
func (s *Share) Add(o Share) {
	if s.Failed == nil {
		s.Failed, s.Unavailable = map[string]bool{}, map[string]bool{}
	}
	maps.Copy(s.Failed, o.Failed)
	maps.Copy(s.Unavailable, o.Unavailable)
	s.Canaries = s.Canaries || o.Canaries
}

// candidate is one node of a rollout.
type candidate struct {
	Name string
	// Version is the version of the driver that serves; empty if none does.
	Version string
	// Serving is whether the node's accelerators can be used, and Ready whether the node is up and takes pods.
	Serving, Ready bool
	// Phase and For are the node's report: the progress, and of which version. A node without a phase does not know of
	// the upgrade yet, or has nothing to do.
	Phase accel.ReportPhase
	For   string
	// Canary nodes come before all others. Skip nodes never get a slot.
	Canary, Skip bool
	// Hindered is whether somebody else works on the node, or will, and Away whether the node counts as one without
	// accelerators because of that. Drained is whether its drain for the slot has begun.
	Hindered, Away, Drained bool
	// Behind is whether the node has not said that its driver is as the policy asks now: it may have the version and
	// other parameters.
	Behind bool
	// Granted is the start of the slot that the node was told of, and TakenBack that of the last one that no controller
	// can tell it of any more.
	Granted, TakenBack time.Time
}

// Slot is the permission of a node to replace its driver with a version, or to repair devices.
type Slot struct {
	// Node is the name of the node.
	Node string `json:"node"`
	// Kind is the kind of the driver. It means nothing to [Decide], and is empty in a new slot.
	Kind string `json:"kind"`
	// Version is the one that it may replace its driver by.
	Version string `json:"version"`
	// Repair is whether the node may repair devices of the kind; then there is no version.
	Repair bool `json:"repair,omitempty"`
	// Since is when it was given the slot.
	Since time.Time `json:"since"`
}

// Equal reports whether two slots are the same.
func (s Slot) Equal(o Slot) bool {
	return s.Node == o.Node && s.Kind == o.Kind && s.Version == o.Version && s.Repair == o.Repair &&
		s.Since.Equal(o.Since)
}

// Why says why a node waits, or how its slot ended.
type Why string

// Why a node that needs the driver has no slot.
const (
	NotReported Why = "NotReported"    // it has not reported that it has the driver ready
	Skipped     Why = "Skipped"        // a label keeps it out
	DidFail     Why = "Failed"         // the upgrade failed, and is not tried again with this version
	NotReady    Why = "NotReady"       // the node is down or takes no pods
	IsPaused    Why = "Paused"         // the policy is paused
	Stopped     Why = "Stopped"        // too many have failed
	Closed      Why = "OutsideWindow"  // no window is open
	CanaryFirst Why = "CanaryFirst"    // canary nodes are not done
	Parallel    Why = "MaxParallel"    // the maximum number of nodes has slots
	Unavailable Why = "MaxUnavailable" // the maximum number of nodes is without accelerators
)

// How a slot ended.
const (
	Done      Why = "Done"      // the node serves the version
	GaveUp    Why = "Failed"    // the upgrade failed
	Gone      Why = "Gone"      // the node is gone or no longer belongs to the rollout
	Withdrawn Why = "Withdrawn" // the node does not act on it, and another version is wanted or there are too many
)

// Plan is what applies from now on.
type Plan struct {
	// Slots are all valid slots, sorted by node. Given are the nodes whose slots are new.
	Slots []Slot
	Given []string
	// Ended are the slots that are no longer valid, and why, by node.
	Ended map[string]Why
	// Waits are the nodes that still need the driver and have no slot, and why.
	Waits map[string]Why
	// Late are nodes that have had their slot for longer than the timeout.
	Late []string
	// Failures are the nodes that have failed with the version, including those that are late with it.
	Failures []string
	// Next is when the passing of time alone will change the plan; zero if it will not.
	Next time.Time
}

// Decide gives and ends slots for a version, as of now. If version is empty, each node gets the version that it reports
// as its own target. Nodes must be all nodes that belong to the rollout, each once.
//
// Decide is pure: the state of nodes and slots goes in, the slots that are valid from now on come out. The caller
// writes the slots down before any node gets a grant. A second writer, or a writer after a crash, therefore starts from
// the same slots and never gives one twice.
func Decide(now time.Time, version string, l Limits, nodes []candidate, slots []Slot) Plan {
	d := before(now, version, l, nodes, slots)
	d.give()
	slices.SortFunc(d.plan.Slots, func(a, b Slot) int { return cmp.Compare(a.Node, b.Node) })
	slices.Sort(d.plan.Given)
	slices.Sort(d.plan.Late)
	slices.Sort(d.plan.Failures)
	return d.plan
}

// Look returns what a rollout adds to its limits before any new slot is given.
func Look(now time.Time, version string, l Limits, nodes []candidate, slots []Slot) Share {
	d := before(now, version, l, nodes, slots)
	return Share{Failed: d.failed, Unavailable: d.unavailable, Canaries: d.canaries}
}

// before returns the decision as it is before any new slot is given.
func before(now time.Time, version string, l Limits, nodes []candidate, slots []Slot) *decision {
	d := &decision{
		now: now, version: version, limits: l, plan: Plan{Ended: map[string]Why{}, Waits: map[string]Why{}},
		nodes: map[string]candidate{},
		busy:  map[string]bool{}, unavailable: map[string]bool{}, failed: map[string]bool{},
	}
	for _, n := range nodes {
		d.nodes[n.Name] = n
	}
	maps.Copy(d.busy, l.Busy)
	maps.Copy(d.unavailable, l.Busy)
	maps.Copy(d.unavailable, l.Others.Unavailable)
	maps.Copy(d.failed, l.Others.Failed)
	d.canaries = l.Others.Canaries
	d.keep(slots)
	d.count()
	return d
}

type decision struct {
	now     time.Time
	version string
	limits  Limits
	nodes   map[string]candidate
	plan    Plan
	// busy are the nodes that have slots of this rollout, and Limits.Busy. unavailable are those without accelerators
	// or about to be. failed are those that have failed, here or in another rollout.
	busy, unavailable, failed map[string]bool
	// canaries is whether a canary node is not done.
	canaries bool
}

// keep carries over the slots that remain valid.
func (d *decision) keep(slots []Slot) {
	for _, s := range slots {
		if why := d.ended(s); why != "" {
			d.plan.Ended[s.Node] = why
			continue
		}
		d.plan.Slots = append(d.plan.Slots, s)
		d.busy[s.Node] = true
	}
	d.withdraw()
	for _, s := range d.plan.Slots {
		if t := d.limits.Timeout; t > 0 {
			if over := s.Since.Add(t); d.now.Before(over) {
				d.wake(over)
			} else {
				d.plan.Late = append(d.plan.Late, s.Node)
			}
		}
	}
}

// withdraw ends slots that their nodes do not know of yet, the newest first, while more nodes have slots than the limit
// allows. So it is when the limit was lowered, and when two policies gave slots to nodes that they have in common at
// the same moment.
func (d *decision) withdraw() {
	slices.SortFunc(d.plan.Slots, func(a, b Slot) int {
		return cmp.Or(b.Since.Compare(a.Since), cmp.Compare(b.Node, a.Node))
	})
	d.plan.Slots = slices.DeleteFunc(d.plan.Slots, func(s Slot) bool {
		n := d.nodes[s.Node]
		if !d.over(s.Node) || d.limits.Busy[s.Node] || !n.Granted.Before(s.Since) || n.acts() {
			return false
		}
		delete(d.busy, s.Node)
		for _, p := range d.limits.Pools {
			delete(p.Busy, s.Node)
		}
		d.plan.Ended[s.Node] = Withdrawn
		return true
	})
}

// over reports whether more nodes have slots than a limit allows that counts this node.
func (d *decision) over(node string) bool {
	return len(d.busy) > max(1, d.limits.MaxParallel) || slices.ContainsFunc(d.limits.Pools, func(p Pool) bool {
		return p.Why == Parallel && p.Nodes[node] && len(p.Busy) > p.Max
	})
}

// acts reports whether the node may be replacing its driver.
func (n candidate) acts() bool {
	return n.Phase == accel.ReportUpgrading || n.Phase == accel.ReportUnclear
}

// ended says how a slot ended; empty if it is still valid. A node that is replacing its driver keeps its slot,
// whatever version is wanted by now.
func (d *decision) ended(s Slot) Why {
	n, ok := d.nodes[s.Node]
	switch {
	case !ok:
		return Gone
	case n.acts():
		return ""
	case n.Phase == accel.ReportFailed && n.For == s.Version:
		return GaveUp
	case !n.TakenBack.Before(s.Since):
		return Withdrawn // before now, but its end could not be written
	case n.Phase == "" && n.Serving && (n.Version == s.Version || d.version == ""):
		return Done
	case s.Version != d.wanted(n) && (n.For != s.Version || n.Phase == ""):
		return Withdrawn // the node does not act on this slot: it waits for another version
	case n.Hindered && !n.Drained:
		return Withdrawn // nothing was done with it
	}
	return ""
}

// wanted returns the version that a node should have.
func (d *decision) wanted(n candidate) string {
	if d.version == "" {
		return n.For
	}
	return d.version
}

func (d *decision) wake(at time.Time) {
	if d.plan.Next.IsZero() || at.Before(d.plan.Next) {
		d.plan.Next = at
	}
}

func (d *decision) hasSlot(name string) bool {
	return slices.ContainsFunc(d.plan.Slots, func(s Slot) bool { return s.Node == name })
}

// changed reports whether a node has what is wanted. A node that still reports an upgrade does not: it may need other
// parameters of the same version.
func (d *decision) changed(n candidate) bool {
	return (n.Version == d.version || d.version == "") && n.Serving && n.Phase == "" && !d.hasSlot(n.Name)
}

func (d *decision) count() {
	for _, n := range d.nodes {
		if !n.Serving || !n.Ready || n.Away || d.hasSlot(n.Name) || n.acts() {
			d.unavailable[n.Name] = true
		}
		if n.Phase == accel.ReportFailed && n.For == d.wanted(n) || d.late(n) {
			d.plan.Failures = append(d.plan.Failures, n.Name)
			d.failed[n.Name] = true
		}
		d.canaries = d.canaries || n.Canary && !n.Skip && (n.Behind || !d.changed(n))
	}
}

// late reports whether a node has had its slot for the wanted version for longer than the timeout.
func (d *decision) late(n candidate) bool {
	return slices.Contains(d.plan.Late, n.Name) && slices.ContainsFunc(d.plan.Slots, func(s Slot) bool {
		return s.Node == n.Name && s.Version == d.wanted(n)
	})
}

// give gives slots to waiting nodes within the limits: canary nodes first, then nodes that are without accelerators
// anyway, then by name.
func (d *decision) give() {
	names := slices.Sorted(maps.Keys(d.nodes))
	slices.SortStableFunc(names, func(a, b string) int {
		x, y := d.nodes[a], d.nodes[b]
		return cmp.Or(order(y.Canary)-order(x.Canary), order(x.Serving)-order(y.Serving))
	})
	open, change := isOpen(d.limits.Windows, d.now)
	for _, name := range names {
		n := d.nodes[name]
		if d.changed(n) || d.hasSlot(name) || n.Phase == accel.ReportUpgrading {
			continue
		}
		why := d.refuses(n, open)
		if why == "" {
			d.plan.Slots = append(d.plan.Slots, Slot{Node: name, Version: d.wanted(n), Since: d.now})
			d.plan.Given = append(d.plan.Given, name)
			d.busy[name], d.unavailable[name] = true, true
			for _, p := range d.limits.Pools {
				if p.Nodes[name] {
					p.Busy[name] = true
				}
			}
			if d.limits.Timeout > 0 {
				d.wake(d.now.Add(d.limits.Timeout))
			}
			continue
		}
		d.plan.Waits[name] = why
		if why == Closed && !change.IsZero() {
			d.wake(change)
		}
	}
}

func order(b bool) int {
	if b {
		return 1
	}
	return 0
}

// refuses says why a node gets no slot now; empty if it gets one. Reasons of the node itself come first.
func (d *decision) refuses(n candidate, open bool) Why {
	switch {
	case n.Skip:
		return Skipped
	case n.Phase == accel.ReportFailed && n.For == d.wanted(n):
		return DidFail
	case n.Phase != accel.ReportWaiting || n.For != d.wanted(n):
		return NotReported
	case n.Hindered:
		return UnderMaintenance
	case !n.Ready:
		return NotReady
	case d.limits.Paused:
		return IsPaused
	case len(d.failed) >= max(1, d.limits.StopAfter):
		return Stopped
	case !n.Canary && d.canaries:
		return CanaryFirst
	case !open:
		return Closed
	case !room(d.busy, n.Name, max(1, d.limits.MaxParallel)):
		return Parallel
	case !d.unavailable[n.Name] && d.limits.MaxUnavailable > 0 && len(d.unavailable) >= d.limits.MaxUnavailable:
		return Unavailable
	}
	for _, p := range d.limits.Pools {
		if !p.takes(n.Name) {
			return p.Why
		}
	}
	return ""
}
