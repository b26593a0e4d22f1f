// Package rollout decides which nodes may replace their driver now. It is pure: what it is told of nodes and slots goes
// in, the slots that hold from now on come out. Who calls it writes the slots down before any node hears of its own, so
// that a second writer, or one that comes after a crash, starts from the same slots and never gives one twice.
package rollout

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Limits of one rollout.
type Limits struct {
	// MaxParallel is how many nodes have a slot at a time, at least 1.
	MaxParallel int
	// MaxUnavailable is how many nodes may be without accelerators at a time, whatever the cause; 0 is no limit of its
	// own. Nodes that are without already cost nothing more.
	MaxUnavailable int
	// StopAfter is how many nodes may fail before no more slots are given; at least 1.
	StopAfter int
	// Timeout is how long a node may have its slot before it counts as failed; 0 is no limit. It keeps the slot: nobody
	// knows what it does with it.
	Timeout time.Duration
	// Windows are the times in which slots are given; none is always. A node that has one finishes outside too.
	Windows []Window
	// Paused gives no slots.
	Paused bool
}

// Phase is what a node says of the driver that it is to have.
type Phase string

// The phases. A node that says nothing has not heard of it, or has nothing to do.
const (
	Silent    Phase = ""
	Waiting   Phase = "waiting"   // it has the driver ready and waits for its slot
	Upgrading Phase = "upgrading" // it replaces the driver, or waits for those who use it
	Failed    Phase = "failed"    // it could not, and has the previous driver
)

// Node is one node of a rollout.
type Node struct {
	Name string
	// Version is that of the driver that serves; empty when none does.
	Version string
	// Serving is whether the node's accelerators can be used, and Ready whether the node is up and takes pods.
	Serving, Ready bool
	// Phase and For are what the node says: how far it is, and with which version.
	Phase Phase
	For   string
	// Canary nodes come before all others, and Skip ones never.
	Canary, Skip bool
}

// Slot is the permission of a node to replace its driver with a version.
type Slot struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
}

// Why says why a node waits, or how its slot ended.
type Why string

// Why a node that is to change has no slot.
const (
	Unheard     Why = "Unheard"        // it has not said that it has the driver ready
	Skipped     Why = "Skipped"        // a label keeps it out
	DidFail     Why = "Failed"         // it could not, and is not tried again with this version
	NotReady    Why = "NotReady"       // the node is down or takes no pods
	IsPaused    Why = "Paused"         // the policy is paused
	Stopped     Why = "Stopped"        // too many have failed
	Closed      Why = "OutsideWindow"  // no window is open
	CanaryFirst Why = "CanaryFirst"    // canary nodes are not done
	Parallel    Why = "MaxParallel"    // as many as may have a slot
	Unavailable Why = "MaxUnavailable" // as many as may be without accelerators are
)

// How a slot ended.
const (
	Done      Why = "Done"      // the node serves the version
	GaveUp    Why = "Failed"    // it serves with the previous one
	Gone      Why = "Gone"      // there is no such node any more, or it does not belong to the rollout
	Withdrawn Why = "Withdrawn" // another version is wanted, and the node knows it
)

// Plan is what holds from now on.
type Plan struct {
	// Slots are all that hold, by node. Given are the names of those that are new.
	Slots []Slot
	Given []string
	// Ended are slots that do not hold any more, and how they ended.
	Ended map[string]Why
	// Waits are the nodes that are still to change, without a slot, and why.
	Waits map[string]Why
	// Late are nodes that have had their slot for longer than the timeout.
	Late []string
	// Failures is how many nodes have failed with the version, the late ones counted.
	Failures int
	// Next is when time alone will change the plan; zero when it will not.
	Next time.Time
}

// Decide gives and takes slots for a version, as of now; with an empty one for whatever each node says that it is to
// have. Nodes must be all that belong to the rollout, each once.
func Decide(now time.Time, version string, l Limits, nodes []Node, slots []Slot) Plan {
	d := decision{
		now: now, version: version, limits: l, plan: Plan{Ended: map[string]Why{}, Waits: map[string]Why{}},
		nodes: map[string]Node{},
	}
	for _, n := range nodes {
		d.nodes[n.Name] = n
	}
	d.keep(slots)
	d.count()
	d.give()
	slices.SortFunc(d.plan.Slots, func(a, b Slot) int { return cmp.Compare(a.Node, b.Node) })
	slices.Sort(d.plan.Given)
	slices.Sort(d.plan.Late)
	return d.plan
}

