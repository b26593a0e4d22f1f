package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// repairs returns the slots for repairs, or the others.
func repairs(slots []Slot, are bool) []Slot {
	return slices.DeleteFunc(slices.Clone(slots), func(s Slot) bool { return s.Repair != are })
}

// limitsRepairs reports whether the policy limits repairs now.
func (p *Policy) limitsRepairs() bool {
	return p.Spec.Repair != nil && p.DeletionTimestamp == nil && !p.Spec.DryRun
}

// decideRepairs gives and ends the slots for repairs of a policy.
func (v view) decideRepairs(d *verdict) {
	before := repairs(d.policy.Status.Slots, true)
	if !d.policy.limitsRepairs() {
		v.wind(d, before)
		return
	}
	d.mending = DecideRepairs(v.now, v.repairLimits(d), v.wards(d, before), before)
	maps.Copy(d.ended, d.mending.Ended)
	d.slots = append(d.slots, d.mending.Slots...)
	for _, s := range d.mending.Given {
		s.Since = v.since(d.policy, s)
		d.given = append(d.given, s)
	}
	if next := d.mending.Next; !next.IsZero() && (d.next.IsZero() || next.Before(d.next)) {
		d.next = next
	}
}

// repairLimits returns the limits of a policy on repairs.
func (v view) repairLimits(d *verdict) RepairLimits {
	b := d.policy.Spec.Repair
	devices := 0
	for name, kinds := range d.members {
		for _, kind := range kinds {
			devices += v.nodes[name].devices(kind)
		}
	}
	l := RepairLimits{
		Nodes: max(1, b.MaxParallel.Of(len(d.members))), Devices: b.MaxDevices.Of(devices),
		Breaker: b.Trips(len(d.members)),
		Timeout: b.Counts(), Windows: windows(b.Windows), Paused: b.Paused || len(d.policy.problems()) > 0,
	}
	if b.Domain != "" {
		l.PerDomain, l.DomainBreaker = max(1, b.MaxPerDomain), b.Breaker != accel.NoRepairBreaker
	}
	return l
}

// maxDevices is how many devices of a kind a node is believed to have.
const maxDevices = 64

// devices is how many devices of a kind the node says it has.
func (n *Node) devices(kind string) int {
	count, _ := strconv.Atoi(n.Labels.get(kube.Prefix + kind + ".count"))
	return max(0, min(count, maxDevices))
}

// wards returns all kinds of all nodes of a policy, and those that do not belong to it any more and still act.
func (v view) wards(d *verdict, slots []Slot) (out []ward) {
	for name, kinds := range d.members {
		for _, kind := range kinds {
			w := v.nodes[name].ward(kind, d.policy.Spec.Repair.Domain)
			w.Skip = v.rivals(v.nodes[name], kind) != ""
			w.Hindered = v.nodes[name].hindrance(d.policy, kind, accel.RepairWork) != nil
			out = append(out, w)
		}
	}
	for _, s := range slots {
		if n := v.nodes[s.Node]; n != nil && !slices.Contains(d.members[s.Node], s.Kind) && n.acts(s) {
			w := n.ward(s.Kind, d.policy.Spec.Repair.Domain)
			w.Skip = true
			out = append(out, w)
		}
	}
	return out
}

// repairReport is what the node says about repairs of a kind.
func (n *Node) repairReport(kind string) accel.RepairReport {
	r := accel.ParseRepairReport(n.Annotations.get(accel.RepairAnnotation + kind))
	r.Ill = min(r.Ill, maxDevices)
	return r
}

// repairPermit is what the node was told about repairs of a kind.
func (n *Node) repairPermit(kind string) accel.RepairPermit {
	return accel.ParseRepairPermit(n.Annotations.get(accel.AllowRepairAnnotation + kind))
}

// ward returns a kind of the node.
func (n *Node) ward(kind, domain string) ward {
	w := ward{
		Node: n.Name, Kind: kind, Report: n.repairReport(kind), Ready: n.condition("Ready").Status == "True",
	}
	if domain != "" {
		w.Domain = n.Labels.get(domain)
	}
	if p := n.repairPermit(kind); p.Given {
		w.Granted = p.Since
	} else {
		w.TakenBack = p.Since
	}
	return w
}

// ConditionRepair is the condition of a policy that limits repairs.
const ConditionRepair = "Repair"

// repairCondition says how the repairs of a policy are going.
func (v view) repairCondition(d *verdict, slots []Slot) Condition {
	plan := d.mending
	c := Condition{Type: ConditionRepair, Status: "True", Reason: "Idle", Message: "no device needs a reset"}
	busy := repairs(slots, true)
	why := map[Why]int{}
	for _, w := range plan.Waits {
		why[w]++
	}
	if plan.Ill > 0 {
		c.Reason = "Waiting"
		c.Message = fmt.Sprintf("%d nodes have devices that need a reset; %d may repair them, %d wait", plan.Ill,
			len(busy), len(plan.Waits))
	}
	var texts []string
	for _, w := range slices.SortedFunc(maps.Keys(why), func(a, b Why) int {
		return cmp.Or(why[b]-why[a], strings.Compare(string(a), string(b)))
	}) {
		texts = append(texts, fmt.Sprintf("%s: %d", w, why[w]))
	}
	if len(texts) > 0 {
		c.Message += " (" + strings.Join(texts, ", ") + ")"
	}
	if len(busy) > 0 {
		c.Reason = "Repairing"
	}
	if len(plan.Late) > 0 {
		c.Message += "; too late: " + strings.Join(plan.Late, ", ")
	}
	switch {
	case plan.Tripped:
		c.Status, c.Reason = "False", string(Tripped)
		c.Message += fmt.Sprintf("; more than %d at once: look for what they have in common", v.repairLimits(d).Breaker)
	case why[DomainFailed] > 0:
		c.Status, c.Reason = "False", string(DomainFailed)
		c.Message += "; most nodes of a domain: look for what they have in common"
	}
	c.Message = shorten(c.Message)
	return c
}

// blockRepairs adds why nodes do not repair their devices.
func (v view) blockRepairs(d *verdict, b blocks) {
	for _, key := range slices.SortedFunc(maps.Keys(d.mending.Waits), func(x, y wardKey) int {
		return cmp.Or(strings.Compare(x.Node, y.Node), strings.Compare(x.Kind, y.Kind))
	}) {
		n, why := v.nodes[key.Node], d.mending.Waits[key]
		r := n.repairReport(key.Kind)
		text := fmt.Sprintf("%d of %d %s need a reset", r.Ill, r.Devices, key.Kind)
		if m := n.hindrance(d.policy, key.Kind, accel.RepairWork); m != nil && why == UnderMaintenance {
			text += "; " + m.String()
		}
		b.add("Repair"+string(why), key.Node, text)
	}
}
