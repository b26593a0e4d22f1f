package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// Summary returns one line about a machine, which systemctl status shows.
func Summary(m accel.Machine) string {
	if m.Taken.IsZero() {
		return "starting: the host has not been read yet"
	}
	var parts []string
	for _, kind := range sorted(m.Status) {
		s := m.Status[kind]
		switch {
		case s.State == "":
			parts = append(parts, kind+": not looked at yet")
		case s.State != accel.Absent || len(m.Have[kind].Accelerators) > 0:
			parts = append(parts, fmt.Sprintf("%s: %s, %s", kind, s.State, s.Sentence))
		}
	}
	if len(parts) == 0 {
		return "idle: no accelerator on this host"
	}
	return strings.Join(parts, "; ")
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
