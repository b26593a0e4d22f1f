package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// view is what is known at one moment. Nothing in it is changed.
type view struct {
	now      time.Time
	policies []*Policy // in the order of precedence
	nodes    map[string]*Node
	// rivals says which other operator serves a kind on a node; empty when none does.
	rivals func(n *Node, kind string) string
	// hindered says what keeps pods on a node that is being drained, by node.
	hindered map[string]string
	// unmade says why priority classes of a policy do not exist, by policy.
	unmade map[string]string
	// defined are the definitions of each policy, by policy.
	defined map[string]defined
}

// verdict is the decision about one policy. It is derived from a view; [Controller.carryOut] acts on it.
type verdict struct {
	policy *Policy
	// members are the kinds that the policy governs, by node that has one.
	members   map[string][]string
	conflicts map[accel.PolicyConflict]string // the value is an example node
	plans     map[string]Plan                 // by kind
	mending   RepairPlan                      // of the repairs that the policy limits
	// limits hold for all kinds of the policy together. teams are the nodes of the rollout of each kind; nil if the
	// policy orders no upgrades.
	limits Limits
	teams  map[string][]candidate
	// slots are those that remain valid. ended are the slots that must be withdrawn, with the reason. given are new
	// slots, which are written only after all ended ones have been withdrawn.
	slots []Slot
	ended map[Slot]Why
	given []Slot
	next  time.Time
}

// judge derives the verdicts, in the order of precedence.
func judge(v view) []*verdict {
	var asked []accel.Policy
	var out []*verdict
	verdicts := map[string]*verdict{}
	for _, p := range v.policies {
		if p.DeletionTimestamp == nil {
			asked = append(asked, p.asked())
		}
		d := &verdict{
			policy: p, members: map[string][]string{}, conflicts: map[accel.PolicyConflict]string{},
			plans: map[string]Plan{}, ended: map[Slot]Why{},
		}
		verdicts[p.Name], out = d, append(out, d)
	}
	v.assign(asked, verdicts)
	for i, p := range asked { // what a policy in dry run would govern if it were in force
		if p.Spec.DryRun {
			real := slices.Clone(asked)
			real[i].Spec.DryRun = false
			v.assign(real, map[string]*verdict{p.Name: verdicts[p.Name]})
		}
	}
	for _, d := range out {
		v.prepare(d)
	}
	for _, d := range out {
		v.decide(d, out)
	}
	for _, d := range out { // after all upgrades, which count no slots for repairs
		v.decideRepairs(d)
	}
	ended, plans := 0, 0
	for _, d := range out {
		ended, plans = ended+len(d.ended), plans+len(d.plans)
	}
	for _, d := range out {
		if ended > 0 && plans > 1 { // kinds and policies decided earlier still counted the slots that ended
			d.next = v.now.Add(settle)
		}
	}
	return out
}

// ordered returns the policies in the order of precedence.
func ordered(policies map[string]*Policy) []*Policy {
	var asked []accel.Policy
	for _, p := range policies {
		asked = append(asked, p.asked())
	}
	var out []*Policy
	for _, p := range accel.Precedence(asked) {
		out = append(out, policies[p.Name])
	}
	return out
}

// assign finds the nodes and kinds that each policy with a verdict governs.
func (v view) assign(policies []accel.Policy, verdicts map[string]*verdict) {
	for _, name := range slices.Sorted(maps.Keys(v.nodes)) {
		n := v.nodes[name]
		by, conflicts := accel.GoverningBy(policies, n.Labels.has)
		for _, kind := range slices.Sorted(maps.Keys(by)) {
			if d := verdicts[by[kind].Name]; d != nil && n.has(kind) {
				d.members[name] = append(d.members[name], kind)
			}
		}
		for _, c := range conflicts {
			if d := verdicts[c.Policy]; d != nil && n.has(c.Kind) && d.conflicts[c] == "" {
				d.conflicts[c] = name
			}
		}
	}
}

// slotsBefore returns the slots for upgrades in the status of the policy, by kind.
func (d *verdict) slotsBefore() map[string][]Slot {
	out := map[string][]Slot{}
	for _, s := range repairs(d.policy.Status.Slots, false) {
		out[s.Kind] = append(out[s.Kind], s)
	}
	return out
}

// prepare finds the limits and the nodes of a policy that orders upgrades.
func (v view) prepare(d *verdict) {
	p := d.policy
	if p.Spec.Upgrade == nil || p.DeletionTimestamp != nil || p.Spec.DryRun {
		return
	}
	d.limits, d.teams = limits(p, len(d.members)), map[string][]candidate{}
	slots := d.slotsBefore()
	var all Share
	for kind, config := range p.Spec.Kinds {
		version := config.Driver.Version
		d.teams[kind] = v.team(d, kind, version, slots[kind])
		all.Add(Look(v.now, version, d.limits, d.teams[kind], slots[kind]))
	}
	d.limits.Others = all
}

