package accel

import (
	"fmt"
	"maps"
	"slices"
)

// Layout says how devices are to be divided, where the definition's probe program can divide them. acceld changes
// nothing of a device that a pod holds.
type Layout struct {
	// Devices are PCI addresses; without any the row holds for every device that no row before it names.
	Devices []string `json:"devices,omitempty"`
	// Parts are how many partitions of each profile a device is to have, such as "1g.10gb: 7"; without any it is to be
	// whole.
	Parts map[string]int `json:"parts,omitempty"`
}

// LayoutOf is how a device is to be divided, by profile as ids have it; false where nobody says so.
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

// LayoutProblems returns what is wrong with a layout, each as "[row].<field>: <sentence>".
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
