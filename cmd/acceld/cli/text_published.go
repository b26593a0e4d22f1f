package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// published lists the published states by phase, the worst phase first.
func published(i palette, s accel.Status) string {
	var own []accel.Published
	for _, p := range slices.Sorted(maps.Keys(s.Published)) {
		if p.Own() {
			own = append(own, p)
		}
	}
	var parts []string
	for _, phase := range []struct {
		phase accel.Phase
		paint func(string) string
	}{
		{accel.PhaseFailed, i.bad},
		{accel.PhasePending, i.wait},
		{accel.PhaseUnchecked, i.wait},
		{accel.PhaseReady, i.good},
	} {
		var names []string
		for _, p := range slices.Concat(accel.PublishedStates(), own) {
			if s.Published[p] == phase.phase {
				names = append(names, string(p))
			}
		}
		if len(names) > 0 {
			parts = append(parts, phase.paint(string(phase.phase))+": "+strings.Join(names, ", "))
		}
	}
	return strings.Join(parts, "; ")
}