type decision struct {
	now     time.Time
	version string
	limits  Limits
	nodes   map[string]Node
	plan    Plan
	// unavailable is how many nodes are without accelerators or about to be; canaries how many canary nodes are not
	// done.
	unavailable, canaries int
}

// keep takes over the slots that hold on.
func (d *decision) keep(slots []Slot) {
	for _, s := range slots {
		if why := d.ended(s); why != "" {
			d.plan.Ended[s.Node] = why
			continue
		}
		d.plan.Slots = append(d.plan.Slots, s)
		if t := d.limits.Timeout; t > 0 {
			if over := s.Since.Add(t); d.now.Before(over) {
				d.wake(over)
			} else {
				d.plan.Late = append(d.plan.Late, s.Node)
			}
		}
	}
}

// ended says how a slot ended; empty when it holds. A node that replaces its driver keeps its slot whatever is wanted
// by now.
func (d *decision) ended(s Slot) Why {
	n, ok := d.nodes[s.Node]
	switch {
	case !ok:
		return Gone
	case n.Phase == Upgrading:
		return ""
	case n.Phase == Failed && n.For == s.Version:
		return GaveUp
	case n.Phase == Silent && n.Serving && (n.Version == s.Version || d.version == ""):
		return Done
	case s.Version != d.wanted(n) && (n.For != s.Version || n.Phase == Silent):
		return Withdrawn // it does not act on this slot, because it waits for another version's
	}
	return ""
}

// wanted is the version that a node is to have.
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

// changed reports whether a node has what is wanted. One that says something has not: it may be to have other
// parameters of the same version.
func (d *decision) changed(n Node) bool {
	return (n.Version == d.version || d.version == "") && n.Serving && n.Phase == Silent && !d.hasSlot(n.Name)
}

func (d *decision) count() {
	d.plan.Failures = len(d.plan.Late)
	for _, n := range d.nodes {
		if !n.Serving || !n.Ready || d.hasSlot(n.Name) || n.Phase == Upgrading {
			d.unavailable++
		}
		if n.Phase == Failed && n.For == d.wanted(n) {
			d.plan.Failures++
		}
		if n.Canary && !n.Skip && !d.changed(n) {
			d.canaries++
		}
	}
}

// give gives slots to those who wait, as far as the limits go: canary nodes first, then those that are without
// accelerators anyhow, by name.
func (d *decision) give() {
	names := slices.Sorted(maps.Keys(d.nodes))
	slices.SortStableFunc(names, func(a, b string) int {
		x, y := d.nodes[a], d.nodes[b]
		return cmp.Or(order(y.Canary)-order(x.Canary), order(x.Serving)-order(y.Serving))
	})
	open, change := isOpen(d.limits.Windows, d.now)
	for _, name := range names {
		n := d.nodes[name]
		if d.changed(n) || d.hasSlot(name) || n.Phase == Upgrading {
			continue
		}
		why := d.refuses(n, open)
		if why == "" {
			d.plan.Slots = append(d.plan.Slots, Slot{Node: name, Version: d.wanted(n), Since: d.now})
			d.plan.Given = append(d.plan.Given, name)
			if n.Serving {
				d.unavailable++
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

// refuses says why a node gets no slot now; empty when it gets one. What is the node's own comes first.
func (d *decision) refuses(n Node, open bool) Why {
	switch {
	case n.Skip:
		return Skipped
	case n.Phase == Failed && n.For == d.wanted(n):
		return DidFail
	case n.Phase != Waiting || n.For != d.wanted(n):
		return Unheard
	case !n.Ready:
		return NotReady
	case d.limits.Paused:
		return IsPaused
	case d.plan.Failures >= max(1, d.limits.StopAfter):
		return Stopped
	case !n.Canary && d.canaries > 0:
		return CanaryFirst
	case !open:
		return Closed
	case len(d.plan.Slots) >= max(1, d.limits.MaxParallel):
		return Parallel
	case n.Serving && d.limits.MaxUnavailable > 0 && d.unavailable >= d.limits.MaxUnavailable:
		return Unavailable
	}
	return ""
}
