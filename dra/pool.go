package dra

import (
	"maps"
	"reflect"
	"slices"
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
	driver := DriverName(v.Definition)
	slice := func(i int) Slice {
		return Slice{
			APIVersion: apiVersion, Kind: "ResourceSlice",
			Metadata: kube.Meta{Identity: kube.Identity{Name: sliceName(v.Node, driver, i)}},
			Spec:     SliceSpec{Driver: driver, NodeName: v.Node, Pool: Pool{Name: v.Node}},
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
	create, update, remove []Slice
}

func (p plan) empty() bool { return len(p.create)+len(p.update)+len(p.remove) == 0 }

// planFor compares the wanted slices with those at the API server. For slices that the API server changed on writing,
// settled has what was sent, by name: the server dropped fields that it does not know, and would drop them again. The
// generation rises if more than one existing slice must change, because a reader must not mix old and new ones, or if
// the number of slices changes.
func planFor(wanted []Slice, there map[string]*Slice, settled map[string]Slice) plan {
	current := max(1, generation(there))
	stale, all := map[string]bool{}, false
	for _, w := range wanted {
		old, exists := there[w.Metadata.Name]
		w.Spec.Pool.Generation = current
		if exists && !same(*old, w, settled) {
			all = all || len(stale) > 0 || old.Spec.Pool.Count != w.Spec.Pool.Count
			stale[w.Metadata.Name] = true
		}
	}
	if all {
		current++
	}
	var p plan
	gone := maps.Clone(there)
	for _, w := range wanted {
		delete(gone, w.Metadata.Name)
		old, exists := there[w.Metadata.Name]
		w.Spec.Pool.Generation = current
		switch {
		case !exists:
			p.create = append(p.create, w)
		case all || stale[w.Metadata.Name]:
			w.Metadata.ResourceVersion, w.Metadata.OwnerReferences = old.Metadata.ResourceVersion,
				old.Metadata.OwnerReferences
			p.update = append(p.update, w)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		p.remove = append(p.remove, *gone[name])
	}
	return p
}

// generation returns the highest generation of the slices.
func generation(all map[string]*Slice) (n int64) {
	for _, s := range all {
		n = max(n, s.Spec.Pool.Generation)
	}
	return n
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
		out = append(out, d)
	}
	return out
}

// usable counts the devices that new claims can get. Parts count once they exist, and a device that is divided for
// claims does not count.
func (b *publisher) usable(all map[string]*Slice) (n int) {
	v := b.list.load()
	for _, s := range all {
		for _, d := range s.Spec.Devices {
			a := v.accelerators[d.Name]
			if len(d.Taints) == 0 && (!v.def.Makes() || a.Offered()) {
				n++
			}
		}
	}
	return n
}
