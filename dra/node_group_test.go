package dra

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// readyNode is a node with two devices that the kubelet gives out.
func readyNode(change ...func(*Node)) Node {
	n := Node{APIVersion: "v1", Kind: "Node", Metadata: kube.Meta{
		Identity: kube.Identity{Name: "gpu-17", UID: "u", ResourceVersion: "9"}, Labels: map[string]string{
			"kubernetes.io/hostname": "gpu-17", "kubernetes.io/arch": "amd64", "acceld.dev/qemu-edu.count": "2",
			"example.com/machine": "rack4-gpu-17", "example.com/other": "gpu-170",
		},
	}}
	n.Spec.Taints = []NodeTaint{
		{"nvidia.com/gpu", "present", "NoSchedule"},
		{"dedicated", "", "NoExecute"},
		{"node.kubernetes.io/unschedulable", "", "NoSchedule"},
		{kube.TaintKey, "", "NoSchedule"},
	}
	n.Status.Capacity = map[string]string{
		"cpu": "96", "memory": "528280792Ki", "pods": "110", "qemu.org/edu": "2", "hugepages-2Mi": "0",
		"attachable-volumes.kubernetes.io/x": "9",
	}
	n.Status.Allocatable = map[string]string{"cpu": "95800m", "memory": "500Gi", "pods": "110", "qemu.org/edu": "2"}
	n.Status.Conditions = []NodeCondition{{Type: "Ready", Status: "True"}, {Type: kube.ConditionType, Status: "True"}}
	n.Status.NodeInfo.Architecture = "amd64"
	for _, c := range change {
		c(&n)
	}
	return n
}

// publishedSlices are what a node with two devices publishes.
func publishedSlices(nodeName string, change ...func(*View)) []Slice {
	v := nearby(nil)
	v.Node = nodeName
	v.Accelerators[0].Serial = "S-1"
	v.Accelerators = append(v.Accelerators, edu(2))
	for _, c := range change {
		c(&v)
	}
	all := Slices(v)
	for i := range all {
		all[i].Spec.Pool.Generation = 7
		all[i].Metadata.UID = "u"
		all[i].Metadata.OwnerReferences = []kube.Owner{{Kind: "Node", Name: nodeName}}
	}
	return all
}

// TestTemplateOf: annotations, tags and node say what nodes of the group have, and nothing that this node alone has.
func TestTemplateOf(t *testing.T) {
	g, err := TemplateOf(readyNode(), nil, "template")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{
		capacityPrefix + "cpu": "95800m", capacityPrefix + "memory": "500Gi", capacityPrefix + "maxPods": "110",
		capacityPrefix + "labels":   "acceld.dev/qemu-edu.count=2,example.com/other=gpu-170,kubernetes.io/arch=amd64",
		capacityPrefix + "taints":   "nvidia.com/gpu=present:NoSchedule,dedicated=:NoExecute",
		capacityPrefix + "gpu-type": "qemu.org/edu", capacityPrefix + "gpu-count": "2",
	}, g.Annotations); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{
		tagPrefix + "label/acceld.dev/qemu-edu.count": "2", tagPrefix + "label/kubernetes.io/arch": "amd64",
		tagPrefix + "label/example.com/other": "gpu-170",
		tagPrefix + "taint/nvidia.com/gpu":    "present:NoSchedule", tagPrefix + "taint/dedicated": ":NoExecute",
		tagPrefix + "resources/qemu.org/edu": "2",
	}, g.Tags); diff != "" {
		t.Error(diff)
	}
	text, err := json.Marshal(g)
	if err != nil || strings.Contains(strings.ReplaceAll(string(text), "gpu-170", ""), "gpu-17") || len(g.Notes) != 1 ||
		!strings.HasSuffix(g.Notes[0], "left out: example.com/machine") {
		t.Errorf("%v, %v: %s", err, g.Notes, text)
	}
	roundTrip[corev1.Node](t, g.Node)
}

