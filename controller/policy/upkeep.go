package policy

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// upkeep adds the taints of the policies that govern each node, removes taints that it added for policies that no
// longer do, and ends cordons of nodes without a slot.
func (c *Controller) upkeep(ctx context.Context, verdicts []*verdict, held map[string]bool) {
	want := map[string][]accel.Taint{}
	for _, d := range verdicts {
		p := d.policy
		if p.Spec.Partition == nil || p.Spec.DryRun || p.DeletionTimestamp != nil || p.broken("partition") {
			continue
		}
		for name := range d.members {
			for _, t := range p.Spec.Partition.Taints {
				if !slices.ContainsFunc(want[name], func(x accel.Taint) bool {
					return x.Key == t.Key && x.Effect == t.Effect
				}) {
					want[name] = append(want[name], t)
				}
			}
		}
	}
	nodes, _ := c.nodes.All()
	names := slices.Sorted(maps.Keys(nodes))
	workqueue.ParallelizeUntil(ctx, together, len(names), func(i int) {
		n := nodes[names[i]]
		annotations, spec := keepTaints(n, want[names[i]])
		if _, marked := n.Annotations.find(drainAnnotation); marked && !held[names[i]] {
			annotations[drainAnnotation] = nil
		}
		if err := c.uncordon(ctx, n, held[names[i]], annotations, spec); err != nil {
			c.failed(ctx, "looking who has cordoned a node", names[i], err)
			return
		}
		if len(annotations) == 0 && len(spec) == 0 {
			return
		}
		if _, err := c.patchNode(ctx, n, object{"annotations": annotations}, spec); err != nil {
			c.failed(ctx, "keeping a node", names[i], err)
		}
	})
}

// uncordon adds what ends the cordon of a node whose slot is over. The cordon of somebody else stays: if a node that
// has a slot is not cordoned any more, somebody has ended acceld's cordon, and the next one is not acceld's.
func (c *Controller) uncordon(ctx context.Context, n *Node, held bool, annotations, spec object) error {
	by, marked := n.Annotations.find(cordonAnnotation)
	switch {
	case !marked, held && (by == "" || n.Spec.Unschedulable):
		return nil
	case held:
		annotations[cordonAnnotation] = ""
		return nil
	}
	annotations[cordonAnnotation] = nil
	if by == "" || !n.Spec.Unschedulable {
		return nil
	}
	foreign, err := c.cordonedByOthers(ctx, n)
	if err == nil && !foreign {
		spec["unschedulable"] = nil
	}
	return err
}

// cordonedByOthers reports whether somebody else has cordoned the node after acceld's cordon had ended, or as well. The
// API server keeps who has set a field.
func (c *Controller) cordonedByOthers(ctx context.Context, n *Node) (bool, error) {
	var whole corev1.Node
	if err := c.api.get(ctx, nodesPath+"/"+n.Name, nil, &whole); err != nil {
		return false, err
	}
	for _, entry := range whole.ManagedFields {
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, owns := fields.Spec["f:unschedulable"]; owns && entry.Manager != fieldManager {
			return true, nil
		}
	}
	return false, nil
}

// maxMarks is the size of the longest mark of the controller that is read, in bytes: taints that it added, or the
// outcome of a validation.
const maxMarks = 16 << 10

// added returns the taints that acceld added to the node. If that cannot be read, there are none: they stay.
func (n *Node) added() (taints []accel.Taint) {
	text := n.Annotations.get(taintsAnnotation)
	if len(text) > maxMarks || json.Unmarshal([]byte(text), &taints) != nil {
		return nil
	}
	return taints
}

