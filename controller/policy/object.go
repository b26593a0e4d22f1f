package policy

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// Marks of the controller on nodes and other objects.
const (
	finalizer = kube.Prefix + "policy"
	// cordonAnnotation names the policy that asked for the cordon. It is empty if somebody has ended the cordon since,
	// until the node has no slot any more: a node is cordoned once in a slot.
	cordonAnnotation = accel.CordonAnnotation
	taintsAnnotation = kube.Prefix + "taints"    // the taints that acceld added, as JSON
	classLabel       = kube.Prefix + "partition" // on a priority class
)

// Policy is an AcceleratorPolicy.
type Policy struct {
	kube.Meta `json:"metadata"`
	Spec      accel.PolicySpec `json:"spec"`
	Status    Status           `json:"status"`
}

func (p *Policy) asked() accel.Policy {
	return accel.Policy{Name: p.Name, Created: p.CreationTimestamp, Spec: p.Spec, Named: p.Status.Definitions}
}

// Status is the status of a policy, as the controller writes it: a null removes an empty list.
type Status struct {
	// ObservedGeneration is the generation of the policy that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	Nodes              Nodes `json:"nodes"`
	// Blocked says why nodes are not as the policy asks, the most frequent reason first, with an example of each.
	Blocked []Blocked `json:"blocked"`
	// Slots are the nodes that may replace a driver now. Only the controller writes them.
	Slots []Slot `json:"slots"`
	// LastSlot is the start of the newest slot ever given. The next one begins later.
	LastSlot time.Time `json:"lastSlot,omitzero"`
	// Conditions say whether the policy is valid, and whether nodes are as it asks.
	Conditions []Condition `json:"conditions,omitempty"`
	// Definitions are those that the policy names, each as it was when last found valid.
	Definitions []accel.NamedDefinition `json:"definitions"`
}

// Nodes counts the nodes that the policy governs, in total and by progress.
type Nodes struct {
	// Matched is how many nodes the policy selects.
	Matched int `json:"matched"`
	// Ready is how many of them are as the policy asks.
	Ready int `json:"ready"`
	// Upgrading is how many replace a driver now.
	Upgrading int `json:"upgrading"`
	// Waiting is how many are still to begin.
	Waiting int `json:"waiting"`
	// Failed is how many have failed.
	Failed int `json:"failed"`
}

// Blocked is a reason, the number of nodes that it blocks, and an example.
type Blocked struct {
	// Reason is the code, as docs/reasons.md lists them.
	Reason string `json:"reason"`
	// Count is how many nodes it blocks.
	Count int `json:"count"`
	// Example is what one of them says.
	Example string `json:"example"`
}

// Condition is a condition of a policy, in the form that the API uses for conditions.
type Condition struct {
	// Type is the name of the condition.
	Type string `json:"type"`
	// Status is True, False or Unknown.
	Status string `json:"status"`
	// Reason is a code for the last change of the status.
	Reason string `json:"reason"`
	// Message says more about it.
	Message string `json:"message"`
	// ObservedGeneration is the generation of the policy that the condition is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// LastTransitionTime is when the status changed last.
	LastTransitionTime time.Time `json:"lastTransitionTime"`
}

// Node holds what is kept of a node.
type Node struct {
	kube.Identity
	Labels      labels
	Annotations marks
	Spec        nodeSpec
	Status      nodeStatus
}

type nodeSpec struct {
	Unschedulable bool    `json:"unschedulable,omitempty"`
	Taints        []taint `json:"taints,omitempty"`
}

type nodeStatus struct {
	Conditions conditions
	// maintenance says who else works on the node.
	maintenance []accel.Maintenance
}

// conditions are the conditions of a node or a pod. Most nodes have the same ones.
type conditions []unique.Handle[nodeCondition]

// UnmarshalJSON reads the conditions of a pod.
func (all *conditions) UnmarshalJSON(b []byte) error {
	var list []nodeCondition
	err := json.Unmarshal(b, &list)
	for _, c := range list {
		*all = append(*all, unique.Make(c))
	}
	return err
}