// TestTemplateOfSlices: the slices are complete, in one generation, and without names of this node and its devices.
func TestTemplateOfSlices(t *testing.T) {
	noPlugin := func(n *Node) { delete(n.Status.Capacity, "qemu.org/edu"); delete(n.Status.Allocatable, "qemu.org/edu") }
	all := publishedSlices("gpu-17")
	old := all[0]
	old.Spec.Pool.Generation = 6
	old.Metadata.Name = "gpu-17.qemu-edu.acceld.dev-004"
	foreign := Slice{Spec: SliceSpec{Driver: "gpu.nvidia.com", NodeName: "gpu-17", Pool: Pool{Count: 1}}}
	elsewhere := publishedSlices("gpu-18")
	g, err := TemplateOf(readyNode(noPlugin), slices.Concat(all, []Slice{old, foreign}, elsewhere), "template")
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Slices) != 1 || g.Slices[0].Metadata.Name != "template.qemu-edu.acceld.dev-000" ||
		g.Slices[0].Spec.Pool != (Pool{Name: "template", Generation: 1, Count: 1}) ||
		g.Slices[0].Spec.NodeName != "template" || g.Slices[0].Metadata.UID != "" ||
		g.Slices[0].Metadata.OwnerReferences != nil {
		t.Fatalf("%+v", g.Slices)
	}
	first := g.Slices[0].Spec.Devices[0].Attributes
	for _, gone := range private() {
		if _, there := first[gone]; there {
			t.Errorf("a new node is promised %s", gone)
		}
	}
	if *first["nicPath"].String != "port" || *first["kind"].String != "qemu-edu" {
		t.Errorf("%+v", first)
	}
	if all[0].Spec.Devices[0].Attributes["serial"].String == nil {
		t.Error("the slices that were read have changed")
	}
	if g.Annotations[capacityPrefix+"dra-driver"] != "qemu-edu.acceld.dev" ||
		g.Annotations[capacityPrefix+"gpu-count"] != "2" || g.Annotations[capacityPrefix+"gpu-type"] != "" {
		t.Errorf("%v", g.Annotations)
	}
	if notes := strings.Join(g.Notes, "; "); !strings.Contains(notes, `"gpu.nvidia.com" are not acceld's`) ||
		!strings.Contains(notes, "devices of its own") {
		t.Error(notes)
	}
	roundTrip[resourceapi.ResourceSlice](t, g.Slices[0])
}

