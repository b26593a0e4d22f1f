package accel

import (
	"cmp"
	"slices"
	"strings"
)

// Partitions says how the parts into which a device is divided are found, and what containers get with one of them.
// acceld divides no device unless Layout says so: it gives out what is there, and a device that is divided is not given
// out whole.
type Partitions struct {
	// Find is a pattern that matches once for each partition that there is: relative to the PCI function's sysfs
	// directory, such as "virtfn*", or below "/sys/", "/proc/driver/" or "/dev/". {{.Address}} is the function's
	// address there, {{.Number}} the number in NumberFrom.
	Find string `json:"find,omitempty" template:"device"`
	// Told leaves it to the definition's probe program to find partitions, their profiles and nodes; then nothing else
	// says so.
	Told bool `json:"told,omitempty"`
	// Rename is the extended resource of profiles that do not have their own, such as "example.com/part-{{.Profile}}";
	// without it that is the one of the kind, a dash and the profile.
	Rename string `json:"rename,omitempty" template:"partition"`
	// NumberFrom is an attribute of the device (see HealthSource.File) that holds a number by which its driver calls
	// it.
	NumberFrom string `json:"numberFrom,omitempty" template:"device"`
	// Of keeps of what Find has matched what belongs to the device, where the path does not tell.
	Of *Belonging `json:"of,omitempty"`
	// Form is a regular expression (RE2) for a part of the path that Find has matched; what it does not match is no
	// partition. Its group "name" is the partition's name, which must be the same each time that the device is divided
	// in the same way; without it the name is the elements of the path that are patterns in Find, joined by dashes;
	// with Of, whose list is that of all devices, it is the number of the partition among those of its device, from 0.
	// Its group "profile" is the profile.
	Form string `json:"form,omitempty"`
	// Profile is a file that holds the name of the profile, as HealthSource.File, but relative to what Find has
	// matched.
	Profile string `json:"profile,omitempty" template:"device"`
	// Whole is the profile of a device that is not divided, where Find matches on such a device, too.
	Whole string `json:"whole,omitempty"`
	// Nodes are the device nodes of a partition, as those of a device are described, but relative to what Find has
	// matched; the glob "." is that itself.
	Nodes []NodeSource `json:"nodes,omitempty"`
	// WithDevice gives containers the nodes of the device besides those of the partition.
	WithDevice bool `json:"withDevice,omitempty"`
	// Env is what containers get with a partition, "NAME=value" each, in which {{.Address}}, {{.Name}} and {{.Profile}}
	// are known.
	Env []string `json:"env,omitempty" template:"partition"`
	// Layout says how devices are to be divided, where the probe program can do that (Told); without it acceld divides
	// nothing.
	Layout []Layout `json:"layout,omitempty"`
	// Counters are amounts that a device has and its partitions take from, by name, such as "slices": "8". With them
	// claims can be told what a device could be divided into.
	Counters map[string]string `json:"counters,omitempty"`
	// Profiles say more about profiles; one that is not here is offered all the same.
	Profiles []Profile `json:"profiles,omitempty"`
}

// Belonging tells whether something that was found is of the device: by a number that an attribute of the device holds,
// too, or by the device's place on the bus.
type Belonging struct {
	// File is an attribute, relative to what was found, such as "properties#unique_id".
	File string `json:"file" template:"device"`
	// Device is an attribute of the device (see HealthSource.File) that holds the same number. Either it or Place is
	// needed.
	Device string `json:"device,omitempty" template:"device"`
	// Hex says that Device is written in hexadecimal digits without "0x".
	Hex bool `json:"hex,omitempty"`
	// Place says that File holds the place on the bus: the bus in bits 15 to 8, the device in bits 7 to 3. The other
	// bits are not compared: where drivers have numbers for parts of a device, they keep them there.
	Place bool `json:"place,omitempty"`
	// Domain is an attribute, relative to what was found, that holds the domain of the bus, for Place. Without it the
	// domain is not compared.
	Domain string `json:"domain,omitempty" template:"device"`
}

// Profile is a kind of partition.
type Profile struct {
	// Name is as the device says it, such as "1g.5gb"; characters other than letters, digits, dots, underscores and
	// dashes are written as dashes.
	Name string `json:"name"`
	// Rename is the extended resource where it is not the one of the kind, a dash and Name.
	Rename string `json:"rename,omitempty"`
	// Capacity are the amounts that a partition has, as those of a device.
	Capacity []Capacity `json:"capacity,omitempty"`
	// Uses is how much a partition takes of the Counters.
	Uses map[string]string `json:"uses,omitempty"`
	// Possible are the names of the partitions of this profile that a device can have.
	Possible []string `json:"possible,omitempty"`
}

