package accel

import (
	"slices"
	"strings"
)

// The ways between a device and a network function.
const (
	NICBelowPort = "port" // both are below one PCI port: the shortest way
	NICBelowRoot = "root" // both are below one PCI root complex
)

// NearestRDMA returns the network function with an RDMA device that is nearest to a device, and the way to it. A
// function below another root complex, or whose place is not known, is not near. If several are as near, the first by
// address is taken.
func NearestRDMA(a Accelerator, pci []PCIDevice, network []NetworkFunction) (f NetworkFunction, way string) {
	root, most := PCIRoot(a.Address(), pci), -1
	ports, _ := PortsAbove(a.Address(), pci)
	for _, n := range network {
		if len(n.RDMA) == 0 || root == "" || PCIRoot(n.Address, pci) != root {
			continue
		}
		common := CommonPorts(ports, n.Ports)
		if common > most || common == most && n.Address < f.Address {
			f, most = n, common
		}
	}
	switch {
	case most > 0:
		return f, NICBelowPort
	case most == 0:
		return f, NICBelowRoot
	}
	return f, ""
}

// BesideRDMA returns accs, each with the nodes of the nearest RDMA device that the definition gives to containers. A
// device that is given out in another use gets none, and neither does a partition: the link is the whole device's.
func BesideRDMA(def *Definition, accs []Accelerator, facts Facts) []Accelerator {
	for i := range accs {
		a := &accs[i]
		a.Beside = nil
		if def.Container.RDMA == "" || a.InOtherUse() || !a.Present() {
			continue
		}
		f, way := NearestRDMA(*a, facts.All(), facts.Network)
		if way == "" || def.Container.RDMA == NICBelowPort && way != NICBelowPort {
			continue
		}
		for _, d := range f.RDMA {
			if d.Verbs != "" {
				a.Beside = append(a.Beside, d.Verbs)
			}
		}
	}
	return accs
}

// PCIRoot returns the root complex above a function, by its sysfs name such as "pci0000:00". It is empty if a bridge
// in between is not known.
func PCIRoot(address string, pci []PCIDevice) string {
	ports, known := PortsAbove(address, pci)
	top := append(ports, address)[0]
	if i := strings.LastIndex(top, ":"); known && i > 0 {
		return "pci" + top[:i]
	}
	return ""
}

// Subnets returns the InfiniBand subnets of the RDMA ports of functions, sorted, each once, and whether the subnet of
// each port is known. A port that is down has left its subnet, and one of Ethernet has none that anybody could name.
func Subnets(network []NetworkFunction) (subnets []string, all bool) {
	all = true
	for _, f := range network {
		if f.Unknown != "" {
			all = false
		}
		for _, d := range f.RDMA {
			for _, p := range d.Ports {
				if p.Subnet == "" || p.State != "active" {
					all = false
					continue
				}
				subnets = append(subnets, p.Subnet)
			}
		}
	}
	slices.Sort(subnets)
	return slices.Compact(subnets), all && len(subnets) > 0
}

// Closest returns the NUMA nodes that are nearest to one, itself first: the nodes of the same processor package at the
// smallest distance other than to itself (ACPI, SLIT), in order. It is the node alone if distances are not known. That
// is what upstream defines for the list form of the attribute numaNode (k8s.io/dynamic-resource-allocation v0.37,
// deviceattribute): a node whose package is not known counts as one of the same package.
func Closest(id int, nodes []NUMANode) []int {
	at := slices.IndexFunc(nodes, func(n NUMANode) bool { return n.ID == id })
	if at < 0 || len(nodes[at].Distances) != len(nodes) {
		return []int{id}
	}
	home, least := nodes[at], 0
	for i, d := range home.Distances {
		if i != at && (least == 0 || d < least) {
			least = d
		}
	}
	out := []int{id}
	for i, n := range nodes {
		elsewhere := n.Package.Known && home.Package.Known && n.Package != home.Package
		if i != at && home.Distances[i] == least && !elsewhere && len(out) < maxClosest {
			out = append(out, n.ID)
		}
	}
	return out
}

// maxClosest is how many nodes are named at most: the attributes of a device may have 48 values altogether.
const maxClosest = 16
