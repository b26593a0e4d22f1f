package accel

import (
	"slices"
	"strings"
)

// Recognises reports whether the definition describes the PCI function d. If the kind has partitions, a virtual
// function is at most a partition, never a device.
func (def *Definition) Recognises(d PCIDevice) bool {
	if def.Partitions != nil && d.SRIOV.PhysFn != "" || def.Confined && ofTheHost(d.Class) {
		return false
	}
	d = d.Ordinary()
	row := func(m Match) bool { return m.matches(d) }
	return slices.ContainsFunc(def.Match, row) && !slices.ContainsFunc(def.Except, row)
}

func (m Match) matches(d PCIDevice) bool {
	return (m.Vendor == "" || m.Vendor == d.Vendor) && (m.Device == "" || m.Device == d.Device) &&
		(m.Driver == "" || m.Driver == d.Driver) && strings.HasPrefix(d.Class, m.Class)
}