type nodeCondition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Since is read of conditions that say that somebody works on a node.
	Since time.Time `json:"lastTransitionTime,omitzero"`
}

// taint is a taint with the fields that others set, which must be written back.
type taint struct {
	accel.Taint
	TimeAdded string `json:"timeAdded,omitempty"`
}

// nodeObject is a node as the API server writes it.
type nodeObject struct {
	Metadata kube.Meta `json:"metadata"`
	Spec     nodeSpec  `json:"spec"`
	Status   struct {
		Conditions []nodeCondition `json:"conditions"`
	} `json:"status"`
}

// UnmarshalJSON reads a node and drops what this package does not use: there are thousands of nodes.
func (n *Node) UnmarshalJSON(b []byte) error {
	var read nodeObject
	if err := json.Unmarshal(b, &read); err != nil {
		return err
	}
	n.Adopt(&read.Metadata)
	n.Labels = packed(n.Name, read.Metadata.Labels)
	n.Annotations = marked(read.Metadata.Annotations, func(key string) bool {
		return strings.HasPrefix(key, kube.Prefix) && key != accel.CardsAnnotation && key != accel.RoomAnnotation
	})
	n.Spec, n.Status = read.Spec, statusOf(read.Status.Conditions)
	return nil
}

// statusOf takes from the conditions of a node what this package uses.
func statusOf(all []nodeCondition) (s nodeStatus) {
	s.maintenance, all = takeMaintenance(all)
	all = slices.DeleteFunc(all, func(c nodeCondition) bool {
		return c.Type != "Ready" && c.Type != kube.ConditionType && !c.raw().Own()
	})
	s.Conditions = make(conditions, len(all))
	for i, c := range all {
		if c.Since = (time.Time{}); c.Type != kube.ConditionType || c.Status == "True" {
			c.Reason, c.Message = "", ""
		}
		if c.Message = shorten(c.Message); !accel.Reason(c.Reason).Plain() {
			c.Reason = "Unclear"
		}
		s.Conditions[i] = unique.Make(c)
	}
	return s
}

// Same reports whether two versions of a node are equal for this package. Most updates change nothing here: kubelets
// report every few minutes, Kubernetes' own controllers write annotations, which UnmarshalJSON drops, and remove
// their taints by the thousand when a cluster grows.
func (n *Node) Same(o *Node) bool {
	return n.UID == o.UID && n.Labels.same(o.Labels) && slices.Equal(n.Annotations,
		o.Annotations) &&
		n.Spec.Unschedulable == o.Spec.Unschedulable && slices.Equal(chosen(n.Spec.Taints), chosen(o.Spec.Taints)) &&
		slices.Equal(n.Status.Conditions, o.Status.Conditions) &&
		slices.Equal(n.Status.maintenance, o.Status.maintenance)
}

// chosen returns the taints that somebody decided on. The others follow from the node's conditions, which are read
// directly.
func chosen(taints []taint) []taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t taint) bool { return slices.Contains(consequences(), t.Key) })
}

// consequences are the taints that Kubernetes' node lifecycle controller derives from conditions
// (kubernetes.io/docs/reference/labels-annotations-taints).
func consequences() []string {
	return []string{
		"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable",
		"node.kubernetes.io/network-unavailable",
		"node.kubernetes.io/memory-pressure", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/pid-pressure",
	}
}

// of returns the condition of a type; the zero value if there is none.
func (all conditions) of(kind string) nodeCondition {
	for _, h := range all {
		if c := h.Value(); c.Type == kind {
			return c
		}
	}
	return nodeCondition{}
}

func (n *Node) condition(kind string) nodeCondition { return n.Status.Conditions.of(kind) }

func (n *Node) label(p accel.Published, kind string) string {
	return n.Labels.get(kube.Prefix + string(p) + "-" + kind)
}

