package accel

import (
	"slices"
	"strings"
)

// Recognises reports whether the definition describes the device d. If the kind has partitions, a virtual
// function is at most a partition, never a device.
func (def *Definition) Recognises(d PCIDevice) bool {
	if def.Partitions != nil && d.SRIOV.PhysFn != "" || def.Confined && (d.Subsystem != "" || ofTheHost(d.Class)) {
		return false
	}
	d = d.Ordinary()
	row := func(m Match) bool { return m.matches(d) }
	return slices.ContainsFunc(def.Match, row) && !slices.ContainsFunc(def.Except, row)
}

func (m Match) matches(d Device) bool {
	return (m.Subsystem == d.Subsystem || d.Subsystem == "" && m.Subsystem == PCI) &&
		(m.Vendor == "" || m.Vendor == d.Vendor) && (m.Device == "" || m.Device == d.Device) &&
		(m.Name == "" || slices.Contains(strings.Fields(d.Names), m.Name)) &&
		(m.Driver == "" || m.Driver == d.Driver) && strings.HasPrefix(d.Class, m.Class)
}
