package deviceplugin

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/acceld/acceld/accel"
)

// levels is the maximum number of steps in a place: NUMA node, fabric, ports, the device. Known machines have five
// ports above a device; of a longer path the lowest ports are left out.
const levels = 12

// place is where a device is, from the widest step to the narrowest: its NUMA node, its fabric, the PCI ports above
// it from the top down, and the device itself. The text of a step includes all steps before it, so equal steps are
// the same place.
type place []string

// placesOf returns the places of devices, by id. Devices without a NUMA node or a fabric sort last. If some devices
// have a fabric, each device without one is in a place of its own; if none has, the fabric makes no difference.
func placesOf(accelerators []accel.Accelerator) map[string]place {
	linked := slices.ContainsFunc(accelerators, func(a accel.Accelerator) bool { return a.Fabric != "" })
	out := make(map[string]place, len(accelerators))
	for _, a := range accelerators {
		numa := "~"
		if a.NUMANode >= 0 {
			numa = fmt.Sprintf("%06d", a.NUMANode)
		}
		fabric := a.Fabric
		if linked && fabric == "" {
			fabric = "~" + a.ID
		}
		steps := slices.Concat([]string{numa, fabric}, a.Ports[:min(len(a.Ports), levels-3)], []string{a.ID})
		for i := 1; i < len(steps); i++ {
			steps[i] = steps[i-1] + " " + steps[i]
		}
		out[a.ID] = steps
	}
	return out
}

// step returns the place at a level; it is empty below the device itself.
func (p place) step(level int) string {
	if level < len(p) {
		return p[level]
	}
	return ""
}

// spot is a candidate device with its place.
type spot struct {
	id string
	at place
}

// comparePlaces orders devices so that those of one place are adjacent at every level.
func comparePlaces(a, b spot) int { return cmp.Or(slices.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) }

// choice is a set of devices, and how many devices in the same places stay free, by level.
type choice struct {
	spots []spot
	left  [levels]int
}

// pick chooses n of the free devices in addition to the chosen ones. The free devices are sorted and share one place
// down to level. At each level, from the widest to the narrowest, pick uses as few places as it can. Places of
// chosen devices come first. Then comes a place with enough devices; among several, the one whose devices are
// closest together, and then the one with the fewest to spare. If no place has enough, it takes all of the largest.
// The first one wins a tie.
func pick(free, chosen []spot, n, level int) choice {
	if n >= len(free) || level == levels {
		return choice{spots: free[:max(0, min(n, len(free)))]}
	}
	var used, fresh [][]spot
	for _, group := range split(free, level) {
		if len(within(chosen, group[0].at.step(level), level)) > 0 {
			used = append(used, group)
		} else {
			fresh = append(fresh, group)
		}
	}
	var sum choice
	for _, groups := range [][][]spot{used, fresh} {
		for missing := n - len(sum.spots); missing > 0 && len(groups) > 0; missing = n - len(sum.spots) {
			i, best := bestOf(groups, chosen, missing, level)
			sum.spots = append(sum.spots, best.spots...)
			for l := range best.left {
				sum.left[l] += best.left[l]
			}
			groups = slices.Delete(groups, i, i+1)
		}
	}
	return sum
}

// bestOf returns the place from which to take up to n devices next, and which devices.
func bestOf(groups [][]spot, chosen []spot, n, level int) (index int, best choice) {
	index = -1
	var closest [levels]int
	for i, group := range groups {
		if len(group) < n {
			continue
		}
		near := within(chosen, group[0].at.step(level), level)
		c := pick(group, near, n, level+1)
		c.left[level] = len(group) - n
		s := spread(slices.Concat(near, c.spots))
		if index < 0 || cmp.Or(slices.Compare(s[:], closest[:]), slices.Compare(c.left[:], best.left[:])) < 0 {
			index, best, closest = i, c, s
		}
	}
	if index >= 0 {
		return index, best
	}
	for i, group := range groups {
		if index < 0 || len(group) > len(groups[index]) {
			index = i
		}
	}
	return index, choice{spots: groups[index]}
}

// split groups sorted devices by their place at a level.
func split(free []spot, level int) [][]spot {
	var groups [][]spot
	begin := 0
	for i := 1; i <= len(free); i++ {
		if i == len(free) || free[i].at.step(level) != free[begin].at.step(level) {
			groups = append(groups, free[begin:i])
			begin = i
		}
	}
	return groups
}

// within returns the devices that are in a place.
func within(spots []spot, step string, level int) []spot {
	var out []spot
	for _, s := range spots {
		if s.at.step(level) == step {
			out = append(out, s)
		}
	}
	return out
}

// spread returns how many places the devices occupy, by level. Fewer is closer; wider levels count first.
func spread(spots []spot) (places [levels]int) {
	slices.SortFunc(spots, comparePlaces)
	for i := range spots {
		first := 0 // the first level at which it differs from the device before it
		for i > 0 && first < levels && spots[i].at.step(first) == spots[i-1].at.step(first) {
			first++
		}
		for l := first; l < levels; l++ {
			places[l]++
		}
	}
	return places
}
