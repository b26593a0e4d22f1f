package policy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// Overview is what is known of a cluster at one moment, for people. It is derived each time, and no decision uses it.
type Overview struct {
	// Nodes are those that have accelerators or report something about them, by name.
	Nodes []NodeView
	// Policies are in the order of precedence, each with its last status.
	Policies []PolicyView
	// Problem says why the cluster cannot be read at present; empty while the watches work.
	Problem string
}

// NodeView is a node as its labels, annotations and conditions describe it.
type NodeView struct {
	Name  string
	Kinds []KindView
	// Up is whether the node runs pods. Cordoned is whether it takes no new ones, and CordonedBy the policy that
	// asked for that.
	Up, Cordoned bool
	CordonedBy   string
	// Ready is the condition AcceleratorsReady: "True", "False", or empty if no agent has written it. Reason and
	// Message say why it is not True.
	Ready, Reason, Message string
	// Maintenance says who else works on the node.
	Maintenance []string
}

// KindView is one kind of accelerator on a node.
type KindView struct {
	Kind string
	// Count, Version, Product and Memory (MiB) are the values of the labels; empty if there is none.
	Count, Version, Product, Memory string
	// Sick and Withheld are how many devices are not usable, or well and offered to nobody, as far as their driver
	// serves.
	Sick, Withheld int
	// States are the published states.
	States map[accel.Published]accel.Phase
	// UpgradeReport is the node's upgrade report, and Granted the version that it may upgrade to.
	UpgradeReport accel.UpgradeReport
	Granted       string
	// RepairReport is the node's report about devices that need a reset, and MayRepair whether a policy lets it begin.
	RepairReport accel.RepairReport
	MayRepair    bool
	// Policy governs the kind on this node; empty if none does.
	Policy string
}

// PolicyView is a policy and its progress.
type PolicyView struct {
	Name   string
	Kinds  []string
	DryRun bool
	Status Status
}

// Overview returns what is known now; false until the cluster has been read.
func (c *Controller) Overview() (Overview, bool) {
	nodes, synced := c.nodes.All()
	policies, known := c.policies.All()
	if !synced || !known {
		return Overview{}, false
	}
	var out Overview
	if err := cmp.Or(c.nodes.Err(), c.policies.Err()); err != nil {
		out.Problem = err.Error()
	}
	var asked []accel.Policy
	for _, p := range ordered(policies) {
		asked = append(asked, p.asked())
		out.Policies = append(out.Policies, PolicyView{
			Name: p.Name, Kinds: slices.Sorted(maps.Keys(p.Spec.Kinds)), DryRun: p.Spec.DryRun, Status: p.Status,
		})
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if v, ok := nodes[name].view(asked); ok {
			out.Nodes = append(out.Nodes, v)
		}
	}
	return out, true
}

// view returns the node for people; false if it has nothing to do with accelerators.
func (n *Node) view(policies []accel.Policy) (NodeView, bool) {
	c := n.condition(kube.ConditionType)
	v := NodeView{
		Name: n.Name, Up: n.condition("Ready").Status == "True", Cordoned: n.Spec.Unschedulable,
		CordonedBy: n.Annotations.get(cordonAnnotation),
		Ready:      c.Status, Reason: c.Reason, Message: c.Message,
	}
	for _, m := range n.Status.maintenance {
		v.Maintenance = append(v.Maintenance, m.String())
	}
	by, _ := accel.GoverningBy(policies, n.Labels.has)
	for _, kind := range n.kinds() {
		k := KindView{
			Kind: kind, Count: n.Labels.get(kube.Prefix + kind + ".count"),
			Version: n.Labels.get(kube.Prefix + kind + ".driver-version"),
			Product: n.Labels.get(kube.Prefix + kind + ".product"), Memory: n.Labels.get(kube.Prefix + kind + ".memory"),
			Sick:     number(n.Labels.get(kube.Prefix + kind + ".sick")),
			Withheld: number(n.Labels.get(kube.Prefix + kind + ".withheld")),
			States:   map[accel.Published]accel.Phase{}, UpgradeReport: n.upgradeReport(kind),
			Granted: n.granted(kind).Version, RepairReport: n.repairReport(kind),
			MayRepair: n.repairPermit(kind).Given,
		}
		for _, p := range accel.PublishedStates() {
			if phase := n.label(p, kind); phase != "" {
				k.States[p] = accel.Phase(phase)
			}
		}
		if p := by[kind]; p != nil {
			k.Policy = p.Name
		}
		v.Kinds = append(v.Kinds, k)
	}
	return v, len(v.Kinds) > 0
}

// number returns a count of devices that a label says; 0 for any other text, and for more than a host has.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > mostDevices {
		return 0
	}
	return n
}

// mostDevices is more than the devices of one kind on a host.
const mostDevices = 4096

// Devices returns how many devices the node has, as it says; 0 if that cannot be read.
func (k KindView) Devices() int { return number(k.Count) }

// kinds returns the kinds that the node has or reports something about.
func (n *Node) kinds() []string {
	found := map[string]bool{}
	for key := range n.Labels.keys(kube.Prefix) {
		name := strings.TrimPrefix(key, kube.Prefix)
		if kind, ok := strings.CutSuffix(name, ".count"); ok {
			found[kind] = true
		}
		for _, p := range accel.PublishedStates() {
			if kind, ok := strings.CutPrefix(name, string(p)+"-"); ok {
				found[kind] = true
			}
		}
	}
	for _, m := range n.Annotations {
		if kind, ok := strings.CutPrefix(m.key, accel.ReportAnnotation); ok &&
			n.upgradeReport(kind) != (accel.UpgradeReport{}) {
			found[kind] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
