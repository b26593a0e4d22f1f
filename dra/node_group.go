package dra

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// Node is what a template needs of a v1 Node. Quantities are kept as text.
type Node struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Metadata   kube.Meta `json:"metadata"`
	Spec       struct {
		Taints []NodeTaint `json:"taints,omitempty"`
	} `json:"spec,omitzero"`
	Status NodeStatus `json:"status,omitzero"`
}

// NodeTaint is a taint of a node.
type NodeTaint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// NodeStatus is what a node has.
type NodeStatus struct {
	Capacity    map[string]string `json:"capacity,omitempty"`
	Allocatable map[string]string `json:"allocatable,omitempty"`
	Conditions  []NodeCondition   `json:"conditions,omitempty"`
	NodeInfo    struct {
		Architecture    string `json:"architecture,omitempty"`
		OperatingSystem string `json:"operatingSystem,omitempty"`
	} `json:"nodeInfo,omitzero"`
}

// NodeCondition is a condition of a node.
type NodeCondition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
}

// NodeGroup says what each node of a group will have, for autoscalers that have no node of it to look at.
type NodeGroup struct {
	// Annotations are those that cluster-autoscaler reads on the MachineDeployment, MachineSet or MachinePool of
	// Cluster API.
	Annotations map[string]string `json:"annotations"`
	// Tags are those that it reads on the groups of clouds.
	Tags map[string]string `json:"tags"`
	// Node and Slices are what a node of the group will look like to the scheduler.
	Node   Node    `json:"node"`
	Slices []Slice `json:"resourceSlices,omitempty"`
	// Notes say what an autoscaler will not see by the annotations.
	Notes []string `json:"notes,omitempty"`
}

// The names that cluster-autoscaler reads: annotations from cloudprovider/clusterapi, tags from cloudprovider/aws.
const (
	capacityPrefix = "capacity.cluster-autoscaler.kubernetes.io/"
	tagPrefix      = "k8s.io/cluster-autoscaler/node-template/"
)

// TemplateOf makes the template of a node group from a ready node and its slices. The name stands for the nodes to
// come. A node that is not ready, or that has a device which is not offered, is refused: an autoscaler that expects
// less than a new node will have creates no node for pods that would fit.
func TemplateOf(node Node, all []Slice, name string) (NodeGroup, error) {
	pools, notes, err := poolsOf(node.Metadata.Name, all)
	if err == nil {
		err = errors.Join(unready(node), offered(pools))
	}
	if err != nil {
		return NodeGroup{}, fmt.Errorf("node %q cannot be a template: %w", node.Metadata.Name, err)
	}
	if _, found := condition(node, kube.ConditionType); !found {
		notes = append(notes, "the node has no condition "+kube.ConditionType+", so acceld has not confirmed that its "+
			"accelerators are ready")
	}
	if named := namedAfter(node); len(named) > 0 {
		notes = append(notes, "these labels have the node's name in them and are left out: "+strings.Join(named, ", "))
	}
	g := NodeGroup{Node: future(node, name), Notes: notes}
	for _, pool := range pools {
		for i, s := range pool {
			g.Slices = append(g.Slices, futureSlice(s, name, i, len(pool)))
		}
	}
	g.describe()
	return g, nil
}

// unready returns why a node is not ready to be a template.
func unready(n Node) error {
	if c, _ := condition(n, "Ready"); c.Status != "True" {
		return errors.New("it is not ready")
	}
	if c, found := condition(n, kube.ConditionType); found && c.Status != "True" {
		return fmt.Errorf("its accelerators are not ready: %s", cmp.Or(c.Message, "no reason is given"))
	}
	for _, name := range deviceResources(n) {
		if all, free := amount(n.Status.Capacity[name]), amount(n.Status.Allocatable[name]); all != free {
			return fmt.Errorf("%d of %d %s are not allocatable", all-free, all, name)
		}
	}
	return nil
}

func condition(n Node, name string) (NodeCondition, bool) {
	i := slices.IndexFunc(n.Status.Conditions, func(c NodeCondition) bool { return c.Type == name })
	if i < 0 {
		return NodeCondition{}, false
	}
	return n.Status.Conditions[i], true
}

// deviceResources returns the extended resources of a node, sorted.
func deviceResources(n Node) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(n.Status.Capacity)) {
		domain, _, extended := strings.Cut(name, "/")
		if extended && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") {
			out = append(out, name)
		}
	}
	return out
}

