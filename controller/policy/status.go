package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// Types of the conditions of a policy.
const (
	ConditionAccepted = "Accepted" // the policy is valid
	ConditionReady    = "Ready"    // every node is as the policy asks
	ConditionConflict = "Conflict" // another policy of the same priority governs some of its nodes
	ConditionDryRun   = "DryRun"   // it changes nothing; the message says what it would change
	ConditionDefined  = "Defined"  // its definitions are valid
)

// status returns the status that the policy should have with these slots.
func (v view) status(d *verdict, slots []Slot) Status {
	s := Status{ObservedGeneration: d.policy.Generation, Slots: slots, LastSlot: d.policy.Status.LastSlot}
	slices.SortFunc(s.Slots, func(a, b Slot) int {
		return cmp.Or(strings.Compare(a.Kind+" "+a.Node, b.Kind+" "+b.Node), order(a.Repair)-order(b.Repair))
	})
	for _, x := range slots {
		if x.Since.After(s.LastSlot) {
			s.LastSlot = x.Since
		}
	}
	s.Nodes, s.Blocked = v.tally(d, slots)
	accepted := valid(ConditionAccepted, accel.PolicyInvalid, d.policy.problems())
	conditions := []Condition{accepted, v.ready(d, s), conflict(d)}
	defs := v.defined[d.policy.Name]
	s.Definitions = defs.named
	if len(d.policy.Spec.Definitions)+len(d.policy.Spec.DefinitionsFrom) > 0 {
		conditions = append(conditions, valid(ConditionDefined, accel.DefinitionInvalid, defs.problems))
	}
	if d.policy.limitsRepairs() {
		conditions = append(conditions, v.repairCondition(d, slots))
	}
	if d.policy.Spec.DryRun {
		conditions = append(conditions, Condition{
			Type: ConditionDryRun, Status: "True", Reason: "NothingIsChanged",
			Message: shorten(v.wouldChange(d)),
		})
	}
	for _, c := range conditions {
		c.ObservedGeneration, c.LastTransitionTime = s.ObservedGeneration, v.now.UTC().Truncate(time.Second)
		if i := slices.IndexFunc(d.policy.Status.Conditions, func(x Condition) bool {
			return x.Type == c.Type && x.Status == c.Status
		}); i >= 0 {
			c.LastTransitionTime = d.policy.Status.Conditions[i].LastTransitionTime
		}
		s.Conditions = append(s.Conditions, c)
	}
	return s
}

// valid is a condition that says whether there are problems, and which.
func valid(kind string, otherwise accel.Reason, problems []string) Condition {
	if len(problems) == 0 {
		return Condition{Type: kind, Status: "True", Reason: "Valid"}
	}
	return Condition{
		Type: kind, Status: "False", Reason: string(otherwise), Message: shorten(strings.Join(problems, "; ")),
	}
}

// ready is the condition that people look at first.
func (v view) ready(d *verdict, s Status) Condition {
	c := Condition{Type: ConditionReady, Status: "False"}
	var failures, late []string
	failed := map[string]bool{}
	for _, kind := range slices.Sorted(maps.Keys(d.plans)) {
		plan := d.plans[kind]
		if n := len(plan.Failures); n > 0 {
			failures = append(failures, fmt.Sprintf("%s: %d failed", kind, n))
		}
		for _, name := range plan.Failures {
			failed[name] = true
		}
		late = append(late, plan.Late...)
	}
	n := s.Nodes
	c.Message = fmt.Sprintf("%d of %d nodes are as asked, %d upgrading, %d waiting, %d failed", n.Ready, n.Matched,
		n.Upgrading, n.Waiting, n.Failed)
	switch {
	case d.policy.Spec.DryRun:
		c.Status, c.Reason = "Unknown", "DryRun"
	case n.Matched == 0:
		c.Status, c.Reason, c.Message = "True", "NoNodes", "no node has a kind that the policy holds for"
	case d.policy.Spec.Upgrade != nil && len(failed) >= max(1, d.policy.Spec.Upgrade.StopAfter):
		c.Reason = "Stopped"
		c.Message += "; no other node begins: " + strings.Join(failures, ", ")
		if len(late) > 0 {
			c.Message += "; too late: " + strings.Join(late, ", ")
		}
	case n.Ready == n.Matched:
		c.Status, c.Reason = "True", "AllReady"
	case d.policy.Spec.Upgrade != nil && d.policy.Spec.Upgrade.Paused && n.Upgrading == 0:
		c.Reason = "Paused"
	case n.Upgrading > 0 || n.Waiting > 0:
		c.Reason = "Progressing"
	case n.Failed > 0:
		c.Reason = "Failed"
	default:
		c.Reason = "NotReady"
	}
	c.Message = shorten(c.Message)
	return c
}

func conflict(d *verdict) Condition {
	var texts []string
	for c, node := range d.conflicts {
		texts = append(texts, fmt.Sprintf("%s: the policy %q holds on %s; give one of them a higher priority", c.Kind,
			c.Other, node))
	}
	if len(texts) == 0 {
		return Condition{Type: ConditionConflict, Status: "False", Reason: "None"}
	}
	slices.Sort(texts)
	return Condition{
		Type: ConditionConflict, Status: "True", Reason: "EqualPriority",
		Message: shorten(strings.Join(texts, "; ")),
	}
}

// wouldChange says what a dry run would change.
func (v view) wouldChange(d *verdict) string {
	var texts []string
	kinds := map[string]map[string]int{}
	for name, has := range d.members {
		for _, kind := range has {
			want := d.policy.Spec.Kinds[kind].Driver.Version
			have := v.nodes[name].Labels.get(kube.Prefix + kind + ".driver-version")
			if want == "" || kube.LabelValue(want) == have {
				continue
			}
			if kinds[kind] == nil {
				kinds[kind] = map[string]int{}
			}
			kinds[kind][have]++
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		for _, have := range slices.Sorted(maps.Keys(kinds[kind])) {
			from := "no version"
			if have != "" {
				from = "version " + have
			}
			texts = append(texts, fmt.Sprintf("%s: %d nodes from %s to version %s", kind, kinds[kind][have], from,
				d.policy.Spec.Kinds[kind].Driver.Version))
		}
	}
	if p := d.policy.Spec.Partition; p != nil {
		texts = append(texts, fmt.Sprintf("%d taints on %d nodes", len(p.Taints), len(d.members)))
	}
	if len(texts) == 0 {
		return fmt.Sprintf("it would hold for %d nodes and change nothing on them", len(d.members))
	}
	return strings.Join(texts, "; ")
}

// sameSlots reports whether two statuses have the same slots. A change of slots is written at once.
func sameSlots(a, b Status) bool {
	return slices.EqualFunc(a.Slots, b.Slots, Slot.Equal)
}

// same reports whether two statuses say the same.
func same(a, b Status) bool {
	return sameSlots(a, b) && a.ObservedGeneration == b.ObservedGeneration && a.Nodes == b.Nodes &&
		slices.Equal(a.Blocked, b.Blocked) && slices.Equal(a.Definitions, b.Definitions) &&
		slices.EqualFunc(a.Conditions, b.Conditions, func(x, y Condition) bool {
			x.LastTransitionTime = y.LastTransitionTime
			return x == y
		})
}
