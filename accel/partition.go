package accel

import (
	"cmp"
	"slices"
	"strings"
)

// Partitions says how to find the partitions of a device, and what containers get with a partition. acceld divides a
// device only if Layout says so. Otherwise it offers the partitions that exist, and does not offer a divided device
// as a whole.
type Partitions struct {
	// Find is a glob pattern that matches once for each existing partition: relative to the PCI function's sysfs
	// directory, such as "virtfn*", or below "/sys/", "/proc/driver/" or "/dev/". In it {{.Address}} is the
	// function's address and {{.Number}} is the number from NumberFrom.
	Find string `json:"find,omitempty" template:"device" privileged:"looks for files of the host" unless:"own"`
	// Told means that the definition's probe program reports partitions, their profiles and nodes; no other field
	// describes how to find them.
	Told bool `json:"told,omitempty"`
	// Rename is the extended resource of profiles without their own, such as "example.com/part-{{.Profile}}". By
	// default it is the resource of the kind, a dash and the profile.
	Rename string `json:"rename,omitempty" template:"partition"`
	// NumberFrom is an attribute of the device (see HealthSource.File) that holds its driver's number for it.
	NumberFrom string `json:"numberFrom,omitempty" template:"device" privileged:"reads a file of the host" unless:"own"`
	// Of selects the matches of Find that belong to the device, if the path does not show that.
	Of *Belonging `json:"of,omitempty"`
	// Form is a regular expression (RE2) for a part of the path that Find matched; a path that it does not match is
	// not a partition. Its group "name" is the partition's name, which must be the same each time the device is
	// divided in the same way. Without that group, the name consists of the path elements that are patterns in Find,
	// joined by dashes. With Of, whose matches cover all devices, it is instead the index of the partition among
	// those of its device, from 0. The group "profile" is the profile.
	Form string `json:"form,omitempty"`
	// Profile is a file that holds the name of the profile, like HealthSource.File but relative to the match of Find.
	Profile string `json:"profile,omitempty" template:"device" privileged:"reads a file of the host" unless:"own"`
	// Whole is the profile of an undivided device, if Find matches on such a device, too.
	Whole string `json:"whole,omitempty"`
	// Nodes describes the device nodes of a partition like those of a device, but relative to the match of Find; the
	// glob "." is the match itself.
	Nodes []NodeSource `json:"nodes,omitempty"`
	// WithDevice gives containers the nodes of the device in addition to those of the partition.
	WithDevice bool `json:"withDevice,omitempty"`
	// Env is what containers get with a partition, "NAME=value" each; {{.Address}}, {{.Name}} and {{.Profile}} are
	// replaced.
	Env []string `json:"env,omitempty" template:"partition"`
	// Layout says how to divide devices, if the probe program can do that (Told). Without it acceld divides nothing.
	Layout []Layout `json:"layout,omitempty"`
	// Make says how acceld divides a device for claims that ask for a part of it; nil if it divides none for claims.
	Make *Making `json:"make,omitempty"`
	// Counters are amounts that a device has and its partitions consume, by name, such as "slices": "8". With them,
	// DRA can publish the partitions into which a device could be divided.
	Counters map[string]string `json:"counters,omitempty"`
	// Profiles says more about some profiles; a profile that is not listed is offered all the same.
	Profiles []Profile `json:"profiles,omitempty"`
}

// Belonging decides whether something that was found belongs to the device: by a number that an attribute of the
// device also holds, or by the device's location on the bus.
type Belonging struct {
	// File is an attribute, relative to the match, such as "properties#unique_id".
	File string `json:"file" template:"device" privileged:"reads a file of the host" unless:"own"`
	// Device is an attribute of the device (see HealthSource.File) that holds the same number. Either Device or Place
	// is required.
	Device string `json:"device,omitempty" template:"device" privileged:"reads a file of the host" unless:"own"`
	// Hex says that Device is written in hexadecimal digits without "0x".
	Hex bool `json:"hex,omitempty"`
	// Place says that File holds the location on the bus: the bus in bits 15 to 8, the device in bits 7 to 3. The
	// other bits are ignored, because some drivers keep the numbers of parts of a device there.
	Place bool `json:"place,omitempty"`
	// Domain is an attribute, relative to the match, that holds the PCI domain, for Place. Without it the domain is
	// ignored.
	Domain string `json:"domain,omitempty" template:"device" privileged:"reads a file of the host" unless:"own"`
}

// Profile is a kind of partition.
type Profile struct {
	// Name is the name that the device reports, such as "1g.5gb"; characters other than letters, digits, dots,
	// underscores and dashes become dashes.
	Name string `json:"name"`
	// Rename is the extended resource if it is not the resource of the kind, a dash and Name.
	Rename string `json:"rename,omitempty"`
	// Capacity lists the amounts that a partition has, in the same form as those of a device.
	Capacity []Capacity `json:"capacity,omitempty"`
	// Uses is how much of each of the Counters a partition takes.
	Uses map[string]string `json:"uses,omitempty"`
	// Possible names the partitions of this profile that a device can have.
	Possible []string `json:"possible,omitempty"`
	// Make is what is written to the file of Partitions.Make to divide a device into the Possible partitions.
	Make string `json:"make,omitempty"`
}