// TestTemplateRefused: a node from which less would be expected than a new one has is no template, and the reason is
// named.
func TestTemplateRefused(t *testing.T) {
	condition := func(name, status, message string) func(*Node) {
		return func(n *Node) {
			is := func(c NodeCondition) bool { return c.Type == name }
			n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, is)
			if status != "" {
				n.Status.Conditions = append(n.Status.Conditions, NodeCondition{name, status, message})
			}
		}
	}
	half := publishedSlices("gpu-17")
	half[0].Spec.Pool.Count = 2
	for what, c := range map[string]struct {
		node Node
		all  []Slice
		says string
	}{
		"not ready":              {readyNode(condition("Ready", "False", "")), nil, "it is not ready"},
		"nothing said of it":     {readyNode(condition("Ready", "", "")), nil, "it is not ready"},
		"accelerators not ready": {readyNode(condition(kube.ConditionType, "False", "qemu-edu: no driver")), nil, "qemu-edu: no driver"},
		"a device withheld":      {readyNode(func(n *Node) { n.Status.Allocatable["qemu.org/edu"] = "1" }), nil, "1 of 2 qemu.org/edu"},
		"a device tainted":       {readyNode(), publishedSlices("gpu-17", func(v *View) { v.Accelerators[1] = sick(edu(2)) }), `device "0000-02-00-0" of driver "qemu-edu.acceld.dev" has the taint`},
		"a slice missing":        {readyNode(), half, "has 1 of 2 slices"},
	} {
		_, err := TemplateOf(c.node, c.all, "template")
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), `node "gpu-17"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	g, err := TemplateOf(readyNode(condition(kube.ConditionType, "", "")), nil, "template")
	if err != nil || !strings.Contains(strings.Join(g.Notes, ";"), "has no condition") {
		t.Errorf("unconfirmed: %v, %v", err, g.Notes)
	}
}

func TestHasWord(t *testing.T) {
	for _, c := range []struct {
		text, word string
		want       bool
	}{
		{"gpu-17", "gpu-17", true},
		{"rack4-gpu-17", "gpu-17", true},
		{"gpu-17_x", "gpu-17", true},
		{"gpu-170", "gpu-17", false},
		{"xgpu-17", "gpu-17", false},
		{"gpu-170.gpu-17", "gpu-17", true},
		{"", "gpu-17", false},
		{"gpu-17", "", false},
	} {
		if hasWord(c.text, c.word) != c.want {
			t.Errorf("%q in %q is %v", c.word, c.text, !c.want)
		}
	}
}

// TestPlanned: what definitions say a node will have, and what they do not say.
func TestPlanned(t *testing.T) {
	plugin := &accel.Definition{Kind: "qemu-edu", Resource: "qemu.org/edu"}
	claims := &accel.Definition{
		Kind: "example-npu", Resource: "example.com/npu", Allocation: accel.AllocateByDRA,
		Capacity: []accel.Capacity{{Name: "memory", File: "mem"}, {Name: "engines", Value: "2"}},
	}
	base := Node{Metadata: kube.Meta{Identity: kube.Identity{Name: "template"}, Labels: map[string]string{"pool": "npu"}}}
	base.Status.Allocatable = map[string]string{"cpu": "96", "memory": "1Ti"}
	g, err := Plan(base, []Planned{{plugin, 8, nil}, {claims, 2, map[string]string{"memory": "80Gi"}}})
	if err != nil {
		t.Fatal(err)
	}
	if g.Node.Status.Allocatable["qemu.org/edu"] != "8" || g.Annotations[capacityPrefix+"gpu-count"] != "8" ||
		g.Annotations[capacityPrefix+"cpu"] != "96" || g.Node.Metadata.Labels["pool"] != "npu" ||
		g.Node.Metadata.Labels["acceld.dev/example-npu.count"] != "2" ||
		g.Node.Metadata.Labels["acceld.dev/device-plugin-qemu-edu"] != "ready" {
		t.Errorf("%+v", g)
	}
	devices := g.Slices[0].Spec.Devices
	if len(g.Slices) != 1 || len(devices) != 2 || devices[0].Capacity["memory"].Value != "80Gi" ||
		devices[1].Capacity["engines"].Value != "2" || len(devices[0].Taints) > 0 ||
		len(devices[0].Attributes) != 1 || *devices[0].Attributes["kind"].String != "example-npu" {
		t.Errorf("%+v", g.Slices)
	}
	roundTrip[resourceapi.ResourceSlice](t, g.Slices[0])
	g, err = Plan(base, []Planned{{claims, 1, nil}})
	if err != nil || !strings.Contains(strings.Join(g.Notes, ";"), `how much memory a device of kind "example-npu" has`) {
		t.Errorf("%v, %v", err, g.Notes)
	}
	for says, kinds := range map[string][]Planned{
		"not from 1":              {{plugin, 0, nil}},
		"is named twice":          {{plugin, 1, nil}, {plugin, 1, nil}},
		`no capacity "cores"`:     {{claims, 1, map[string]string{"cores": "2"}}},
		"is not an amount":        {{claims, 1, map[string]string{"memory": "1e999999999"}}},
		"says how much engines":   {{claims, 1, map[string]string{"engines": "3"}}},
		`have the resource "qemu`: {{plugin, 1, nil}, {&accel.Definition{Kind: "qemu-two", Resource: "qemu.org/edu"}, 1, nil}},
	} {
		if _, err := Plan(base, kinds); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	base.Spec.Taints = []NodeTaint{{Key: "a", Effect: "Sometimes"}}
	if _, err := Plan(base, nil); err == nil {
		t.Error("a taint without an effect is taken")
	}
}

