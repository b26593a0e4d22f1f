package accel

import "slices"

// PortsAbove returns the addresses of the PCI bridges above the function at address, the topmost first; none on a
// root bus. Known is false if the path does not reach a root bus, because pci lacks a function on it.
func PortsAbove(address string, pci []PCIDevice) (ports []string, known bool) {
	for range pci { // the path cannot be longer than the number of functions
		i := slices.IndexFunc(pci, func(d PCIDevice) bool { return d.Address == address })
		if i < 0 {
			return ports, false
		}
		if address = pci[i].ParentPort; address == "" {
			return ports, true
		}
		ports = slices.Insert(ports, 0, address)
	}
	return nil, false
}