// NodesOf is how the nodes of a partition of a profile are described; for the empty one, those of a device.
func (def *Definition) NodesOf(profile string) []NodeSource {
	if profile == "" || def.Partitions == nil {
		return def.Nodes
	}
	if def.Partitions.WithDevice {
		return append(slices.Clone(def.Partitions.Nodes), def.Nodes...)
	}
	return def.Partitions.Nodes
}

// Profile returns what the definition says about a profile; only the name for one that it does not know.
func (def *Definition) Profile(name string) Profile {
	if def.Partitions != nil {
		for _, p := range def.Partitions.Profiles {
			if PartitionWord(p.Name) == name {
				return p
			}
		}
	}
	return Profile{Name: name}
}

// OfferedAs is the extended resource that pods ask for to get a partition of a profile; [Definition.Offered] for the
// empty one, which is the whole device.
func (def *Definition) OfferedAs(profile string) string {
	if profile == "" {
		return def.Offered()
	}
	name := cmp.Or(def.Profile(profile).Rename, def.renamed(profile), cmp.Or(def.Rename, def.Resource)+"-"+profile)
	if def.Replicas() > 1 && def.Sharing.Rename {
		return name + sharedSuffix
	}
	return name
}

// renamed is the extended resource of a profile by the rule for all; empty without one.
func (def *Definition) renamed(profile string) string {
	if def.Partitions == nil {
		return ""
	}
	return PartitionText(def.Partitions.Rename, "", "", profile)
}

// FormerlyOfferedAs are the other names of a profile's resource that the kubelet may know, as
// [Definition.FormerlyOffered].
func (def *Definition) FormerlyOfferedAs(profile string) []string {
	if profile == "" {
		return def.FormerlyOffered()
	}
	own, usual := cmp.Or(def.Profile(profile).Rename, def.renamed(profile)), cmp.Or(def.Rename, def.Resource)+"-"+
		profile
	return others(def.OfferedAs(profile), def.Resource+"-"+profile, usual, cmp.Or(own, usual))
}

// PartitionWord makes of what a device calls a partition or a profile a word that can be a part of ids and names of
// resources.
func PartitionWord(text string) string {
	const longest = 40
	text = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, text)
	return strings.Trim(text[:min(len(text), longest)], "._-")
}

// PartitionID is the ID of a partition: that of its device, the profile and its name. It is the same after a reboot,
// and another one when the same place is divided otherwise.
func PartitionID(device, profile, name string) string { return device + "-" + profile + "-" + name }

// Address is the PCI address: of the device that a partition is of.
func (a Accelerator) Address() string { return cmp.Or(a.Parent, a.ID) }

// Partitioned reports whether the device is divided now.
func (a Accelerator) Partitioned() bool {
	for _, p := range a.Partitions {
		if p.Present() {
			return true
		}
	}
	return false
}

// Flat returns devices and their partitions, each partition after its device, with a health that is not better than its
// device's, and withheld while its device is.
func Flat(accs []Accelerator) []Accelerator {
	out := make([]Accelerator, 0, len(accs))
	for _, a := range accs {
		parts := a.Partitions
		a.Partitions = nil
		out = append(out, a)
		for _, p := range parts {
			p.Health = p.Health.Below(a.Health)
			if a.Withheld != nil {
				p.Withheld = a.Withheld
			}
			out = append(out, p)
		}
	}
	return out
}

// Units returns what can be given to somebody: devices and partitions as [Flat] has them. A device that is divided is
// withheld.
func Units(accs []Accelerator) []Accelerator {
	out := Flat(accs)
	divided := map[string]bool{}
	for _, a := range accs {
		divided[a.ID] = a.Partitioned()
	}
	for i, a := range out {
		if divided[a.ID] && a.Present() {
			out[i].Withheld = &Withheld{
				By: ByPartitions, Reason: DevicePartitioned,
				Message: "it is divided into partitions",
			}
		}
	}
	return out
}

// Below is the health of a partition that by itself is in health h, of a device in another.
func (h Health) Below(device Health) Health {
	if h.Usable() || h.State == "" || device.State == Gone && h.State != Gone {
		return device
	}
	return h
}