// decide gives and ends the slots of a policy. All are the verdicts of all policies.
func (v view) decide(d *verdict, all []*verdict) {
	byKind := d.slotsBefore()
	for kind := range d.teams {
		if _, known := byKind[kind]; !known {
			byKind[kind] = nil // a kind without slots is decided too
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		team, named := d.teams[kind]
		if !named {
			v.wind(d, byKind[kind])
			continue
		}
		l := d.limits
		l.Busy, l.Pools = v.busy(d, kind, all), v.pools(d, all)
		version := d.policy.Spec.Kinds[kind].Driver.Version
		d.take(kind, Decide(v.now, version, l, team, byKind[kind]), byKind[kind], v)
	}
}

// pools are the limits of the other policies that order upgrades: a slot counts for each policy that governs its node.
func (v view) pools(d *verdict, all []*verdict) (out []Pool) {
	for _, other := range all {
		if other == d || other.teams == nil {
			continue
		}
		nodes := map[string]bool{}
		for name := range other.members {
			nodes[name] = true
		}
		busy := v.busy(other, "", all)
		out = append(out, Pool{
			Nodes: nodes, Busy: busy, Max: max(1, other.limits.MaxParallel), Why: Parallel,
		})
		if most := other.limits.MaxUnavailable; most > 0 {
			without := maps.Clone(busy)
			maps.Copy(without, other.limits.Others.Unavailable)
			out = append(out, Pool{Nodes: nodes, Busy: without, Max: most, Why: Unavailable})
		}
	}
	return out
}

// take takes over the plan for a kind whose slots were these before.
func (d *verdict) take(kind string, plan Plan, before []Slot, v view) {
	d.plans[kind] = plan
	for _, s := range before {
		if why, over := plan.Ended[s.Node]; over {
			d.ended[s] = why
		}
	}
	for _, s := range plan.Slots {
		if slices.Contains(plan.Given, s.Node) {
			s.Kind = kind
			s.Since = v.since(d.policy, s)
			d.given = append(d.given, s)
			continue
		}
		d.slots = append(d.slots, s)
	}
	if !plan.Next.IsZero() && (d.next.IsZero() || plan.Next.Before(d.next)) {
		d.next = plan.Next
	}
}

// busy returns the nodes that have slots of the policy's other kinds, those of the policy's nodes that have slots of
// other policies, and those that are replacing a driver, even if they began with a slot of a policy that is deleted by
// now. Slots that were not decided about yet count even if they will end.
func (v view) busy(d *verdict, kind string, all []*verdict) map[string]bool {
	out := map[string]bool{}
	for _, s := range slices.Concat(d.slots, d.given) {
		out[s.Node] = true
	}
	for _, s := range repairs(d.policy.Status.Slots, false) {
		if s.Kind > kind {
			out[s.Node] = true
		}
	}
	for _, other := range all {
		for _, s := range repairs(slices.Concat(other.policy.Status.Slots, other.given), false) {
			if other != d && d.concerns(s.Node) {
				out[s.Node] = true
			}
		}
	}
	for name := range d.members {
		if v.nodes[name].actsAnyhow() {
			out[name] = true
		}
	}
	return out
}

// concerns reports whether a node counts against the limits of the policy: it governs a kind there, or has a slot
// there.
func (d *verdict) concerns(node string) bool {
	_, member := d.members[node]
	upgrades := repairs(d.policy.Status.Slots, false)
	return member || slices.ContainsFunc(upgrades, func(s Slot) bool { return s.Node == node })
}

// wind ends slots that the policy no longer gives. A slot that its node acts on stays,
// unless the policy is being deleted.
func (v view) wind(d *verdict, slots []Slot) {
	for _, s := range slots {
		if n := v.nodes[s.Node]; n != nil && n.acts(s) && d.policy.DeletionTimestamp == nil {
			d.slots = append(d.slots, s)
			continue
		}
		d.ended[s] = Gone
	}
}

// since is the start of a slot that is given now: later than every slot before it and later than the node's last
// grant.
func (v view) since(p *Policy, s Slot) time.Time {
	at := v.now.UTC().Truncate(time.Microsecond)
	for _, before := range []time.Time{p.Status.LastSlot, v.nodes[s.Node].told(s)} {
		if !at.After(before) {
			at = before.Add(time.Microsecond)
		}
	}
	return at
}

// team returns the nodes of a rollout. It includes nodes that no longer belong to it but still act on their slot.
func (v view) team(d *verdict, kind, version string, slots []Slot) []candidate {
	out := make([]candidate, 0, len(d.members))
	asked := d.policy.asked()
	digest := asked.DriverDigest(kind)
	for name, n := range v.nodes {
		belongs := slices.Contains(d.members[name], kind)
		has := func(s Slot) bool { return s.Node == name }
		if !belongs && !(n.upgradeReport(kind).Acts() && slices.ContainsFunc(slots, has)) {
			continue
		}
		m := n.member(kind, version, *d.policy.Spec.Upgrade)
		m.Behind = n.Annotations.get(accel.ServedAnnotation+kind) != digest
		m.Skip = m.Skip || !belongs || v.rivals(n, kind) != ""
		m.Hindered, m.Away = n.hindrance(d.policy, kind, accel.UpgradeWork) != nil, n.away(d.policy, kind)
		out = append(out, m)
	}
	return out
}

// limits returns the limits of a policy that governs total nodes.
func limits(p *Policy, total int) Limits {
	u := p.Spec.Upgrade
	timeout, _ := time.ParseDuration(u.Timeout) // Problems reports an invalid one
	l := Limits{
		MaxParallel: max(1, u.MaxParallel), MaxUnavailable: u.MaxUnavailable.Of(total), StopAfter: max(1, u.StopAfter),
		Timeout: timeout, Paused: u.Paused || len(p.problems()) > 0, Windows: windows(u.Windows),
	}
	return l
}

// problems are what is wrong with the policy.
func (p *Policy) problems() []string {
	out := p.Spec.Problems()
	if p.Spec.Partition != nil {
		for i, t := range p.Spec.Partition.Taints {
			for _, text := range validation.IsQualifiedName(t.Key) {
				out = append(out, fmt.Sprintf("partition.taints[%d].key: %s", i, text))
			}
			for _, text := range validation.IsValidLabelValue(t.Value) {
				out = append(out, fmt.Sprintf("partition.taints[%d].value: %s", i, text))
			}
		}
	}
	if p.Spec.Repair != nil {
		out = append(out, zoneProblems("repair", p.Spec.Repair.Windows)...)
	}
	if p.Spec.Upgrade == nil {
		return out
	}
	return append(out, zoneProblems("upgrade", p.Spec.Upgrade.Windows)...)
}

// zoneProblems are the time zones of windows that are not known.
func zoneProblems(section string, all []accel.RolloutWindow) (out []string) {
	for i, w := range all {
		if _, err := time.LoadLocation(w.TimeZone); err != nil {
			out = append(out, fmt.Sprintf("%s.windows[%d].timeZone: %v", section, i, err))
		}
	}
	return out
}

// broken reports whether something is wrong with a section of the policy: a mistake in another section takes nothing
// away that this one has put in force.
func (p *Policy) broken(section string) bool {
	return slices.ContainsFunc(p.problems(), func(text string) bool { return strings.HasPrefix(text, section+".") })
}

// blocks collects reasons, each with the number of nodes and an example.
type blocks map[string]*Blocked

func (b blocks) add(reason, node, text string) {
	x := b[reason]
	if x == nil {
		x = &Blocked{Reason: reason, Example: shorten(strings.TrimSuffix(node+": "+text, ": "))}
		b[reason] = x
	}
	x.Count++
}

func (b blocks) sorted() []Blocked {
	var out []Blocked
	for _, x := range b {
		out = append(out, *x)
	}
	slices.SortFunc(out, func(a, b Blocked) int { return cmp.Or(b.Count-a.Count, cmp.Compare(a.Reason, b.Reason)) })
	return out[:min(len(out), maxBlocked)]
}

const (
	// maxBlocked and maxText keep the status small: thousands of agents receive it.
	maxBlocked = 16
	maxText    = 300
)

func shorten(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// waitText says of what kind a node waits, and for whom if somebody else works on it.
func (v view) waitText(d *verdict, n *Node, kind string, why Why) string {
	if m := n.hindrance(d.policy, kind, accel.UpgradeWork); m != nil && why == UnderMaintenance {
		return kind + ": " + m.String()
	}
	return kind
}

// tally counts the nodes of a policy and says why nodes are blocked.
func (v view) tally(d *verdict, slots []Slot) (Nodes, []Blocked) {
	counts, b := Nodes{Matched: len(d.members)}, blocks{}
	if why := v.unmade[d.policy.Name]; why != "" {
		b.add("PriorityClassTaken", why, "")
	}
	v.blockRepairs(d, b)
	for _, name := range slices.Sorted(maps.Keys(d.members)) {
		n := v.nodes[name]
		failed, upgrading, waiting, ready := false, false, false, true
		for _, kind := range d.members[name] {
			w, why := n.upgradeReport(kind), d.plans[kind].Waits[name]
			holds := slices.ContainsFunc(slots, func(s Slot) bool {
				return s.Node == name && s.Kind == kind && !s.Repair
			})
			rival := v.rivals(n, kind)
			switch {
			case rival != "":
				b.add("OtherOperator", name, rival)
			case w.Phase == accel.ReportFailed:
				failed = true
				b.add(cmp.Or(string(w.Reason), "Failed"), name, kind+" "+w.Version)
			case w.Phase == accel.ReportUpgrading || holds:
				upgrading = true
				if text := v.hindered[name]; text != "" {
					b.add("Draining", name, text)
				}
			case why != "":
				waiting = true
				b.add(string(why), name, v.waitText(d, n, kind, why))
			}
			ready = ready && n.serves(kind) && why == "" && rival == ""
		}
		switch {
		case failed:
			counts.Failed++
		case upgrading:
			counts.Upgrading++
		case waiting:
			counts.Waiting++
		case ready:
			counts.Ready++
		default:
			if c := n.condition(kube.ConditionType); c.Status != "True" && c.Reason != "" {
				b.add(c.Reason, name, c.Message)
			} else {
				b.add("NotReady", name, "")
			}
		}
	}
	return counts, b.sorted()
}