// keepTaints returns the annotations and fields to change so that a node has the wanted taints, and none that acceld
// added earlier and no longer wants. A taint that somebody else added or changed is left alone.
func keepTaints(n *Node, want []accel.Taint) (annotations, spec object) {
	annotations, spec = object{}, object{}
	text, marked := n.Annotations.find(taintsAnnotation)
	if len(want) == 0 && !marked {
		return annotations, spec // as on most of thousands of nodes
	}
	mine := n.added()
	is := func(t accel.Taint) func(taint) bool {
		return func(x taint) bool { return x.Key == t.Key && x.Effect == t.Effect }
	}
	taints, owned := slices.Clone(n.Spec.Taints), []accel.Taint{}
	for _, t := range mine {
		if i := slices.IndexFunc(taints, is(t)); i >= 0 && taints[i].Taint == t && !slices.Contains(want, t) {
			taints = slices.Delete(taints, i, i+1)
		}
	}
	for _, t := range want {
		i := slices.IndexFunc(taints, is(t))
		switch {
		case i < 0:
			taints, owned = append(taints, taint{Taint: t}), append(owned, t)
		case slices.Contains(mine, t):
			owned = append(owned, t)
		}
	}
	if !slices.Equal(taints, n.Spec.Taints) {
		spec["taints"] = taints
	}
	b, err := json.Marshal(owned)
	switch {
	case err != nil:
	case len(owned) == 0 && marked:
		annotations[taintsAnnotation] = nil
	case len(owned) > 0 && string(b) != text:
		annotations[taintsAnnotation] = string(b)
	}
	return annotations, spec
}

// mark adds the finalizer to policies that leave traces on nodes, and removes it from deleted policies whose traces
// are gone. It also sets the annotation to the digest of the definitions in the status, which was written first, so
// that agents notice a change.
func (c *Controller) mark(ctx context.Context, p *Policy) {
	changes := object{}
	marked := slices.Contains(p.Finalizers, finalizer)
	leaves := !p.Spec.DryRun && (p.Spec.Partition != nil || p.Spec.Upgrade != nil || p.Spec.Repair != nil)
	switch {
	case p.DeletionTimestamp == nil && leaves && !marked:
		changes["finalizers"] = append(slices.Clone(p.Finalizers), finalizer)
	case p.DeletionTimestamp != nil && marked && len(p.Status.Slots) == 0 && (!c.again.Load() || c.undone(p)):
		changes["finalizers"] = slices.DeleteFunc(slices.Clone(p.Finalizers), func(s string) bool {
			return s == finalizer
		})
	}
	want := digest(p.Status.Definitions)
	if p.DeletionTimestamp == nil && p.Annotations[accel.DefinitionsAnnotation] != want {
		changes["annotations"] = object{accel.DefinitionsAnnotation: want}
		if want == "" {
			changes["annotations"] = object{accel.DefinitionsAnnotation: nil}
		}
	}
	if len(changes) == 0 {
		return
	}
	changes["resourceVersion"] = p.ResourceVersion
	answer := &Policy{}
	if err := c.api.patch(ctx, kube.PoliciesPath+"/"+p.Name, object{"metadata": changes}, answer); err != nil {
		c.failed(ctx, "marking a policy", p.Name, err)
		return
	}
	if answer.DeletionTimestamp == nil {
		c.policies.Put(answer)
	}
}

// undone reports whether no node has a cordon or a taint for the policy, and none of its classes exists. Another policy
// may want the same: release asks only after a write has failed, which may have been of this policy.
func (c *Controller) undone(p *Policy) bool {
	var taints []accel.Taint
	if part := p.Spec.Partition; part != nil {
		taints = part.Taints
		classes, _ := c.classes.All()
		if part.PriorityClasses != nil && slices.ContainsFunc(part.PriorityClasses.All(),
			func(x accel.PriorityClass) bool { return classes[x.Name] != nil }) {
			return false
		}
	}
	nodes, _ := c.nodes.All()
	for _, n := range nodes {
		added := n.added()
		if n.Annotations.get(cordonAnnotation) == p.Name || n.Annotations.get(drainAnnotation) != "" ||
			slices.ContainsFunc(taints, func(t accel.Taint) bool { return slices.Contains(added, t) }) {
			return false
		}
	}
	return true
}