// amount returns a quantity as a whole number, rounded up. The text was checked when it was read.
func amount(text string) int64 {
	q, err := resource.ParseQuantity(cmp.Or(text, "0"))
	if err != nil {
		return 0
	}
	return q.Value()
}

// poolsOf returns the slices of acceld's drivers on a node by pool, each pool with all its slices of its newest
// generation and in order. It fails if some are missing.
func poolsOf(node string, all []Slice) (pools [][]Slice, notes []string, err error) {
	byDriver := map[string][]Slice{}
	for _, s := range all {
		if s.Spec.NodeName != node {
			continue
		}
		byDriver[s.Spec.Driver] = append(byDriver[s.Spec.Driver], s)
	}
	for _, driver := range slices.Sorted(maps.Keys(byDriver)) {
		if !strings.HasSuffix(driver, domain) {
			notes = append(notes, fmt.Sprintf("the slices of driver %q are not acceld's and are left out", driver))
			continue
		}
		pool := byDriver[driver]
		newest := int64(0)
		for _, s := range pool {
			newest = max(newest, s.Spec.Pool.Generation)
		}
		pool = slices.DeleteFunc(pool, func(s Slice) bool { return s.Spec.Pool.Generation != newest })
		slices.SortFunc(pool, func(a, b Slice) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
		if want := pool[0].Spec.Pool.Count; int64(len(pool)) != want {
			return nil, nil, fmt.Errorf("driver %q has %d of %d slices", driver, len(pool), want)
		}
		pools = append(pools, pool)
	}
	return pools, notes, nil
}

// offered returns an error for the first device that new claims cannot get. A partition that the device is not divided
// into now is none: it will be so on a new node too.
func offered(pools [][]Slice) error {
	for _, pool := range pools {
		for _, s := range pool {
			for _, d := range s.Spec.Devices {
				for _, t := range d.Taints {
					if t.Value != string(accel.PartitionAbsent) {
						return fmt.Errorf("device %q of driver %q has the taint %s=%s", d.Name, s.Spec.Driver, t.Key, t.Value)
					}
				}
			}
		}
	}
	return nil
}

// hostname is the label that each node has with a value of its own.
const hostname = "kubernetes.io/hostname"

// namedAfter returns the other labels that have the name of a node, or its first part, as a word in their value.
func namedAfter(n Node) (keys []string) {
	short, _, _ := strings.Cut(n.Metadata.Name, ".")
	for _, key := range slices.Sorted(maps.Keys(n.Metadata.Labels)) {
		value := n.Metadata.Labels[key]
		if key != hostname && (hasWord(value, n.Metadata.Name) || hasWord(value, short)) {
			keys = append(keys, key)
		}
	}
	return keys
}

// hasWord reports whether a word is in a text and neither letters nor digits are next to it.
func hasWord(text, word string) bool {
	letter := func(s string) bool { // at its beginning; the values of labels are ASCII
		return unicode.IsLetter(rune(s[0])) || unicode.IsDigit(rune(s[0]))
	}
	for at := 0; word != "" && at < len(text); {
		i := strings.Index(text[at:], word)
		if i < 0 {
			return false
		}
		begin, end := at+i, at+i+len(word)
		if (begin == 0 || !letter(text[begin-1:])) && (end == len(text) || !letter(text[end:])) {
			return true
		}
		at = begin + 1
	}
	return false
}

// future returns a node as a node of its group will be: without what belongs to this one alone. What is allocatable
// counts, because an autoscaler takes the capacity of a template for what pods get.
func future(n Node, name string) Node {
	out := Node{APIVersion: "v1", Kind: "Node"}
	out.Metadata.Name, out.Metadata.Labels = name, map[string]string{}
	for key, value := range n.Metadata.Labels {
		if key != hostname && !slices.Contains(namedAfter(n), key) {
			out.Metadata.Labels[key] = value
		}
	}
	for _, t := range n.Spec.Taints {
		if !passing(t.Key) {
			out.Spec.Taints = append(out.Spec.Taints, t)
		}
	}
	out.Status.NodeInfo = n.Status.NodeInfo
	out.Status.Conditions = []NodeCondition{{Type: "Ready", Status: "True"}}
	out.Status.Allocatable = maps.Clone(n.Status.Allocatable)
	out.Status.Capacity = maps.Clone(n.Status.Allocatable)
	return out
}

// passing reports whether a taint is about the moment and not about the group: the startup taint, those of the node's
// state, and those of autoscalers.
func passing(key string) bool {
	return key == kube.TaintKey || strings.HasPrefix(key, "node.kubernetes.io/") ||
		strings.HasPrefix(key, "node.cloudprovider.kubernetes.io/") ||
		slices.Contains([]string{"ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"}, key)
}

// private are the attributes that belong to one device alone.
func private() []string {
	return []string{"serial", "uuid", nicPrefix + "NodeGUID", nicPrefix + "SystemGUID"}
}

// futureSlice returns a slice as a new node will publish it.
func futureSlice(s Slice, name string, i, count int) Slice {
	out := Slice{APIVersion: apiVersion, Kind: "ResourceSlice", Spec: s.Spec}
	out.Metadata.Name = sliceName(name, s.Spec.Driver, i)
	out.Spec.NodeName = name
	out.Spec.Pool = Pool{Name: name, Generation: 1, Count: int64(count)}
	out.Spec.Devices = slices.Clone(s.Spec.Devices)
	for i, d := range out.Spec.Devices {
		d.Attributes = maps.Clone(d.Attributes)
		for _, key := range private() {
			delete(d.Attributes, key)
		}
		d.Taints = timeless([]Device{d})[0].Taints
		out.Spec.Devices[i] = d
	}
	return out
}

// describe adds annotations, tags and notes for the node and its slices.
func (g *NodeGroup) describe() {
	g.Annotations, g.Tags = map[string]string{}, map[string]string{}
	note := func(format string, a ...any) { g.Notes = append(g.Notes, fmt.Sprintf(format, a...)) }
	for name, key := range map[string]string{
		"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeral-disk", "pods": "maxPods",
	} {
		if value := g.Node.Status.Allocatable[name]; value != "" {
			g.Annotations[capacityPrefix+key] = value
		}
	}
	for _, must := range []string{"cpu", "memory"} {
		if g.Annotations[capacityPrefix+must] == "" {
			note("%s is not known, and cluster-autoscaler needs the annotation %s for Cluster API", must, capacityPrefix+must)
		}
	}
	g.Annotations[capacityPrefix+"labels"] = joined(g.Node.Metadata.Labels)
	var taints []string
	for _, t := range g.Node.Spec.Taints {
		taints = append(taints, t.Key+"="+t.Value+":"+t.Effect)
		g.Tags[tagPrefix+"taint/"+t.Key] = t.Value + ":" + t.Effect
	}
	g.Annotations[capacityPrefix+"taints"] = strings.Join(taints, ",")
	for key, value := range g.Node.Metadata.Labels {
		g.Tags[tagPrefix+"label/"+key] = value
	}
	g.devices(note)
	maps.DeleteFunc(g.Annotations, func(_, value string) bool { return value == "" })
}

// devices adds what is told about devices. The annotations have room for one resource, or one driver with a number of
// devices that have no attributes.
func (g *NodeGroup) devices(note func(format string, a ...any)) {
	resources := deviceResources(g.Node)
	for _, name := range resources {
		g.Tags[tagPrefix+"resources/"+name] = g.Node.Status.Allocatable[name]
	}
	whole, drivers := map[string]int{}, []string(nil)
	for _, s := range g.Slices {
		if !slices.Contains(drivers, s.Spec.Driver) {
			drivers = append(drivers, s.Spec.Driver)
		}
		for _, d := range s.Spec.Devices {
			if d.Attributes["parent"].String == nil {
				whole[s.Spec.Driver]++
			}
		}
	}
	const one = "the annotations have room for one: %s is left out; see node and resourceSlices"
	switch {
	case len(resources) > 0:
		g.Annotations[capacityPrefix+"gpu-type"] = resources[0]
		g.Annotations[capacityPrefix+"gpu-count"] = strconv.FormatInt(amount(g.Node.Status.Allocatable[resources[0]]), 10)
		for _, more := range slices.Concat(resources[1:], drivers) {
			note(one, more)
		}
	case len(drivers) > 0:
		g.Annotations[capacityPrefix+"dra-driver"] = drivers[0]
		g.Annotations[capacityPrefix+"gpu-count"] = strconv.Itoa(whole[drivers[0]])
		for _, more := range drivers[1:] {
			note(one, more)
		}
		note("cluster-autoscaler makes devices of its own from dra-driver and gpu-count: a claim that selects by " +
			"attributes or capacities in resourceSlices finds none of them")
	}
}

// joined writes labels as the annotation has them.
func joined(labels map[string]string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, key+"="+labels[key])
	}
	return strings.Join(out, ",")
}
