package dra

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/acceld/acceld/accel"
)

// inventory has the accelerators of the kind as the agent reports them, and who holds which of them other than by
// claims. Readers load a version without a lock.
type inventory struct {
	current atomic.Pointer[version]
	mu      sync.Mutex // one writer at a time
}

// version is an immutable version of the inventory.
type version struct {
	def          *accel.Definition
	accelerators map[string]accel.Accelerator // by device name at the API server
	elsewhere    map[string]string            // holders by accelerator id; nil until they are known
	reported     bool                         // the agent has reported the devices at least once
	replaced     chan struct{}                // closed when there is a newer version
}

func newInventory(def *accel.Definition) *inventory {
	inv := &inventory{}
	inv.current.Store(&version{def: def, replaced: make(chan struct{})})
	return inv
}

func (inv *inventory) load() *version { return inv.current.Load() }

func (inv *inventory) update(accs []accel.Accelerator) {
	next := make(map[string]accel.Accelerator, len(accs))
	for _, a := range accs {
		a.Nodes, a.Metrics = slices.Clone(a.Nodes), nil
		next[DeviceName(a.ID)] = a
	}
	if now := inv.load(); now.reported && reflect.DeepEqual(now.accelerators, next) {
		return
	}
	inv.replace(func(v *version) { v.accelerators, v.reported = next, true })
}

// hold notes who holds devices other than by claims.
func (inv *inventory) hold(elsewhere map[string]string) {
	known := map[string]string{} // not nil: they are known
	maps.Copy(known, elsewhere)
	inv.replace(func(v *version) { v.elsewhere = known })
}

func (inv *inventory) replace(change func(*version)) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	before := inv.load()
	next := *before
	next.replaced = make(chan struct{})
	change(&next)
	inv.current.Store(&next)
	close(before.replaced)
}

// list returns the accelerators, sorted by id, as they are offered to claims.
func (v *version) list() []accel.Accelerator {
	out := v.sorted()
	for i, a := range out {
		out[i] = v.offered(a)
	}
	return out
}

// offered returns an accelerator as it is offered to claims: one that is held in another way is withheld.
func (v *version) offered(a accel.Accelerator) accel.Accelerator {
	if who, held := v.elsewhere[a.ID]; held && a.Offered() {
		a.Withheld = &accel.Withheld{By: accel.ByPod, Reason: accel.DeviceHeld, Message: "held by " + who}
	}
	return a
}

// find returns an accelerator by its device name, as it is offered to claims. A partition that acceld makes when a
// claim asks is known before it exists; see [unmade].
func (v *version) find(name string) (a accel.Accelerator, known bool) {
	a, known = v.accelerators[name]
	if known && !a.FormerPartition() || !v.def.Makes() {
		return v.offered(a), known
	}
	for _, device := range v.accelerators {
		if device.Parent != "" || !device.Present() || !strings.HasPrefix(name, DeviceName(device.ID)+"-") {
			continue
		}
		for _, x := range absent(v.offered(device), v.def.Partitions, nil) {
			if DeviceName(x.ID) == name {
				return x, true
			}
		}
	}
	return v.offered(a), known
}

// sorted returns the accelerators, sorted by id.
func (v *version) sorted() []accel.Accelerator {
	out := slices.Collect(maps.Values(v.accelerators))
	accel.SortByID(out)
	return out
}
