package usage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Grant says that a pod was given a device or a partition.
type Grant struct {
	// Unit is the ID of the device or the partition, or the UUID by which its vendor's tools know it.
	Unit string
	// PodUID is the pod's UID. Without it, Namespace and Pod are its name; if that is not known either, some pod of the
	// namespace has the device.
	PodUID, Namespace, Pod string
}

// to reports whether the grant is for the pod of a suspect.
func (g Grant) to(s Suspect) bool {
	if g.PodUID != "" {
		return g.PodUID == s.Opener.Pod
	}
	return s.Pod != "" && g.Namespace == s.Namespace && (g.Pod == s.Pod || g.Pod == "")
}

// Case is what is known when the users of a kind's devices are judged.
type Case struct {
	Def *accel.Definition
	// Devices are those of the kind, and Own says to which device each node belongs; see [Own].
	Devices []accel.Accelerator
	Own     map[string]string
	// Openers are the processes that have some of the nodes open.
	Openers []host.Opener
	Grants  []Grant
	// Name returns the name of the pod with a UID; empty if it is not known.
	Name func(uid string) (namespace, pod string)
	// Expected reports whether a process may use any device.
	Expected func(host.Opener) bool
}

// Suspect is a process that uses a device although nobody gave it to them, as far as one look shows.
type Suspect struct {
	host.Opener
	Device         string
	Node           string // the first of the device's nodes that it has
	Namespace, Pod string
	Given          []string // what the pod was given of the kind
}

// maxGiven is how many devices are named that a pod was given.
const maxGiven = 4

// Decide returns the suspects, ordered by device, and of one device as the openers are.
func Decide(c Case) (all []Suspect) {
	devices := map[string]accel.Accelerator{}
	for _, a := range c.Devices {
		devices[a.ID] = a
	}
	for _, o := range c.Openers {
		if o.Pod == "" && o.Container == "" && c.Def.ReportsUse() == accel.ReportContainers {
			continue
		}
		s := Suspect{Opener: o}
		if o.Pod != "" {
			s.Namespace, s.Pod = c.Name(o.Pod)
		}
		units := c.unitsOf(s)
		s.Given = c.given(units)
		used := map[string]bool{}
		for _, node := range o.Nodes {
			a, known := devices[c.Own[node]]
			if !known || used[a.ID] || slices.ContainsFunc(units, func(u string) bool { return covers(u, a, node) }) {
				continue
			}
			if len(used) == 0 && c.Expected(o) {
				break
			}
			used[a.ID] = true
			s.Device, s.Node = a.ID, node
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b Suspect) int { return strings.Compare(a.Device, b.Device) })
	return all
}

// unitsOf returns what the pod of a suspect was given. What only a name was given counts for a pod whose name is not
// known, unless it is known which pods have it.
func (c Case) unitsOf(s Suspect) (units []string) {
	if s.Opener.Pod == "" {
		return nil
	}
	known := map[string]bool{}
	for _, g := range c.Grants {
		known[g.Unit] = known[g.Unit] || g.PodUID != ""
	}
	for _, g := range c.Grants {
		if g.to(s) || s.Pod == "" && !known[g.Unit] {
			units = append(units, g.Unit)
		}
	}
	return units
}

// covers reports whether whoever has a unit may use a node of a device. The whole device comes with all its partitions.
// Of a partition that is not known, or whose nodes are not, nobody can say that it has not the node.
func covers(unit string, a accel.Accelerator, node string) bool {
	if is(unit, a) {
		return true
	}
	for _, p := range a.Partitions {
		if is(unit, p) {
			return len(p.Nodes) == 0 || has(p, node)
		}
	}
	return strings.HasPrefix(unit, a.ID+"-") // as accel.PartitionID has it
}

func is(unit string, a accel.Accelerator) bool { return unit == a.ID || a.UUID != "" && unit == a.UUID }

func has(a accel.Accelerator, node string) bool {
	return slices.ContainsFunc(a.Nodes, func(n accel.DeviceNode) bool { return n.Path == node })
}

// given names those of the units that the kind has, at most maxGiven.
func (c Case) given(units []string) (ids []string) {
	for _, a := range accel.Flat(c.Devices) {
		if len(ids) < maxGiven && slices.ContainsFunc(units, func(u string) bool { return is(u, a) }) {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

// several stands for the device of a node that is of no single device; no device has this ID.
const several = ""

// Own returns the nodes of exactly one device, ordered by path, and the device of each path. Shared are nodes that are
// of no single device, whoever lists them. A node belongs to a device if it is one of the device's or of its
// partitions'.
func Own(m accel.Machine, shared []accel.DeviceNode) (nodes []accel.DeviceNode, of map[string]string) {
	owners := map[string]string{} // by path, and by number
	note := func(n accel.DeviceNode, id string) {
		for _, key := range keys(n) {
			if other, is := owners[key]; is && other != id {
				owners[key] = several
			} else {
				owners[key] = id
			}
		}
	}
	for _, n := range shared {
		note(n, several)
	}
	for _, have := range m.Have {
		for _, a := range accel.Flat(have.Accelerators) {
			for _, n := range a.Nodes {
				note(n, a.Address())
			}
		}
	}
	of = map[string]string{}
	for _, have := range m.Have {
		for _, a := range accel.Flat(have.Accelerators) {
			for _, n := range a.Nodes {
				foreign := func(key string) bool { return owners[key] != a.Address() }
				if _, done := of[n.Path]; !done && !slices.ContainsFunc(keys(n), foreign) {
					of[n.Path] = a.Address()
					nodes = append(nodes, n)
				}
			}
		}
	}
	slices.SortFunc(nodes, func(a, b accel.DeviceNode) int { return strings.Compare(a.Path, b.Path) })
	return nodes, of
}

// keys are the path of a node and its number. A node that is no device, as on a copy of a machine, has no number.
func keys(n accel.DeviceNode) []string {
	if n.Major == 0 && n.Minor == 0 {
		return []string{n.Path}
	}
	return []string{n.Path, fmt.Sprintf("%d:%d", n.Major, n.Minor)}
}
