package dra

import (
	"reflect"
	"slices"
	"sort"
	"time"

	"github.com/acceld/acceld/kube"
)

// perSlice is how many devices a slice may have if one of them has a taint
// (ResourceSliceMaxDevicesWithAdvancedFeatures of k8s.io/api/resource/v1). Room for taints is always left, so that a
// fault changes one slice and moves no device.
const perSlice = 64

// Slices renders a view as the slices of the node's only pool, in order and without generation. There is always at
// least one: a pool without devices says that there are none.
func Slices(v View) []Slice {
	slice := func(i int) Slice {
		return Slice{
			APIVersion: apiVersion, Kind: "ResourceSlice", Metadata: kube.Meta{Name: sliceName(v.Node, v.Driver, i)},
			Spec: SliceSpec{Driver: v.Driver, NodeName: v.Node, Pool: Pool{Name: v.Node}},
		}
	}
	out := []Slice{slice(0)}
	for i, d := range v.devices() {
		if i > 0 && i%perSlice == 0 {
			out = append(out, slice(i/perSlice))
		}
		last := &out[len(out)-1].Spec
		last.Devices = append(last.Devices, d)
	}
	for i, set := range v.counterSets() {
		if i%setsPerSlice == 0 {
			out = append(out, slice(firstCounters+i/setsPerSlice))
		}
		last := &out[len(out)-1].Spec
		last.SharedCounters = append(last.SharedCounters, set)
	}
	for i := range out {
		out[i].Spec.Pool.Count = int64(len(out))
	}
	return out
}

// plan has the changes that bring the slices at the API server to the wanted ones.
type plan struct {
	create, update []Slice
	remove         []Slice
}

func (p plan) empty() bool { return len(p.create)+len(p.update)+len(p.remove) == 0 }

// planFor compares the wanted slices with those at the API server. For slices that the API server changed on writing,
// settled has what was sent, by name: the server dropped fields that it does not know, and would drop them again. The
// generation rises if more than one existing slice must change, because a reader must not mix old and new ones, or if
// the number of slices changes.
func planFor(wanted []Slice, there map[string]Slice, settled map[string]Slice) plan {
	var p plan
	var generation int64 = 1
	for _, s := range there {
		generation = max(generation, s.Spec.Pool.Generation)
	}
	stale, changed := map[string]bool{}, 0
	for _, w := range wanted {
		old, exists := there[w.Metadata.Name]
		w.Spec.Pool.Generation = generation
		if exists && same(old, w, settled) {
			continue
		}
		stale[w.Metadata.Name] = true
		if exists {
			changed++
		}
		if exists && old.Spec.Pool.Count != w.Spec.Pool.Count {
			changed = len(wanted) + 1
		}
	}
	if changed > 1 {
		generation++
	}
	names := map[string]bool{}
	for _, w := range wanted {
		names[w.Metadata.Name] = true
		old, exists := there[w.Metadata.Name]
		w.Spec.Pool.Generation = generation
		switch {
		case !exists:
			p.create = append(p.create, w)
		case changed > 1 || stale[w.Metadata.Name]:
			w.Metadata.ResourceVersion, w.Metadata.OwnerReferences = old.Metadata.ResourceVersion,
				old.Metadata.OwnerReferences
			p.update = append(p.update, w)
		}
	}
	for name, s := range there {
		if !names[name] {
			p.remove = append(p.remove, s)
		}
	}
	sort.Slice(p.remove, func(i, j int) bool { return p.remove[i].Metadata.Name < p.remove[j].Metadata.Name })
	return p
}

// same reports whether the existing slice is the wanted one, or what the API server made of it.
func same(there, wanted Slice, settled map[string]Slice) bool {
	if equal(there.Spec, wanted.Spec) {
		return true
	}
	reported, ok := settled[wanted.Metadata.Name]
	return ok && reported.Metadata.ResourceVersion == there.Metadata.ResourceVersion &&
		equal(reported.Spec, wanted.Spec)
}

// equal compares contents, except the times at which taints were added: the API server sets a missing time, and a
// restarted agent detects the fault again.
func equal(a, b SliceSpec) bool {
	a.Devices, b.Devices = timeless(a.Devices), timeless(b.Devices)
	return reflect.DeepEqual(a, b)
}

func timeless(devices []Device) []Device {
	var out []Device
	for _, d := range devices {
		d.Taints = slices.Clone(d.Taints)
		for i := range d.Taints {
			d.Taints[i].TimeAdded = time.Time{}
		}
		if len(d.Taints) == 0 {
			d.Taints = nil
		}
		out = append(out, d)
	}
	return out
}

// usable counts the devices that new claims can get.
func usable(all []Slice) int {
	n := 0
	for _, s := range all {
		for _, d := range s.Spec.Devices {
			if len(d.Taints) == 0 {
				n++
			}
		}
	}
	return n
}
