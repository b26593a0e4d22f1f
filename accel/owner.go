package accel

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Rivalry is a PCI function that several kinds recognise although none of them adds to another.
type Rivalry struct {
	Address string
	// Owner is the kind that has the function.
	Owner string
	// Others are the kinds that recognise it too and do not get it, sorted.
	Others []string
}

// Rivalries returns the functions for which kinds compete. The owner is the kind with the most exact row: one with a
// device ID before one without, then one with a driver, then the longest class, then the first kind by name. A kind
// that comes after the owner (see Definition.After) adds to it and competes with nobody. Nor does one that comes after
// a kind that is not in force, because it does not get to work.
func Rivalries(kinds map[string]*Definition, pci []PCIDevice) []Rivalry {
	names := slices.Sorted(maps.Keys(kinds))
	var out []Rivalry
	for i := range pci { // by index: there may be thousands, and they are large
		var who []string
		for _, kind := range names {
			if kinds[kind].Recognises(pci[i]) && !waits(kinds, kind) {
				who = append(who, kind)
			}
		}
		if len(who) < 2 {
			continue
		}
		owner := ownerOf(kinds, who, pci[i])
		others := slices.DeleteFunc(who, func(kind string) bool { return kind == owner || follows(kinds, kind, owner) })
		if len(others) > 0 {
			out = append(out, Rivalry{pci[i].Address, owner, others})
		}
	}
	return out
}

// ownerOf chooses among the kinds that recognise a function. A kind that comes after another of them cannot own it.
func ownerOf(kinds map[string]*Definition, who []string, d PCIDevice) string {
	owner, best := who[0], -1
	for _, kind := range who {
		behind := slices.ContainsFunc(who, func(other string) bool { return follows(kinds, kind, other) })
		if exact := kinds[kind].exactness(d); exact > best && !behind {
			owner, best = kind, exact
		}
	}
	return owner
}

// waits reports whether a kind comes after one that is not in force.
func waits(kinds map[string]*Definition, kind string) bool {
	return slices.ContainsFunc(kinds[kind].After, func(before string) bool { return kinds[before] == nil })
}

// follows reports whether a kind comes after another one, directly or by way of others.
func follows(kinds map[string]*Definition, kind, other string) bool {
	seen := map[string]bool{kind: true}
	for next := []string{kind}; len(next) > 0; next = next[1:] {
		def := kinds[next[0]]
		if def == nil {
			continue
		}
		for _, before := range def.After {
			if before == other {
				return kind != other
			}
			if !seen[before] {
				seen[before] = true
				next = append(next, before)
			}
		}
	}
	return false
}

// exactness says how much the most exact row that matches a function asks for.
func (def *Definition) exactness(d PCIDevice) int {
	most, d := 0, d.Ordinary()
	for _, m := range def.Match {
		if !m.matches(d) {
			continue
		}
		n := len(m.Class) // at most 6
		if m.Driver != "" {
			n += 10
		}
		if m.Device != "" {
			n += 20
		}
		most = max(most, n)
	}
	return most
}

// Lost returns the addresses of the functions that a kind recognises and another kind has.
func Lost(kind string, rivalries []Rivalry) map[string]bool {
	lost := map[string]bool{}
	for _, r := range rivalries {
		if slices.Contains(r.Others, kind) {
			lost[r.Address] = true
		}
	}
	return lost
}

// Contested says for which devices a kind competes with others, and who has them; nil if for none.
func Contested(kind string, rivalries []Rivalry) *Problem {
	var all []Rivalry
	for _, r := range rivalries {
		if r.Owner == kind || slices.Contains(r.Others, kind) {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return nil
	}
	r := all[0]
	more := ""
	if n := len(all) - 1; n > 0 {
		more = fmt.Sprintf("; and %d more such devices", n)
	}
	return Problemf(DeviceContested, "device %q is recognised by kind %q, which has it, and by %s%s", r.Address, r.Owner,
		strings.Join(quoted(r.Others), ", "), more)
}

func quoted(names []string) []string {
	var out []string
	for _, n := range names {
		out = append(out, fmt.Sprintf("%q", n))
	}
	return out
}
