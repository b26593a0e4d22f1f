package policy

import (
	"maps"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/controller/devices"
)

// DeviceReports returns what nodes report about the devices whose history policies keep; false until the cluster has
// been read.
func (c *Controller) DeviceReports() (devices.Reports, bool) {
	nodes, synced := c.nodes.All()
	policies, known := c.policies.All()
	if !synced || !known {
		return devices.Reports{}, false
	}
	var asked []accel.Policy
	for _, p := range policies {
		if p.DeletionTimestamp == nil {
			asked = append(asked, p.asked())
		}
	}
	return deviceReports(asked, nodes), true
}

// deviceReports returns what nodes report about the devices whose history these policies keep.
func deviceReports(policies []accel.Policy, nodes map[string]*Node) devices.Reports {
	out := devices.Reports{Nodes: map[string]devices.Node{}, Keep: map[string]time.Duration{}}
	for _, p := range policies {
		if p.Spec.History == nil || p.Spec.DryRun {
			continue
		}
		for kind := range p.Spec.Kinds {
			out.Keep[kind] = max(out.Keep[kind], p.Spec.History.Keeps())
		}
	}
	if len(out.Keep) == 0 {
		return out
	}
	for name, n := range nodes {
		x := devices.Node{Up: n.condition("Ready").Status == "True"}
		by, _ := accel.GoverningBy(policies, n.Labels.has)
		for _, kind := range slices.Sorted(maps.Keys(by)) {
			text, there := n.Annotations.find(accel.HistoryAnnotation + kind)
			if !there || by[kind].Spec.History == nil {
				continue
			}
			if x.Texts == nil {
				x.Texts = map[string]string{}
			}
			x.Texts[kind] = text
		}
		out.Nodes[name] = x
	}
	return out
}
