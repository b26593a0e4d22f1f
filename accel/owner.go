package accel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Rivalry is a device that several kinds recognise, or have by what it is on, although none of them adds to another.
type Rivalry struct {
	Address string
	// Owner is the kind that has the device.
	Owner string
	// Others are the kinds that recognise it too and do not get it, sorted.
	Others []string
}

// Rivalries returns the devices for which kinds compete. The owner is the kind with the most exact row: one with a
// device ID before one without, then one with a name, then one with a driver, then the longest class, then the first
// kind by name. Whoever has a PCI function also has what is on or below it, and whoever has a device of a bus has that
// of a class below it: it is the same hardware. A kind that comes after the owner (see Definition.After) adds to it and
// competes with nobody. Nor does one that comes after a kind that is not in force, because it does not get to work.
func Rivalries(kinds map[string]*Definition, devices []Device) []Rivalry {
	names := slices.Sorted(maps.Keys(kinds))
	var out []Rivalry
	owners := map[string]string{} // of devices, by address
	for _, i := range fromAbove(devices) {
		d := devices[i]
		var who []string
		for _, kind := range names {
			if kinds[kind].Recognises(d) && !waits(kinds, kind) {
				who = append(who, kind)
			}
		}
		owner := ""
		for _, above := range d.above() {
			owner = cmp.Or(owner, owners[above])
		}
		if owner == "" && len(who) > 0 {
			owner = ownerOf(kinds, who, d)
		}
		if owner == "" {
			continue
		}
		owners[d.Address] = owner
		others := slices.DeleteFunc(who, func(kind string) bool { return kind == owner || follows(kinds, kind, owner) })
		if len(others) > 0 {
			out = append(out, Rivalry{d.Address, owner, others})
		}
	}
	return out
}

// fromAbove returns the indexes of devices, those above others first: PCI functions, then devices of buses, then those
// of classes. It sorts no devices, because there may be thousands, and they are large.
func fromAbove(devices []Device) []int {
	var floors [3][]int
	for i := range devices {
		floor := 0
		if devices[i].Subsystem != "" {
			floor = 1
			if s, _ := SubsystemNamed(devices[i].Subsystem); s.Class {
				floor = 2
			}
		}
		floors[floor] = append(floors[floor], i)
	}
	return slices.Concat(floors[:]...)
}

// above returns the addresses of what a device may be on, the nearest first: the device of a bus whose place a class
// has, and the PCI function.
func (d *Device) above() (all []string) {
	if d.Subsystem == "" {
		return nil
	}
	place := strings.TrimPrefix(d.Address, d.Subsystem+":")
	for _, s := range Subsystems() {
		if s.Name != PCI && s.Name != d.Subsystem && !s.Class {
			all = append(all, s.Name+":"+place)
		}
	}
	return append(all, d.ParentPort)
}

// ownerOf chooses among the kinds that recognise a device. A kind that comes after another of them cannot own it.
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

// exactness says how much the most exact row that matches a device asks for.
func (def *Definition) exactness(d Device) int {
	most, d := 0, d.Ordinary()
	for _, m := range def.Match {
		if !m.matches(d) {
			continue
		}
		n := len(m.Class) // at most 6
		if m.Driver != "" {
			n += 10
		}
		if m.Name != "" {
			n += 20
		}
		if m.Device != "" {
			n += 40
		}
		most = max(most, n)
	}
	return most
}

// Lost returns the addresses of the devices that a kind recognises and another kind has.
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
