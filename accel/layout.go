package accel

import (
	"fmt"
	"maps"
	"slices"
)

// Layout says how to divide devices, if the definition's probe program can divide them. acceld does not touch a
// device that a pod holds.
type Layout struct {
	// Devices are PCI addresses. A row without any applies to every device that no earlier row names.
	Devices []string `json:"devices,omitempty"`
	// Parts says how many partitions of each profile a device should have, such as "1g.10gb: 7"; empty means
	// undivided.
	Parts map[string]int `json:"parts,omitempty"`
}

// LayoutOf returns how a device should be divided, keyed by profile as it appears in IDs; false if nothing says so.
func (def *Definition) LayoutOf(id string) (parts map[string]int, declared bool) {
	if def.Partitions == nil || !def.Partitions.Told {
		return nil, false
	}
	for _, l := range def.Partitions.Layout {
		if len(l.Devices) > 0 && !slices.Contains(l.Devices, id) {
			continue
		}
		parts = map[string]int{}
		for name, n := range l.Parts {
			if n > 0 {
				parts[PartitionWord(name)] += n
			}
		}
		return parts, true
	}
	return nil, false
}

// LayoutProblems returns the errors in a layout, each as "[row].<field>: <sentence>".
func LayoutProblems(rows []Layout) []string {
	var out []string
	const most = 64
	for i, l := range rows {
		if len(l.Devices) == 0 && i < len(rows)-1 {
			out = append(out, fmt.Sprintf("[%d].devices: is missing, and so the rows below would never hold", i))
		}
		for _, name := range slices.Sorted(maps.Keys(l.Parts)) {
			if PartitionWord(name) != name || name == "" {
				out = append(out, fmt.Sprintf("[%d].parts: %q is no name of a profile", i, name))
			}
			if n := l.Parts[name]; n < 0 || n > most {
				out = append(out, fmt.Sprintf("[%d].parts: %d of %q is not between 0 and %d", i, n, name, most))
			}
		}
	}
	return out
}
