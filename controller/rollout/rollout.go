// Package rollout decides which nodes may replace their driver now. It is pure: the state of nodes and slots goes in,
// the slots that are valid from now on come out. The caller writes the slots down before any node gets a grant. A
// second writer, or a writer after a crash, therefore starts from the same slots and never gives one twice.
package rollout

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
	// Busy are the nodes that have slots of other rollouts under the same limits, or replace a driver without a slot.
	// They count against MaxParallel and as unavailable, each once, even if it also has a slot of this rollout. Failed
	// are the nodes that have failed in other rollouts under the same limits.
	Busy, Failed map[string]bool
}

// Node is one node of a rollout.
type Node struct {
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
}

// Slot is the permission of a node to replace its driver with a version.
type Slot struct {
	Node string `json:"node"`
	// Kind is the kind of the driver. It means nothing here, and is empty in a new slot.
	Kind    string    `json:"kind"`
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
}

// Equal reports whether two slots are the same.
func (s Slot) Equal(o Slot) bool {
	return s.Node == o.Node && s.Kind == o.Kind && s.Version == o.Version && s.Since.Equal(o.Since)
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
	Withdrawn Why = "Withdrawn" // another version is wanted, and the node does not act on this slot
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
	// Failures are the nodes that have failed with the version, including the late ones.
	Failures []string
	// Next is when the passing of time alone will change the plan; zero if it will not.
	Next time.Time
}

// Decide gives and ends slots for a version, as of now. If version is empty, each node gets the version that it
// reports as its own target. Nodes must be all nodes that belong to the rollout, each once.
func Decide(now time.Time, version string, l Limits, nodes []Node, slots []Slot) Plan {
	d := before(now, version, l, nodes, slots)
	d.give()
	slices.SortFunc(d.plan.Slots, func(a, b Slot) int { return cmp.Compare(a.Node, b.Node) })
	slices.Sort(d.plan.Given)
	slices.Sort(d.plan.Late)
	slices.Sort(d.plan.Failures)
	return d.plan
}

// Failures returns the nodes that have failed with a version, including the late ones.
func Failures(now time.Time, version string, l Limits, nodes []Node, slots []Slot) []string {
	return before(now, version, l, nodes, slots).plan.Failures
}

// before returns the decision as it is before any new slot is given.
func before(now time.Time, version string, l Limits, nodes []Node, slots []Slot) *decision {
	d := &decision{
		now: now, version: version, limits: l, plan: Plan{Ended: map[string]Why{}, Waits: map[string]Why{}},
		nodes: map[string]Node{}, busy: map[string]bool{}, unavailable: map[string]bool{}, failed: map[string]bool{},
	}
	for _, n := range nodes {
		d.nodes[n.Name] = n
	}
	maps.Copy(d.busy, l.Busy)
	maps.Copy(d.unavailable, l.Busy)
	maps.Copy(d.failed, l.Failed)
	d.keep(slots)
	d.count()
	return d
}

type decision struct {
	now     time.Time
	version string
	limits  Limits
	nodes   map[string]Node
	plan    Plan
	// busy are the nodes that have slots of this rollout, and Limits.Busy. unavailable are those without accelerators
	// or about to be. failed are those that have failed, here or in another rollout.
	busy, unavailable, failed map[string]bool
	// canaries is how many canary nodes are not done.
	canaries int
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
		if t := d.limits.Timeout; t > 0 {
			if over := s.Since.Add(t); d.now.Before(over) {
				d.wake(over)
			} else {
				d.plan.Late = append(d.plan.Late, s.Node)
			}
		}
	}
}

// ended says how a slot ended; empty if it is still valid. A node that is replacing its driver keeps its slot,
// whatever version is wanted by now.
func (d *decision) ended(s Slot) Why {
	n, ok := d.nodes[s.Node]
	switch {
	case !ok:
		return Gone
	case n.Phase == accel.ReportUpgrading:
		return ""
	case n.Phase == accel.ReportFailed && n.For == s.Version:
		return GaveUp
	case n.Phase == "" && n.Serving && (n.Version == s.Version || d.version == ""):
		return Done
	case s.Version != d.wanted(n) && (n.For != s.Version || n.Phase == ""):
		return Withdrawn // the node does not act on this slot: it waits for another version
	}
	return ""
}

// wanted returns the version that a node should have.
func (d *decision) wanted(n Node) string {
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
func (d *decision) changed(n Node) bool {
	return (n.Version == d.version || d.version == "") && n.Serving && n.Phase == "" && !d.hasSlot(n.Name)
}

func (d *decision) count() {
	d.plan.Failures = slices.Clone(d.plan.Late)
	for _, n := range d.nodes {
		if !n.Serving || !n.Ready || d.hasSlot(n.Name) || n.Phase == accel.ReportUpgrading {
			d.unavailable[n.Name] = true
		}
		if n.Phase == accel.ReportFailed && n.For == d.wanted(n) && !slices.Contains(d.plan.Late, n.Name) {
			d.plan.Failures = append(d.plan.Failures, n.Name)
		}
		if n.Canary && !n.Skip && !d.changed(n) {
			d.canaries++
		}
	}
	for _, name := range d.plan.Failures {
		d.failed[name] = true
	}
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
func (d *decision) refuses(n Node, open bool) Why {
	switch {
	case n.Skip:
		return Skipped
	case n.Phase == accel.ReportFailed && n.For == d.wanted(n):
		return DidFail
	case n.Phase != accel.ReportWaiting || n.For != d.wanted(n):
		return NotReported
	case !n.Ready:
		return NotReady
	case d.limits.Paused:
		return IsPaused
	case len(d.failed) >= max(1, d.limits.StopAfter):
		return Stopped
	case !n.Canary && d.canaries > 0:
		return CanaryFirst
	case !open:
		return Closed
	case !d.busy[n.Name] && len(d.busy) >= max(1, d.limits.MaxParallel):
		return Parallel
	case !d.unavailable[n.Name] && d.limits.MaxUnavailable > 0 && len(d.unavailable) >= d.limits.MaxUnavailable:
		return Unavailable
	}
	return ""
}
