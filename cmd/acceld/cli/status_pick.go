package cli

import (
	"fmt"
	"regexp"
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
	used := map[string]bool{}
	for kind, status := range m.Status {
		whole, have := slices.Contains(words, kind), m.Have[kind]
		used[kind] = true
		have.Accelerators = slices.DeleteFunc(slices.Clone(have.Accelerators), func(a accel.Accelerator) bool {
			picked := whole
			for _, word := range words {
				if named(a, word) {
					used[word], picked = true, true
				}
			}
			return !picked
		})
		if whole || len(have.Accelerators) > 0 {
			out.Status[kind], out.Have[kind] = status, have
		}
	}
	for _, word := range words {
		if !used[word] {
			return m, exit{exitUsage, fmt.Errorf("%q is neither a kind nor a device of this host (kinds: %s)", word,
				strings.Join(sorted(m.Status), ", "))}
		}
	}
	return out, nil
}

// pci returns a PCI address with its domain, which people leave out as lspci does; empty for anything else.
func pci(id string) string {
	if regexp.MustCompile(`^[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$`).MatchString(id) {
		return "0000:" + strings.ToLower(id)
	}
	return ""
}

// named reports whether a device, or a partition of it, has this ID.
func named(a accel.Accelerator, id string) bool {
	if pci(id) != "" {
		id = pci(id)
	}
	return a.ID == id || slices.ContainsFunc(a.Partitions, func(p accel.Accelerator) bool { return p.ID == id })
}
