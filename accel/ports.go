package accel

import "slices"

// PortsAbove returns the addresses of the PCI bridges above the function at address, the topmost first; none on a root
// bus. Known is false when the way does not lead to a root bus, because a function on it is not among pci.
func PortsAbove(address string, pci []PCIDevice) (ports []string, known bool) {
	for range pci { // a way cannot be longer than there are functions
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
