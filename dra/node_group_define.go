package dra

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// Planned is a kind that the nodes of a group will have.
type Planned struct {
	Definition *accel.Definition
	Count      int
	// Amounts are the capacities of each device, by name, such as 80Gi of memory. They are needed for those that the
	// definition reads from files.
	Amounts map[string]string
}

// maxPlanned is how many devices of a kind a node may have: more than any does.
const maxPlanned = 1024

// Plan makes the template of a node group from definitions. The node says what is known apart from its devices. What
// only a device itself says, such as its address, is left out.
func Plan(node Node, kinds []Planned) (NodeGroup, error) {
	name := node.Metadata.Name
	if err := node.check(); err != nil {
		return NodeGroup{}, err
	}
	m := accel.Machine{Status: map[string]accel.Status{}, Have: map[string]accel.Have{}}
	g := NodeGroup{}
	resources := map[string]string{}
	for _, k := range kinds {
		if k.Count < 1 || k.Count > maxPlanned {
			return NodeGroup{}, fmt.Errorf("%d devices of kind %q are not from 1 to %d", k.Count, k.Definition.Kind, maxPlanned)
		}
		if m.Have[k.Definition.Kind].Accelerators != nil {
			return NodeGroup{}, fmt.Errorf("kind %q is named twice", k.Definition.Kind)
		}
		accs, notes, err := planned(k)
		if err != nil {
			return NodeGroup{}, err
		}
		g.Notes = append(g.Notes, notes...)
		st := accel.Status{State: accel.Ready, Published: map[accel.Published]accel.Phase{}}
		for _, p := range accel.PublishedStates() {
			st.Published[p] = accel.PhaseReady
		}
		for _, s := range k.Definition.States {
			st.Published[s.Published()] = accel.PhaseReady
		}
		m.Status[k.Definition.Kind], m.Have[k.Definition.Kind] = st, accel.Have{Accelerators: accs}
		if k.Definition.AllocatedBy() == accel.AllocateByPlugin {
			name := k.Definition.Offered()
			if resources[name] != "" {
				return NodeGroup{}, fmt.Errorf("two kinds have the resource %q", name)
			}
			resources[name] = strconv.Itoa(k.Count * k.Definition.Replicas())
			continue
		}
		g.Slices = append(g.Slices, plannedSlices(name, k.Definition, accs)...)
	}
	labels := kube.Labels(m)
	maps.Copy(labels, node.Metadata.Labels) // whoever names a label knows better
	node.Metadata.Labels = labels
	allocatable := maps.Clone(node.Status.Allocatable)
	if allocatable == nil {
		allocatable = map[string]string{}
	}
	maps.Copy(allocatable, resources)
	node.Status.Capacity, node.Status.Allocatable = allocatable, allocatable
	g.Node = future(node, name)
	// A plan has no hostname, and its name is the template's own: no label is about one node.
	g.Node.Metadata.Labels = labels
	g.describe()
	return g, nil
}

// planned returns the devices of a kind as they will be, and which of their capacities are not known.
func planned(k Planned) (accs []accel.Accelerator, notes []string, err error) {
	read := map[string]int64{}
	for _, c := range k.Definition.Capacity {
		text, known := k.Amounts[c.Name]
		switch {
		case known && !anAmount(text):
			return nil, nil, fmt.Errorf("%q of %s is not an amount such as 80Gi", text, c.Name)
		case known && c.File == "":
			return nil, nil, fmt.Errorf("the definition of kind %q says how much %s a device has", k.Definition.Kind, c.Name)
		case known:
			read[c.Name] = amount(text)
		case c.File != "":
			notes = append(notes, fmt.Sprintf("how much %s a device of kind %q has is not known, and is left out", c.Name,
				k.Definition.Kind))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.Amounts)) {
		if !slices.ContainsFunc(k.Definition.Capacity, func(c accel.Capacity) bool { return c.Name == name }) {
			return nil, nil, fmt.Errorf("a device of kind %q has no capacity %q", k.Definition.Kind, name)
		}
	}
	if s := k.Definition.Sharing; s != nil && len(s.Devices) > 0 {
		notes = append(notes, fmt.Sprintf("devices of kind %q are taken as shared by the rule for all of them",
			k.Definition.Kind))
	}
	if k.Definition.Partitions != nil {
		notes = append(notes, fmt.Sprintf("devices of kind %q are taken as not divided", k.Definition.Kind))
	}
	for i := range k.Count {
		accs = append(accs, accel.Accelerator{
			ID: fmt.Sprintf("device-%04d", i), NUMANode: -1, Capacity: read, Health: accel.Health{State: accel.Healthy},
		})
	}
	return accs, notes, nil
}

// plannedSlices renders devices without what is not known of them yet.
func plannedSlices(name string, def *accel.Definition, accs []accel.Accelerator) []Slice {
	all := Slices(View{Node: name, Definition: def, Accelerators: accs})
	for i, s := range all {
		all[i] = futureSlice(s, name, i, len(all))
		for _, d := range all[i].Spec.Devices {
			delete(d.Attributes, pciBusID)
			delete(d.Attributes, pcieRoot)
		}
	}
	return all
}
