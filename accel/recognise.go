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

// candidateClasses are the classes of PCI functions that compute: 3D and other display controllers, but not VGA, which
// every server has for its console; co-processors; processing accelerators (PCI Code and ID Assignment 1.16, sections
// 1.4, 1.12 and 1.19).
func candidateClasses() []string { return []string{"0302", "0380", "0b40", "12"} }

// Candidates returns the functions that look like accelerators and that no kind recognises, virtual functions left out.
func Candidates(kinds map[string]*Definition, pci []PCIDevice) []PCIDevice {
	var out []PCIDevice
	for i := range pci { // by index: there may be thousands, and they are large
		d := &pci[i]
		class := func(prefix string) bool { return strings.HasPrefix(d.Class, prefix) }
		if !slices.ContainsFunc(candidateClasses(), class) || d.SRIOV.PhysFn != "" {
			continue
		}
		known := false
		for _, def := range kinds {
			known = known || def.Recognises(*d)
		}
		if !known {
			out = append(out, *d)
		}
	}
	return out
}
