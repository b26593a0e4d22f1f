package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/deviceplugin"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/runtime/gate"
)

func nodes(paths ...string) (all []accel.DeviceNode) {
	for _, p := range paths {
		all = append(all, accel.DeviceNode{Path: p})
	}
	return all
}

// TestPortions checks that a pod's annotations are read in the order in which the controller writes them: init
// containers that keep running first, then the others. The containers must be in the kubelet's order.
func TestPortions(t *testing.T) {
	const ask = `"resources":{"limits":{"qemu.org/edu":"1"}}`
	var p kube.BoundPod
	text :=
		`{"metadata":{"name":"p","namespace":"team","uid":"u","annotations":{"gas-ts":"1","gas-container-cards":"0000-01-00.0|| 0000-02-00.0, gone","acceld.dev/init-container-cards":"0000-02-00.0|0000-01-00.0"}},
		"spec":{"initContainers":[{"name":"first",` + ask + `},{"name":"beside","restartPolicy":"Always",` + ask + `},{"name":"unasked",` + ask + `}],
		"containers":[{"name":"a",` + ask + `},{"name":"b"},{"name":"c",` + ask + `}]},"status":{"phase":"Pending"}}`
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	m := accel.Machine{Have: map[string]accel.Have{"qemu-edu": {Accelerators: []accel.Accelerator{
		{ID: "0000:01:00.0", Nodes: nodes("/dev/dri/card1", "/dev/accel_shared")},
		{ID: "0000:02:00.0", Nodes: nodes("/dev/dri/card0", "/dev/accel_shared")},
	}}}}
	m.Want.Kinds = map[string]*accel.Definition{"qemu-edu": {Kind: "qemu-edu", Resource: "qemu.org/edu"}}
	// The scheduler's extender goes by labels that number the cards: it says card0.
	byNumber := p
	byNumber.Meta.Annotations = map[string]string{accel.ChosenAnnotation: "card0||card1,accel_shared"}
	var said [][]string
	for _, b := range asking([]*kube.BoundPod{&byNumber}, cardIDs(m), "qemu.org/edu") {
		said = append(said, b.Cards)
	}
	if diff := cmp.Diff([][]string{nil, nil, nil, {"0000-02-00.0"}, {"0000-01-00.0", "accel_shared"}}, said); diff != "" {
		t.Errorf("cards by number (-want +got):\n%s", diff)
	}
	for labels, want := range map[string]bool{"qemu.org/gpu-numbers": true, "qemu.org/cards": true, "gpu.intel.com/cards": false} {
		if got := numbered(m, map[string]string{labels: "0"}); got != want {
			t.Errorf("%s: %v", labels, got)
		}
	}
	bound := func(container string, passing bool, cards ...string) deviceplugin.Bound {
		return deviceplugin.Bound{
			PodRef: deviceplugin.PodRef{Namespace: "team", Pod: "p", Container: container}, UID: "u", Count: 1,
			Cards: cards, Passing: passing,
		}
	}
	want := []deviceplugin.Bound{
		bound("first", true, "0000-01-00.0"), bound("beside", false, "0000-02-00.0"), bound("unasked", true),
		bound("a", false, "0000-01-00.0"), bound("c", false, "0000-02-00.0", "gone"),
	}
	if diff := cmp.Diff(want, asking([]*kube.BoundPod{&p}, cardIDs(m), "qemu.org/edu")); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
	choice := func(container, id string) gate.Choice {
		return gate.Choice{Pod: "u", Container: container, Devices: []string{id}}
	}
	if diff := cmp.Diff([]gate.Choice{
		choice("first", "0000:01:00.0"), choice("beside", "0000:02:00.0"), choice("a", "0000:01:00.0"),
		choice("c", "0000:02:00.0"),
	}, choices([]*kube.BoundPod{&p}, m, cardIDs(m))); diff != "" {
		t.Errorf("what the gate checks (-want +got):\n%s", diff)
	}
	// Nobody can make the file of the gate too long. The container "b" asks for nothing, "c" for one device.
	many := strings.Repeat("0000-01-00.0,", 1000)
	p.Spec.InitContainers = nil
	p.Meta.Annotations[accel.ChosenAnnotation] = many + "|" + many + "|0000-01-00.0,0000-02-00.0"
	if diff := cmp.Diff([]gate.Choice{choice("a", "0000:01:00.0")}, choices([]*kube.BoundPod{&p}, m, cardIDs(m))); diff != "" {
		t.Errorf("of too many cards (-want +got):\n%s", diff)
	}
}
