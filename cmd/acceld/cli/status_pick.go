package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// pick reduces a machine to the kinds and devices that were named. A device is named by its ID, or by that of one of
// its partitions, and comes with all of its partitions. A word that names nothing is wrong usage.
func pick(m accel.Machine, words []string) (accel.Machine, error) {
	if len(words) == 0 {
		return m, nil
	}
	out := m
	out.Status, out.Have = map[string]accel.Status{}, map[string]accel.Have{}
	for _, word := range words {
		found := false
		for kind, status := range m.Status {
			have := m.Have[kind]
			if kind != word {
				devices := slices.DeleteFunc(slices.Clone(have.Accelerators), func(a accel.Accelerator) bool {
					return !named(a, word)
				})
				if len(devices) == 0 {
					continue
				}
				have.Accelerators = devices
				if before, there := out.Have[kind]; there { // an earlier word has named the kind or a device of it
					have.Accelerators = joined(m.Have[kind].Accelerators, before.Accelerators, devices)
				}
			}
			found = true
			out.Status[kind], out.Have[kind] = status, have
		}
		if !found {
			return m, exit{exitUsage, fmt.Errorf("%q is neither a kind nor a device of this host (kinds: %s)", word,
				strings.Join(sorted(m.Status), ", "))}
		}
	}
	return out, nil
}

// named reports whether a device, or a partition of it, has this ID.
func named(a accel.Accelerator, id string) bool {
	return a.ID == id || slices.ContainsFunc(a.Partitions, func(p accel.Accelerator) bool { return p.ID == id })
}

// joined returns the devices of all that are in a or in b.
func joined(all, a, b []accel.Accelerator) []accel.Accelerator {
	in := func(x accel.Accelerator) bool {
		same := func(y accel.Accelerator) bool { return x.ID == y.ID }
		return slices.ContainsFunc(a, same) || slices.ContainsFunc(b, same)
	}
	return slices.DeleteFunc(slices.Clone(all), func(x accel.Accelerator) bool { return !in(x) })
}
