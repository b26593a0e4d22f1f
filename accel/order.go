package accel

import (
	"maps"
	"slices"
	"strings"
)

// InOrder returns defs sorted so that each comes after the kinds in its After, otherwise by kind. Names in After that
// are not in defs are ignored. cycle names kinds that wait for each other, such as "a-x after b-y after a-x"; they
// come last.
func InOrder(defs map[string]*Definition) (ordered []*Definition, cycle string) {
	const visiting, done = 1, 2
	state := map[string]int{}
	var way []string
	var visit func(kind string)
	visit = func(kind string) {
		switch {
		case defs[kind] == nil || state[kind] == done:
			return
		case state[kind] == visiting:
			if cycle == "" {
				cycle = strings.Join(append(slices.Clone(way[slices.Index(way, kind):]), kind), " after ")
			}
			return
		}
		state[kind] = visiting
		way = append(way, kind)
		for _, before := range defs[kind].After {
			visit(before)
		}
		way = way[:len(way)-1]
		state[kind] = done
		ordered = append(ordered, defs[kind])
	}
	for _, kind := range slices.Sorted(maps.Keys(defs)) {
		visit(kind)
	}
	return ordered, cycle
}
