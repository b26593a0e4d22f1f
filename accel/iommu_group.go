package accel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The kernel keeps devices apart only by IOMMU groups: whoever has one device of a group can reach the memory of the
// others. It therefore gives a group to one owner, and to nobody while a driver of the host has a device of it.

// UsesGroup reports whether containers get the node of a device's IOMMU group, as with VFIO.
func (def *Definition) UsesGroup() bool {
	return def.anyNode(func(n NodeSource) bool { return strings.Contains(n.Glob, GroupTemplate) })
}

// GivesGroup reports whether whoever gets a device of the kind becomes the owner of its IOMMU group: by the node of the
// group, or by VFIO's node of the device itself.
func (def *Definition) GivesGroup() bool {
	return def.UsesGroup() ||
		def.anyNode(func(n NodeSource) bool { return strings.HasPrefix(n.Glob, "vfio-dev/") })
}

func (def *Definition) anyNode(is func(NodeSource) bool) bool {
	return slices.ContainsFunc(def.Nodes, is) || def.Partitions != nil && slices.ContainsFunc(def.Partitions.Nodes, is)
}

// SharedGroup is an IOMMU group with a device that is given out with its group, and with other functions.
type SharedGroup struct {
	Group int
	// Owner is the address of the device that is offered for the group. Others, sorted, are the other devices that are
	// given out with it: they are withheld.
	Owner  string
	Others []string
	// Foreign is the address of a function of the group that a driver of the host has, and Driver that driver. While
	// there is one, the kernel gives the group to nobody.
	Foreign, Driver string
}

// SharedGroups returns the IOMMU groups that need a decision, ordered by number. A group's owner is its first device by
// address, and it stays the owner for as long as it is there: before is the last result. Rivalries say which kind has a
// device that several recognise.
func SharedGroups(kinds map[string]*Definition, pci []PCIDevice, rivalries []Rivalry,
	before []SharedGroup,
) []SharedGroup {
	members := map[int][]string{}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		def := kinds[kind]
		if !def.GivesGroup() {
			continue
		}
		lost := Lost(kind, rivalries)
		for i := range pci { // by index: there may be thousands, and they are large
			if d := &pci[i]; d.IOMMUGroup >= 0 && !lost[d.Address] && def.Recognises(*d) {
				members[d.IOMMUGroup] = append(members[d.IOMMUGroup], d.Address)
			}
		}
	}
	var out []SharedGroup
	for _, group := range slices.Sorted(maps.Keys(members)) {
		all := slices.Compact(slices.Sorted(slices.Values(members[group])))
		g := SharedGroup{Group: group, Owner: all[0]}
		for _, b := range before {
			if b.Group == group && slices.Contains(all, b.Owner) {
				g.Owner = b.Owner
			}
		}
		g.Others = slices.DeleteFunc(all, func(id string) bool { return id == g.Owner })
		g.Foreign, g.Driver = foreign(group, pci)
		if len(g.Others) > 0 || g.Foreign != "" {
			out = append(out, g)
		}
	}
	return out
}

// foreign returns the first function of a group that a driver of the host has. Bridges do not count, nor do drivers
// that leave DMA to the owner of the group (driver_managed_dma, Linux 6.0; vfio_dev_driver_allowed before).
func foreign(group int, pci []PCIDevice) (address, driver string) {
	for i := range pci {
		d := &pci[i]
		managed := strings.Contains(d.Driver, "vfio") ||
			slices.Contains([]string{"", "pci-stub", "pcieport", "xen-pciback"}, d.Driver)
		if d.IOMMUGroup == group && !managed && !strings.HasPrefix(d.Class, "06") &&
			(address == "" || d.Address < address) {
			address, driver = d.Address, d.Driver
		}
	}
	return address, driver
}

// Problem says what becomes of the group.
func (g SharedGroup) Problem() *Problem {
	if g.Foreign != "" {
		return Problemf(GroupShared, "IOMMU group %d is given to nobody: driver %q of this host has device %q of it",
			g.Group, g.Driver, g.Foreign)
	}
	return Problemf(GroupShared, "IOMMU group %d is given out with device %q, and with it %s", g.Group, g.Owner,
		strings.Join(quoted(g.Others), ", "))
}

// WithholdGroups returns accs with the devices withheld for whose IOMMU group another one is offered, or whose group
// the kernel gives to nobody. A device that is already withheld keeps its reason.
func WithholdGroups(groups []SharedGroup, accs []Accelerator) []Accelerator {
	if len(groups) == 0 {
		return accs
	}
	return each(accs, func(a *Accelerator) {
		for _, g := range groups {
			if why := g.withholds(a.Address()); why != "" && a.Present() {
				a.Withheld = cmp.Or(a.Withheld, &Withheld{By: ByGroup, Reason: GroupShared, Message: why})
			}
		}
	})
}

// withholds says why a device is withheld; empty if it is not.
func (g SharedGroup) withholds(id string) string {
	switch {
	case id != g.Owner && !slices.Contains(g.Others, id):
		return ""
	case g.Foreign != "":
		return g.Problem().Message
	case id != g.Owner:
		return fmt.Sprintf("whoever has device %q has it too: both are in IOMMU group %d", g.Owner, g.Group)
	}
	return ""
}

// SharedNode says which devices or partitions of a kind resolve to the same device node, so that a container with one
// of them has the other, too; nil if there are none. One node that a pattern outside the device finds for all of them
// is meant to be shared. So are the nodes of a device that its partitions come with, and whatever a probe program
// reports. Devices that are withheld for their IOMMU group do not count.
func SharedNode(def *Definition, accs []Accelerator) *Problem {
	first := map[string]Accelerator{} // by the path of a node
	for _, a := range accs {
		own := slices.Clone(a.Partitions)
		a.Partitions = nil
		if len(own) == 0 || def.Partitions != nil && def.Partitions.Told {
			own = []Accelerator{a}
		}
		for _, b := range own {
			for _, n := range b.Nodes {
				switch other, seen := first[n.Path]; {
				case !b.Present() || b.WithheldBy(ByGroup) || b.Parent != "" && hasNode(a, n.Path):
				case !seen:
					first[n.Path] = b
				case other.ID != b.ID && commonNodes(other, b) > meantForAll(def, b.Profile):
					return Problemf(NodeShared, "devices %q and %q of kind %q have the same device node %q: whoever gets one "+
						"of them gets the other, too", other.ID, b.ID, def.Kind, n.Path)
				}
			}
		}
	}
	return nil
}

func hasNode(a Accelerator, path string) bool {
	return slices.ContainsFunc(a.Nodes, func(n DeviceNode) bool { return n.Path == path })
}

// commonNodes returns how many nodes two units have in common.
func commonNodes(a, b Accelerator) (n int) {
	for _, x := range a.Nodes {
		if hasNode(b, x.Path) {
			n++
		}
	}
	return n
}

// meantForAll returns how many nodes the patterns outside the device find that are meant for all: one each.
func meantForAll(def *Definition, profile string) (n int) {
	for _, s := range def.NodesOf(profile) {
		if strings.HasPrefix(s.Glob, "/") && !strings.Contains(s.Glob, "{{") {
			n++
		}
	}
	return n
}