// has reports whether the node has a kind of accelerator or reports something about one.
func (n *Node) has(kind string) bool {
	return n.label(accel.DriverContainer, kind) != "" || n.Labels.get(kube.Prefix+kind+".count") != "" ||
		n.upgradeReport(kind) != accel.UpgradeReport{}
}

func (n *Node) upgradeReport(kind string) accel.UpgradeReport {
	return accel.ParseUpgradeReport(n.Annotations.get(accel.ReportAnnotation + kind))
}

func (n *Node) granted(kind string) accel.Grant {
	return accel.ParseGrant(n.Annotations.get(accel.GrantAnnotation + kind))
}

// knows reports whether the node was told of a slot, or of a later one.
func (n *Node) knows(s Slot) bool { return n != nil && !n.told(s).Before(s.Since) }

// told is the start of the last slot of the kind and purpose of s that the node was told of, or that was taken back.
func (n *Node) told(s Slot) time.Time {
	if s.Repair {
		return n.repairPermit(s.Kind).Since
	}
	return n.granted(s.Kind).Since
}

// permitted reports whether the node is told that it has a slot of the kind and purpose of s.
func (n *Node) permitted(s Slot) bool {
	if s.Repair {
		return n.repairPermit(s.Kind).Given
	}
	return n.granted(s.Kind).Version != ""
}

// notice is the annotation that tells the node of its slot, or of the end of it.
func (s Slot) notice(given bool) object {
	if s.Repair {
		return object{accel.AllowRepairAnnotation + s.Kind: accel.RepairPermit{Given: given, Since: s.Since}.String()}
	}
	g := accel.Grant{Since: s.Since}
	if given {
		g.Version = s.Version
	}
	return object{accel.GrantAnnotation + s.Kind: g.String()}
}

// acts reports whether the node may be acting on a slot: it replaces the driver of the kind, or repairs devices.
func (n *Node) acts(s Slot) bool {
	if s.Repair {
		return n.repairReport(s.Kind).Acts()
	}
	return n.upgradeReport(s.Kind).Acts()
}

// actsAnyhow reports whether the node may be replacing the driver of any kind.
func (n *Node) actsAnyhow() bool {
	for _, m := range n.Annotations {
		if strings.HasPrefix(m.key, accel.ReportAnnotation) && accel.ParseUpgradeReport(m.text).Acts() {
			return true
		}
	}
	return false
}

// serves reports whether the kind's accelerators can be used.
func (n *Node) serves(kind string) bool {
	plugin := n.label(accel.DevicePlugin, kind)
	return accel.Phase(n.label(accel.DriverContainer, kind)).Reached() &&
		(plugin == "" || accel.Phase(plugin).Reached())
}

// up reports whether the node runs pods and takes new ones. A cordon by acceld does not count.
func (n *Node) up() bool {
	return n.condition("Ready").Status == "True" && (!n.Spec.Unschedulable ||
		n.Annotations.get(cordonAnnotation) != "")
}

// member returns the node as a member of the rollout of version.
func (n *Node) member(kind, version string, r accel.Rollout) candidate {
	w := n.upgradeReport(kind)
	m := candidate{
		Name: n.Name, Version: n.Labels.get(kube.Prefix + kind + ".driver-version"), Serving: n.serves(kind),
		Ready: n.up(), Phase: w.Phase, For: w.Version,
		Canary:  r.Canary != nil && n.Labels.has(r.Canary.NodeSelector),
		Skip:    slices.ContainsFunc(r.SkipLabels, func(key string) bool { return n.Labels.get(key) == "true" }),
		Drained: n.Annotations.get(drainAnnotation) != "",
	}
	if g := n.granted(kind); g.Version == "" {
		m.TakenBack = g.Since
	} else {
		m.Granted = g.Since
	}
	if version != "" && m.Version == kube.LabelValue(version) {
		m.Version = version
	}
	return m
}
