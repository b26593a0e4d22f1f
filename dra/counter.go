package dra

import (
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// setsPerSlice is how many counter sets a slice may have (ResourceSliceMaxCounterSets of k8s.io/api/resource/v1). Since
// Kubernetes 1.35 a slice with counters has no devices.
const setsPerSlice = 8

// firstCounters is the number of the first slice with counters. These slices come after those with devices, and keep
// their names when there are more devices.
const firstCounters = 0x800

// devices renders what claims can get: devices and partitions. If the definition lists the possible partitions of a
// device, those that do not exist now are rendered too: with a taint, unless acceld makes them when a claim asks.
func (v View) devices() []Device {
	all := slices.Clone(v.Accelerators)
	if d := v.Definition.Partitions; d != nil {
		if d.Make != nil {
			all = slices.DeleteFunc(all, accel.Accelerator.FormerPartition)
		}
		for _, a := range v.Accelerators {
			if a.Parent == "" && a.Present() {
				all = append(all, absent(a, d, all)...)
			}
		}
	}
	accel.SortByID(all)
	var out []Device
	for _, a := range all {
		if v.Uncounted && v.Definition.Makes() && unmade(a) {
			a.Withheld = &accel.Withheld{
				By: accel.ByPartitions, Reason: accel.PartitionAbsent,
				Message: "the API server does not count the parts of devices (DRAPartitionableDevices)",
			}
		}
		if v.Refused[DeviceName(a.Parent)] && unmade(a) && a.Withheld == nil {
			a.Withheld = &accel.Withheld{
				By: accel.ByPartitions, Reason: accel.DivisionRefused, Message: "the device could not be divided just now",
			}
		}
		out = append(out, v.device(a))
	}
	return out
}

// absent returns the partitions that a could have but does not have now.
func absent(a accel.Accelerator, d *accel.Partitions, there []accel.Accelerator) []accel.Accelerator {
	var out []accel.Accelerator
	for _, p := range d.Profiles {
		profile := accel.PartitionWord(p.Name)
		for _, name := range p.Possible {
			id := accel.PartitionID(a.ID, profile, name)
			if slices.ContainsFunc(there, func(x accel.Accelerator) bool { return x.ID == id }) {
				continue
			}
			x := accel.Accelerator{
				ID: id, Parent: a.ID, Profile: profile, NUMANode: a.NUMANode, Serial: a.Serial, Model: a.Model,
				Health: a.Health, Withheld: &accel.Withheld{
					By: accel.ByPartitions, Reason: accel.PartitionAbsent, Message: "the device is not divided so",
				},
			}
			switch {
			case d.Make == nil:
			case a.OnDemand():
				x.Withheld = nil
			case a.Withheld != nil && !a.WithheldBy(accel.ByPartitions):
				x.Withheld = a.Withheld
			}
			out = append(out, x)
		}
	}
	return out
}

// unmade reports whether a partition does not exist: it has no driver.
func unmade(a accel.Accelerator) bool { return a.Parent != "" && a.Present() && a.Bound == "" }

// uses renders what a device takes from the counters: all of its own, or of its parent's what its profile says.
func (v View) uses(a accel.Accelerator) []Consumption {
	d := v.Definition.Partitions
	if d == nil {
		return nil
	}
	taken := d.AllCounters()
	if a.Profile != "" {
		taken = d.Taken(a.Profile, a.PartName())
	}
	if len(taken) == 0 {
		return nil // nothing is known about this profile
	}
	return []Consumption{{CounterSet: DeviceName(a.Address()), Counters: counters(taken)}}
}

// counterSets renders the counters of each device.
func (v View) counterSets() []CounterSet {
	d := v.Definition.Partitions
	if d == nil || len(d.AllCounters()) == 0 {
		return nil
	}
	var out []CounterSet
	for _, a := range v.Accelerators {
		if a.Parent == "" {
			out = append(out, CounterSet{Name: DeviceName(a.ID), Counters: counters(d.AllCounters())})
		}
	}
	slices.SortFunc(out, func(a, b CounterSet) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func counters(amounts map[string]string) map[string]Counter {
	out := map[string]Counter{}
	for name, amount := range amounts {
		if value := canonical(amount); value != "" { // else the API server would refuse the whole slice
			out[name] = Counter{Value: value}
		}
	}
	return out
}
