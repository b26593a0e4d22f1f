package deviceplugin

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/acceld/acceld/accel"
)

// levels is how many steps a place has at most: NUMA node, fabric, ports, the device. Known machines have five ports
// above a device; of a longer way the lowest ones are left out.
const levels = 12

// place is where a device is, from the widest to the narrowest: its NUMA node, its fabric, the PCI ports above it from
// the topmost down, itself. Every step has the ones before it in its text, so that equal steps are the same place.
type place []string

// placesOf returns the places of devices, by id. A device without a NUMA node or a fabric comes after the others. Where
// some devices have a fabric, one without is alone; where none has, the fabric says nothing.
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

// step is the place at a level; below the device itself it is empty.
func (p place) step(level int) string {
	if level < len(p) {
		return p[level]
	}
	return ""
}

// spot is a device to choose, with its place.
type spot struct {
	id string
	at place
}

// sortSpots orders devices by their places, so that those of one place are beside each other at every level.
func sortSpots(spots []spot) {
	slices.SortFunc(spots, comparePlaces)
}

func comparePlaces(a, b spot) int { return cmp.Or(slices.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) }

// choice is a set of devices, and how many of the same places stay free, by level.
type choice struct {
	spots []spot
	left  [levels]int
}

// pick chooses n of the free devices, which are sorted and at one place down to level, beside those that are chosen. At
// each level, from the widest to the narrowest, it touches as few places as it can: first those of chosen devices; then
// one that has enough, and of several that whose devices are closest together, and then the one with the fewest to
// spare; where none has enough, the largest whole. What is equal falls to the first.
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

// bestOf returns the place to take up to n devices from next, and which.
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

// split cuts sorted devices into those of the same place at a level.
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

// within returns the devices that are at a place.
func within(spots []spot, step string, level int) []spot {
	var out []spot
	for _, s := range spots {
		if s.at.step(level) == step {
			out = append(out, s)
		}
	}
	return out
}

// spread says on how many places devices are, by level: the fewer, and that at wider levels first, the closer they are.
func spread(spots []spot) (places [levels]int) {
	sortSpots(spots)
	for i := range spots {
		first := 0 // the first level on which it is not where the one before it is
		for i > 0 && first < levels && spots[i].at.step(first) == spots[i-1].at.step(first) {
			first++
		}
		for l := first; l < levels; l++ {
			places[l]++
		}
	}
	return places
}