// agent is the pod of an agent.
type agent struct {
	kube.Identity `json:"metadata"`
	Spec          struct {
		NodeName string `json:"nodeName,omitempty"`
	} `json:"spec"`
}

// UnmarshalJSON reads an agent. There are as many as nodes, all in one namespace.
func (a *agent) UnmarshalJSON(b []byte) error {
	type plain agent
	if err := json.Unmarshal(b, (*plain)(a)); err != nil {
		return err
	}
	a.Namespace = once(a.Namespace)
	return nil
}

// agentSelector selects the pods of agents in their namespace.
const agentSelector = "app.kubernetes.io/name=acceld"

// Same reports whether two versions of a pod are equal for this package.
func (a *agent) Same(o *agent) bool { return a.Spec.NodeName == o.Spec.NodeName }

// gone is how long a node must be without an agent before its leftovers are removed. It is longer than replacing the
// DaemonSet takes.
const gone = 10 * time.Minute

// clearAway removes labels, condition, cards with their totals, and startup taint from nodes whose agent ran in a pod
// that no longer exists: nobody else would correct them. An agent that comes back writes them again.
func (c *Controller) clearAway(ctx context.Context, nodes map[string]*Node, agents map[string]*agent, due *due) {
	has := map[string]bool{}
	for _, a := range agents {
		has[a.Spec.NodeName] = true
	}
	for name, n := range nodes {
		if has[name] || n.Annotations.get(kube.OriginAnnotation) != kube.OriginPod {
			delete(c.missing, name)
			continue
		}
		since, known := c.missing[name]
		if !known {
			since = due.now
			c.missing[name] = since
		}
		if at := since.Add(gone); due.now.Before(at) {
			due.on(at)
			continue
		}
		if err := c.clear(ctx, n); err != nil {
			c.failed(ctx, "clearing away what an agent left", name, err)
			continue
		}
		delete(c.missing, name)
		c.o.Log.Info("cleared away what an agent left", "node", name, "gone", gone)
	}
	maps.DeleteFunc(c.missing, func(name string, _ time.Time) bool { return nodes[name] == nil })
}

// clear cleans up one node. The origin annotation goes last, so that an interrupted cleanup is repeated.
func (c *Controller) clear(ctx context.Context, n *Node) error {
	whole := &corev1.Node{}
	if err := c.api.get(ctx, nodesPath+"/"+n.Name, nil, whole); err != nil {
		return err
	}
	if body := n.leftStatus(kube.LeftTotals(whole)); body != nil {
		answer := &Node{}
		if err := c.api.patch(ctx, nodesPath+"/"+n.Name+"/status", body, answer); err != nil {
			return err
		}
		c.nodes.Put(answer)
		n = answer
	}
	labels := object{}
	for key := range n.Labels.keys(kube.Prefix) {
		if kube.Ours(key) {
			labels[key] = nil
		}
	}
	annotations := object{kube.OriginAnnotation: nil, accel.CardsAnnotation: nil, accel.RoomAnnotation: nil}
	for _, m := range n.Annotations {
		key, text := m.key, m.text
		// If the agent vanished during an upgrade, its report stays, and with it the slot: the state of the driver is
		// unknown.
		if strings.HasPrefix(key, accel.ReportAnnotation) &&
			!accel.ParseUpgradeReport(text).Acts() {
			annotations[key] = nil
		}
		// A repair ends with its agent, and nobody says any more which devices there are.
		if strings.HasPrefix(key, accel.ServedAnnotation) || strings.HasPrefix(key, accel.RepairAnnotation) ||
			strings.HasPrefix(key, accel.HistoryAnnotation) {
			annotations[key] = nil
		}
	}
	spec := object{}
	if taints := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t taint) bool {
		return t.Key == kube.TaintKey
	}); len(taints) < len(n.Spec.Taints) {
		spec["taints"] = taints
	}
	_, err := c.patchNode(ctx, n, object{"labels": labels, "annotations": annotations}, spec)
	return err
}
