package kube

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/acceld/acceld/accel"
)

func onNode(nodes ...int64) *podresources.TopologyInfo {
	t := &podresources.TopologyInfo{}
	for _, n := range nodes {
		t.Nodes = append(t.Nodes, &podresources.NUMANode{ID: n})
	}
	return t
}

// twoZones are a node of two NUMA nodes with two processors each, and a pod that has something of the first.
func twoZones() ZoneFacts {
	const gib = 1 << 30
	return ZoneFacts{
		Nodes: []accel.NUMANode{
			{ID: 0, MemoryMiB: 4 << 10, Distances: []int{10, 21}},
			{ID: 1, MemoryMiB: 4 << 10, Distances: []int{21, 10}},
		},
		Processors: map[int64]int{0: 0, 1: 0, 2: 1, 3: 1},
		Allocatable: &podresources.AllocatableResourcesResponse{
			CpuIds: []int64{1, 2, 3, 99},
			Devices: []*podresources.ContainerDevices{
				{ResourceName: "qemu.org/edu", DeviceIds: []string{"a", "b"}, Topology: onNode(0)},
				{ResourceName: "qemu.org/edu", DeviceIds: []string{"c"}, Topology: onNode(0, 1)},
				{ResourceName: "example.com/anywhere", DeviceIds: []string{"x"}},
				{ResourceName: "a/b/c", DeviceIds: []string{"y"}, Topology: onNode(0)},
				{ResourceName: "example.com/elsewhere", DeviceIds: []string{"z"}, Topology: onNode(7)},
			},
			Memory: []*podresources.ContainerMemory{
				{MemoryType: "memory", Size: 3 * gib, Topology: onNode(0)},
				{MemoryType: "memory", Size: 4 * gib, Topology: onNode(1)},
			},
		},
		Pods: &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{
			Containers: []*podresources.ContainerResources{{
				CpuIds:  []int64{1},
				Devices: []*podresources.ContainerDevices{{ResourceName: "qemu.org/edu", DeviceIds: []string{"a"}, Topology: onNode(0)}},
				Memory:  []*podresources.ContainerMemory{{MemoryType: "memory", Size: gib, Topology: onNode(0)}},
			}},
		}}},
		Policy: "single-numa-node", Scope: "container",
	}
}

// left is what the zones say, each resource as capacity/allocatable/available.
func left(t *ResourceTopology) string {
	var all []string
	for _, z := range t.Zones {
		line := z.Name
		for _, r := range z.Resources {
			line += " " + r.Name + "=" + r.Capacity.String() + "/" + r.Allocatable.String() + "/" + r.Available.String()
		}
		all = append(all, line)
	}
	return strings.Join(all, "\n")
}

func TestTopology(t *testing.T) {
	got := Topology("node-a", twoZones())
	want := "node-0 cpu=2/1/0 memory=4294967296/3221225472/2147483648 qemu.org/edu=3/3/2\n" +
		"node-1 cpu=2/2/2 memory=4294967296/4294967296/4294967296 qemu.org/edu=1/1/1"
	if diff := cmp.Diff(want, left(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if z := got.Zones[0]; z.Type != "Node" || len(z.Costs) != 2 || z.Costs[1] != (zoneCost{"node-1", 21}) {
		t.Errorf("%+v", z)
	}
	if len(got.Attributes) != 2 || got.Attributes[0] != (topologyAttribute{"topologyManagerPolicy", "single-numa-node"}) {
		t.Errorf("%+v", got.Attributes)
	}
	f := twoZones()
	f.Allocatable.Memory, f.Policy = nil, ""
	if got := Topology("node-a", f); !strings.Contains(left(got), "memory=4294967296/4294967296/3221225472") ||
		len(got.Attributes) != 1 {
		t.Errorf("without a memory manager:\n%s\n%v", left(got), got.Attributes)
	}
}

// topologies is an API server with one object at most.
type topologies struct {
	object  *ResourceTopology
	unknown bool // it does not know the type
	writes  []string
}

func (s *topologies) Watch(context.Context, string, url.Values) (io.ReadCloser, error) {
	panic("not here")
}

func (s *topologies) Do(_ context.Context, method, path string, _ url.Values, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if method != http.MethodGet {
		s.writes = append(s.writes, method+" "+path)
	}
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "noderesourcetopologies"}, "node-a")
	switch {
	case path == "/api/v1/nodes/node-a":
		return json.Unmarshal([]byte(`{"metadata":{"name":"node-a","uid":"u-1"}}`), into)
	case s.unknown:
		return missing
	case method == http.MethodPost:
		s.object = &ResourceTopology{}
		return json.Unmarshal(text, s.object)
	case s.object == nil:
		return missing
	case method == http.MethodPatch:
		s.object.Attributes, s.object.Zones = nil, nil
		return json.Unmarshal(text, s.object)
	}
	text, err = json.Marshal(s.object)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// TestTopologyWriter: the object is made once, changed when something has changed, and never taken from somebody else.
func TestTopologyWriter(t *testing.T) {
	s := &topologies{}
	w := &TopologyWriter{API: s, Node: "node-a"}
	write := func(f ZoneFacts, want ...string) error {
		t.Helper()
		s.writes = nil
		err := w.Write(t.Context(), Topology("node-a", f))
		if diff := cmp.Diff(want, s.writes); diff != "" {
			t.Errorf("writes (-want +got)\n%s", diff)
		}
		return err
	}
	const path = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
	if err := write(twoZones(), "POST "+path); err != nil {
		t.Fatal(err)
	}
	if o := s.object.Meta.OwnerReferences; len(o) != 1 || o[0].UID != "u-1" || s.object.Kind != "NodeResourceTopology" {
		t.Errorf("%+v", s.object)
	}
	if err := write(twoZones()); err != nil {
		t.Error(err)
	}
	w = &TopologyWriter{API: s, Node: "node-a"} // the next agent
	if err := write(twoZones()); err != nil {
		t.Error(err)
	}
	free := twoZones()
	free.Pods = nil
	if err := write(free, "PATCH "+path+"/node-a"); err != nil || !strings.Contains(left(s.object), "qemu.org/edu=3/3/3") {
		t.Errorf("%v\n%s", err, left(s.object))
	}
	s.object.Meta.Labels = nil
	if err := write(twoZones()); err == nil || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("another's object: %v", err)
	}
	w.API = &topologies{unknown: true}
	if err := w.Write(t.Context(), Topology("node-a", free)); !apierrors.IsNotFound(err) {
		t.Errorf("without the type: %v", err)
	}
}
