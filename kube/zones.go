package kube

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/acceld/acceld/accel"
)

// ResourceTopology says what each NUMA node of a node has and what of it is not given out: NodeResourceTopology of
// topology.node.k8s.io/v1alpha2, as scheduler plugins read it (k8stopologyawareschedwg/noderesourcetopology-api).
type ResourceTopology struct {
	APIVersion string              `json:"apiVersion,omitempty"`
	Kind       string              `json:"kind,omitempty"`
	Meta       Meta                `json:"metadata"`
	Attributes []topologyAttribute `json:"attributes,omitempty"`
	Zones      []Zone              `json:"zones"`
}

type topologyAttribute struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Zone is one NUMA node.
type Zone struct {
	Name string `json:"name"`
	Type string `json:"type"`
	// Costs are the distances to each zone (ACPI, SLIT).
	Costs     []zoneCost     `json:"costs,omitempty"`
	Resources []ZoneResource `json:"resources,omitempty"`
}

type zoneCost struct {
	Name  string `json:"name"`
	Value int64  `json:"value"`
}

// ZoneResource is one resource of a zone.
type ZoneResource struct {
	Name        string            `json:"name"`
	Capacity    resource.Quantity `json:"capacity"`
	Allocatable resource.Quantity `json:"allocatable"`
	Available   resource.Quantity `json:"available"`
}

// ZoneFacts are what the zones of a node follow from.
type ZoneFacts struct {
	// Nodes are the NUMA nodes of the host. Processors are the nodes of its processors.
	Nodes      []accel.NUMANode
	Processors map[int64]int
	// Allocatable and Pods are what the kubelet says about itself and about its pods (PodResources, v1).
	Allocatable *podresources.AllocatableResourcesResponse
	Pods        *podresources.ListPodResourcesResponse
	// Policy and Scope are those of the kubelet's topology manager; empty where they are not known.
	Policy, Scope string
}

// maxZoneResources bounds the resources of a zone.
const maxZoneResources = 256

// zoneName is the name that readers know a NUMA node by.
func zoneName(node int) string { return "node-" + strconv.Itoa(node) }

// amounts counts a resource in one zone.
type amounts struct{ capacity, allocatable, used int64 }

// counts are the amounts by zone and resource.
type counts map[int]map[string]*amounts

// at returns the amounts of a resource in a zone; of a zone that the host does not have, some that nobody reads.
func (c counts) at(zone int, name string) *amounts {
	all, there := c[zone]
	if !there || all[name] == nil && (len(all) >= maxZoneResources || len(validation.IsQualifiedName(name)) > 0) {
		return &amounts{}
	}
	if all[name] == nil {
		all[name] = &amounts{}
	}
	return all[name]
}

// Topology renders the zones. A device of several NUMA nodes counts in each of them. Processors and memory that the
// kubelet pins to no container are available to all: what containers use of the shared rest belongs to no zone.
func Topology(node string, f ZoneFacts) *ResourceTopology {
	c := counts{}
	for _, n := range f.Nodes {
		c[n.ID] = map[string]*amounts{}
	}
	c.processors(f)
	c.memory(f)
	c.devices(f)
	t := &ResourceTopology{Meta: Meta{Identity: Identity{Name: node}}, Zones: []Zone{}}
	for _, a := range []topologyAttribute{
		{"topologyManagerPolicy", f.Policy}, {"topologyManagerScope", f.Scope},
	} {
		if a.Value != "" {
			t.Attributes = append(t.Attributes, a)
		}
	}
	for _, n := range f.Nodes {
		z := Zone{Name: zoneName(n.ID), Type: "Node"}
		for i, distance := range n.Distances[:min(len(n.Distances), len(f.Nodes))] {
			z.Costs = append(z.Costs, zoneCost{zoneName(f.Nodes[i].ID), int64(distance)})
		}
		for _, name := range slices.Sorted(maps.Keys(c[n.ID])) {
			a := c[n.ID][name]
			z.Resources = append(z.Resources, ZoneResource{
				Name: name, Capacity: *resource.NewQuantity(max(a.capacity, a.allocatable), resource.DecimalSI),
				Allocatable: *resource.NewQuantity(a.allocatable, resource.DecimalSI),
				Available:   *resource.NewQuantity(max(0, a.allocatable-a.used), resource.DecimalSI),
			})
		}
		t.Zones = append(t.Zones, z)
	}
	return t
}

func (c counts) processors(f ZoneFacts) {
	for _, zone := range f.Processors {
		c.at(zone, "cpu").capacity++
	}
	zoneOf := func(id int64) int {
		if zone, known := f.Processors[id]; known {
			return zone
		}
		return -1
	}
	for _, id := range f.Allocatable.GetCpuIds() {
		c.at(zoneOf(id), "cpu").allocatable++
	}
	for container := range f.containers {
		for _, id := range container.GetCpuIds() {
			c.at(zoneOf(id), "cpu").used++
		}
	}
}

// memory counts memory and huge pages. Without a memory manager the kubelet names none; then all of a node's memory is
// there for everybody.
func (c counts) memory(f ZoneFacts) {
	each := func(all []*podresources.ContainerMemory, count func(a *amounts, size int64)) {
		for _, m := range all {
			for _, n := range m.GetTopology().GetNodes() {
				count(c.at(int(n.GetID()), m.GetMemoryType()), int64(min(m.GetSize(), 1<<62)))
			}
		}
	}
	each(f.Allocatable.GetMemory(), func(a *amounts, size int64) { a.allocatable += size })
	for container := range f.containers {
		each(container.GetMemory(), func(a *amounts, size int64) { a.used += size })
	}
	for _, n := range f.Nodes {
		a := c.at(n.ID, "memory")
		a.capacity = n.MemoryMiB << 20
		if len(f.Allocatable.GetMemory()) == 0 {
			a.allocatable = a.capacity
		}
	}
}

func (c counts) devices(f ZoneFacts) {
	each := func(all []*podresources.ContainerDevices, count func(a *amounts, n int64)) {
		for _, d := range all {
			for _, n := range d.GetTopology().GetNodes() {
				count(c.at(int(n.GetID()), d.GetResourceName()), int64(len(d.GetDeviceIds())))
			}
		}
	}
	each(f.Allocatable.GetDevices(), func(a *amounts, n int64) { a.allocatable += n })
	for container := range f.containers {
		each(container.GetDevices(), func(a *amounts, n int64) { a.used += n })
	}
}

// containers yields the containers of all pods.
func (f ZoneFacts) containers(yield func(*podresources.ContainerResources) bool) {
	for _, p := range f.Pods.GetPodResources() {
		for _, c := range p.GetContainers() {
			if !yield(c) {
				return
			}
		}
	}
}

// Same reports whether two topologies say the same.
func (t *ResourceTopology) Same(o *ResourceTopology) bool {
	return t != nil && o != nil && slices.Equal(t.Attributes, o.Attributes) &&
		slices.EqualFunc(t.Zones, o.Zones, func(a, b Zone) bool {
			return a.Name == b.Name && slices.Equal(a.Costs, b.Costs) &&
				slices.EqualFunc(a.Resources, b.Resources, func(x, y ZoneResource) bool {
					return x.Name == y.Name && x.Capacity.Cmp(y.Capacity) == 0 &&
						cmp.Or(x.Allocatable.Cmp(y.Allocatable), x.Available.Cmp(y.Available)) == 0
				})
		})
}

// String is for logs.
func (t *ResourceTopology) String() string { return fmt.Sprintf("%d zones", len(t.Zones)) }
