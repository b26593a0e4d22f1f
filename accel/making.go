package accel

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
)

// Making says how acceld divides a device for claims that ask for a part of it, and makes it whole again when the last
// of them is over. All possible partitions are then offered to claims. A device has parts of one profile at a time;
// counters tell the scheduler so.
type Making struct {
	// File is an attribute relative to the PCI function's sysfs directory, which can be read and written, such as
	// "sriov_numvfs". A profile's Make is written to it to divide the device, and Whole to undo that.
	File string `json:"file,omitempty" privileged:"writes to the device"`
	// Whole is what File has while the device is undivided.
	Whole string `json:"whole,omitempty"`
	// Program means that the probe program divides the device (Told), instead of File.
	Program bool `json:"program,omitempty"`
	// BeforeBinding makes parts before the scheduler binds a pod that asks for one (binding conditions, Kubernetes
	// 1.36): for devices that take long, or that may refuse. If the part cannot be made, the pod goes elsewhere.
	BeforeBinding bool `json:"beforeBinding,omitempty"`
}

// makingForm is what divides a device: text that fits into one line of an attribute.
var makingForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._,:=/ -]{0,63}$`)

// makingFile is an attribute relative to a device's directory, without patterns.
var makingFile = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]*(/[A-Za-z0-9_][A-Za-z0-9_.:-]*)*$`)

func inDevice(file string) bool { return len(file) <= 128 && makingFile.MatchString(file) }

// MaxParts is how many partitions of one profile a device may have, if acceld makes them: as many as one slice takes.
const MaxParts = 64

// Makes reports whether acceld divides devices of the kind for claims.
func (def *Definition) Makes() bool { return def.Partitions != nil && def.Partitions.Make != nil }

// makingMisfit says what an override cannot have because the definition says how devices are divided for claims.
func makingMisfit(def *Definition) string {
	if def.Makes() && def.Functions != nil {
		return fmt.Sprintf("functions: the definition of %q says how devices are divided for claims (partitions.make)",
			def.Kind)
	}
	return ""
}

// MadeBy returns what divides a device into parts of a profile.
func (d *Partitions) MadeBy(p Profile) string {
	if d.Make.Program {
		return fmt.Sprintf("%s=%d", PartitionWord(p.Name), len(p.Possible))
	}
	return p.Make
}

// MakingProblems returns the errors in how parts are made, each as "<field>: <sentence>"; see [Partitions.Make].
func (d *Partitions) MakingProblems() (out []string) {
	if d.Make == nil {
		return nil
	}
	bad := func(field, format string, args ...any) {
		out = append(out, field+": "+fmt.Sprintf(format, args...))
	}
	m := d.Make
	switch {
	case (m.File == "") == !m.Program:
		bad("make", "either file or program is needed")
	case m.File != "" && !inDevice(m.File):
		bad("make.file", "%.80q is no attribute in the directory of the device", m.File)
	case m.Program && (m.Whole != "" || !d.Told):
		bad("make.program", "is for partitions that the probe program tells, without whole")
	case !m.Program && !makingForm.MatchString(m.Whole):
		bad("make.whole", "%.80q is no text of up to 64 characters that undoes the division", m.Whole)
	}
	if len(d.Layout) > 0 {
		bad("make", "and layout cannot both say how a device is divided")
	}
	made, counters := 0, 0
	for i, p := range d.Profiles {
		field := fmt.Sprintf("profiles[%d]", i)
		switch {
		case len(p.Possible) == 0:
			if p.Make != "" {
				bad(field+".possible", "names the partitions that are made; it is missing")
			}
			continue
		case len(p.Possible) > MaxParts:
			bad(field+".possible", "there are more than %d", MaxParts)
		case m.Program && p.Make != "":
			bad(field+".make", "is for make.file")
		case !m.Program && (!makingForm.MatchString(p.Make) || p.Make == m.Whole):
			bad(field+".make", "%.80q is no text of up to 64 characters that divides the device", p.Make)
		}
		made++
		counters += len(p.Possible)
	}
	if made == 0 {
		bad("make", "no profile has possible partitions")
	}
	if counters -= d.most(); counters+1+len(d.Counters) > maxCounters {
		bad("make", "%d counters are needed to keep the profiles apart, and at most %d are possible",
			counters+1+len(d.Counters), maxCounters)
	}
	return out
}

// maxCounters is how many counters a device can have (ResourceSliceMaxCountersPerCounterSet, k8s.io/api/resource/v1).
const maxCounters = 32

// most returns the number of parts of the profile with the most.
func (d *Partitions) most() (n int) {
	for _, p := range d.Profiles {
		n = max(n, len(p.Possible))
	}
	return n
}

// The counters that keep the parts of a device apart: layoutCounter keeps the whole device and its parts apart, and
// layoutCounter-<profile>-<part> a part of one profile and all parts of the others. The profile with the most parts
// needs none, because the others have theirs.
const layoutCounter = "layout"

// whole returns the amount of each of these counters: a multiple of every number of parts.
func (d *Partitions) whole() int64 {
	all := int64(1)
	for _, p := range d.Profiles {
		if n := int64(len(p.Possible)); n > 0 && all < math.MaxInt64/MaxParts {
			a, b := all, n
			for b != 0 {
				a, b = b, a%b
			}
			all = all / a * n
		}
	}
	return all
}

// counted calls do for each profile whose parts have counters of their own, with its index.
func (d *Partitions) counted(do func(i int, p Profile)) {
	skipped := false
	for i, p := range d.Profiles {
		if len(p.Possible) == d.most() && !skipped {
			skipped = true
			continue
		}
		do(i, p)
	}
}

func partCounter(profile, part int) string {
	return fmt.Sprintf("%s-%d-%d", layoutCounter, profile, part)
}

// AllCounters returns the counters of a device: those of the definition, and those that keep parts apart which acceld
// makes.
func (d *Partitions) AllCounters() map[string]string {
	if d.Make == nil {
		return d.Counters
	}
	all := map[string]string{}
	for name, amount := range d.Counters {
		all[name] = amount
	}
	full := strconv.FormatInt(d.whole(), 10)
	all[layoutCounter] = full
	d.counted(func(i int, p Profile) {
		for part := range p.Possible {
			all[partCounter(i, part)] = full
		}
	})
	return all
}

// Taken returns what a partition takes of the counters while somebody has it: any two that cannot exist at the same
// time take more than there is. Nothing is known about a partition that is not possible.
func (d *Partitions) Taken(profile, name string) map[string]string {
	for i, p := range d.Profiles {
		if PartitionWord(p.Name) != profile {
			continue
		}
		if d.Make == nil {
			return p.Uses
		}
		return d.takenBy(i, name)
	}
	return nil
}

// takenBy returns what a part of a profile takes.
func (d *Partitions) takenBy(profile int, name string) map[string]string {
	own := -1
	for part, possible := range d.Profiles[profile].Possible {
		if possible == name {
			own = part
		}
	}
	if own < 0 {
		return nil
	}
	all := map[string]string{}
	for counter, amount := range d.Profiles[profile].Uses {
		all[counter] = amount
	}
	share := strconv.FormatInt(d.whole()/int64(len(d.Profiles[profile].Possible)), 10)
	all[layoutCounter] = share
	d.counted(func(i int, p Profile) {
		for part := range p.Possible {
			switch {
			case i != profile:
				all[partCounter(i, part)] = share
			case part == own:
				all[partCounter(i, part)] = strconv.FormatInt(d.whole(), 10)
			}
		}
	})
	return all
}