// NodesOf returns the node sources for a partition of a profile; the device's own for the empty profile.
func (def *Definition) NodesOf(profile string) []NodeSource {
	if profile == "" || def.Partitions == nil {
		return def.Nodes
	}
	if def.Partitions.WithDevice {
		return append(slices.Clone(def.Partitions.Nodes), def.Nodes...)
	}
	return def.Partitions.Nodes
}

// Profile returns what the definition says about a profile; only the name if it says nothing.
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

// OfferedAs returns the extended resource that pods request to get a partition of a profile. For the empty profile,
// which is the whole device, it is [Definition.Offered].
func (def *Definition) OfferedAs(profile string) string {
	if profile == "" {
		return def.Offered()
	}
	if profile == AsideProfile && def.VFIO != nil {
		return cmp.Or(def.VFIO.Resource, cmp.Or(def.Rename, def.Resource)+"-"+AsideProfile)
	}
	name := cmp.Or(def.Profile(profile).Rename, def.renamed(profile), cmp.Or(def.Rename, def.Resource)+"-"+profile)
	if def.Replicas() > 1 && def.Sharing.Rename {
		return name + sharedSuffix
	}
	return name
}

// renamed returns the resource of a profile by the rule for all profiles; empty if there is no rule.
func (def *Definition) renamed(profile string) string {
	if def.Partitions == nil {
		return ""
	}
	return PartitionText(def.Partitions.Rename, "", "", profile)
}

// FormerlyOfferedAs returns the other names under which the kubelet may know a profile's resource, as
// [Definition.FormerlyOffered] does for devices.
func (def *Definition) FormerlyOfferedAs(profile string) []string {
	if profile == "" {
		return def.FormerlyOffered()
	}
	own, usual := cmp.Or(def.Profile(profile).Rename, def.renamed(profile)), cmp.Or(def.Rename, def.Resource)+"-"+
		profile
	return others(def.OfferedAs(profile), def.Resource+"-"+profile, usual, cmp.Or(own, usual))
}

// PartitionWord turns a device's name for a partition or profile into a word that is valid in IDs and resource names.
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

// PartitionID returns the ID of a partition: the device's ID, the profile and the partition's name. It stays the same
// across reboots, and changes if the same place is divided differently.
func PartitionID(device, profile, name string) string { return device + "-" + profile + "-" + name }

// PartName returns the name that a partition has among those of its profile; empty for a device.
func (a Accelerator) PartName() string {
	if a.Parent == "" {
		return ""
	}
	return strings.TrimPrefix(a.ID, PartitionID(a.Parent, a.Profile, ""))
}

// Address returns the address of the device, or of the device that a partition belongs to.
func (a Accelerator) Address() string { return cmp.Or(a.Parent, a.ID) }

// Partitioned reports whether the device is currently divided.
func (a Accelerator) Partitioned() bool {
	return slices.ContainsFunc(a.Partitions, Accelerator.Present)
}

// Flat returns devices and their partitions, each partition after its device. A partition's health is never better
// than its device's, and it is withheld while its device is, unless it is what is offered of a device that is set
// aside.
func Flat(accs []Accelerator) []Accelerator {
	out := make([]Accelerator, 0, len(accs))
	for _, a := range accs {
		parts := a.Partitions
		a.Partitions = nil
		out = append(out, a)
		for _, p := range parts {
			p.Health = p.Health.Below(a.Health)
			if a.Withheld != nil && !p.Aside() {
				p.Withheld = a.Withheld
			}
			out = append(out, p)
		}
	}
	return out
}

// FormerPartition reports whether a is the tombstone of a partition. A device that is gone is missing; a partition that
// is gone is not, because somebody has divided its device differently.
func (a Accelerator) FormerPartition() bool { return a.Parent != "" && !a.Present() }

// Current returns what people count: devices, and partitions that exist, as [Flat] lists them.
func Current(accs []Accelerator) []Accelerator {
	return slices.DeleteFunc(Flat(accs), Accelerator.FormerPartition)
}

// Units returns what can be given to containers: devices and partitions as [Flat] lists them. A divided device is
// withheld, for that reason unless acceld has divided it for claims and has another one.
func Units(accs []Accelerator) []Accelerator {
	out := Flat(accs)
	divided := map[string]bool{}
	for _, a := range accs {
		divided[a.ID] = a.Partitioned()
	}
	for i, a := range out {
		if divided[a.ID] && a.Present() && (a.Divided == nil || a.Withheld == nil) {
			out[i].Withheld = &Withheld{
				By: ByPartitions, Reason: DevicePartitioned,
				Message: "it is divided into partitions",
			}
			if a.InOtherUse() {
				out[i].Withheld.Reason, out[i].Withheld.Message = a.Withheld.Reason, a.Withheld.Message
			}
		}
	}
	return out
}

// Below returns the health of a partition whose own health is h, given the health of its device.
func (h Health) Below(device Health) Health {
	if h.Usable() || h.State == "" || device.State == Gone && h.State != Gone {
		return device
	}
	return h
}