// TestReadNodes: objects, lists and documents one after the other, as kubectl prints them; anything else is refused.
func TestReadNodes(t *testing.T) {
	node, err := json.Marshal(readyNode())
	if err != nil {
		t.Fatal(err)
	}
	slice, err := json.Marshal(publishedSlices("gpu-17")[0])
	if err != nil {
		t.Fatal(err)
	}
	list := fmt.Sprintf(`{"kind": "List", "items": [%s, %s]}`, node, slice)
	bare := strings.Replace(string(slice), `"kind":"ResourceSlice",`, "", 1)
	for what, text := range map[string]string{
		"documents":      string(node) + "\n---\n" + string(slice) + "\n---\nkind: Pod\n---\n",
		"a list":         list,
		"a list of one":  string(node) + "\n---\n" + `{"kind": "ResourceSliceList", "items": [` + bare + `]}`,
		"a list in YAML": "kind: List\nitems:\n- " + string(node) + "\n- " + string(slice) + "\n",
	} {
		nodes, all, err := ReadNodes([]byte(text))
		if err != nil || len(nodes) != 1 || len(all) != 1 {
			t.Errorf("%s: %d nodes, %d slices, %v", what, len(nodes), len(all), err)
			continue
		}
		if diff := cmp.Diff(readyNode(), nodes[0]); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	for what, text := range map[string]string{
		"no YAML": "{", "a key that is none": "{1: {2: 3}}", "text": "hello", "a list": "[1]",
		"a label":               `{kind: Node, metadata: {name: a, labels: {a: "b c"}}}`,
		"a comma in a label":    `{kind: Node, metadata: {name: a, labels: {a: "b,c=d"}}}`,
		"a name":                `{kind: Node, metadata: {name: A_}}`,
		"an amount":             `{kind: Node, metadata: {name: a}, status: {capacity: {cpu: "1e999999999"}}}`,
		"a number":              `{kind: Node, metadata: {name: a}, status: {capacity: {cpu: 8}}}`,
		"a taint":               `{kind: Node, metadata: {name: a}, spec: {taints: [{key: a, effect: No}]}}`,
		"a device":              `{kind: ResourceSlice, spec: {driver: a-b.acceld.dev, devices: [{name: "a b"}]}}`,
		"an amount of a device": `{kind: ResourceSlice, spec: {driver: a-b.acceld.dev, devices: [{name: a, capacity: {m: {value: x}}}]}}`,
		"a driver":              `{kind: ResourceSlice, spec: {driver: "a b"}}`,
		"lists in lists":        strings.Repeat(`{"kind": "List", "items": [`, 4) + strings.Repeat(`]}`, 4),
	} {
		if nodes, all, err := ReadNodes([]byte(text)); err == nil {
			t.Errorf("%s: %+v, %+v", what, nodes, all)
		}
	}
}

func FuzzReadNodes(f *testing.F) {
	node, _ := json.Marshal(readyNode())
	slice, _ := json.Marshal(publishedSlices("gpu-17")[0])
	f.Add(string(node) + "\n---\n" + string(slice))
	f.Add(`{"kind": "List", "items": [{"kind": "NodeList", "items": [{"metadata": {"name": "a"}}]}]}`)
	f.Add("a: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		nodes, all, err := ReadNodes([]byte(text))
		if err != nil {
			return
		}
		for _, n := range nodes {
			g, err := TemplateOf(n, all, "template")
			if err != nil {
				continue
			}
			for key, value := range g.Node.Metadata.Labels {
				if strings.ContainsAny(key+value, ",=: \n") {
					t.Errorf("label %q=%q", key, value)
				}
			}
			if _, err := json.Marshal(g); err != nil {
				t.Error(err)
			}
		}
	})
}
