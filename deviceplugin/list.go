package deviceplugin

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/acceld/acceld/accel"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// device is one row of the list that the kubelet gets: a device or one of its replicas. A device in a list is never
// changed.
type device struct {
	id     string
	of     string // the device's id
	pci    string // its PCI address
	numa   int    // -1 if the platform reports none
	at     place
	health accel.Health
	// withheld is why a healthy device is not offered; nil if it is offered.
	withheld *accel.Withheld
	nodes    []accel.DeviceNode
	beside   []string // further nodes, see accel.Accelerator
	env      []string
	replicas int       // how many rows the device has
	bare     bool      // no CDI spec has it
	gone     time.Time // since when it is a tombstone; zero if the device exists
	kept     bool      // it exists only for the pod that holds it, see keep
	taken    bool      // it is not offered, see occupy
	fewer    bool      // it is a tombstone because the device has fewer replicas now, see chosenBefore
}

// offered reports whether the kubelet may give the row to a container.
func (d device) offered() bool {
	return d.health.Usable() && d.withheld == nil && !d.taken
}

// left reports whether the device has left the resource: it is gone, or its partitions are offered instead. It is no
// longer counted once no pod holds it.
func (d device) left() bool {
	return d.health.State == accel.Gone || d.withheld != nil && d.withheld.By == accel.ByPartitions
}

// list is an immutable version of the inventory.
type list struct {
	def     *accel.Definition
	devices map[string]device
	healthy []string // ids, sorted
	// message is what the kubelet gets; revision counts its changes.
	message  *pluginapi.ListAndWatchResponse
	revision int
	replaced chan struct{} // closed when there is a newer list
}

// inventory holds the current list. Readers load it without a lock. The lock is held only for operations in memory,
// so that a call of the kubelet never waits for anything else.
type inventory struct {
	current atomic.Pointer[list]

	mu    sync.Mutex
	calls int           // Allocate and GetPreferredAllocation in flight
	idle  chan struct{} // closed when no call is in flight; nil before the first call
	given chan struct{} // closed by the first update
	// forgotten has the tombstones that were dropped although the agent still reports them as gone.
	forgotten map[string]bool
	// def is the definition that the next update follows.
	def  *accel.Definition
	held heldRefs // the last known holders
}

func newInventory(def *accel.Definition) *inventory {
	inv := &inventory{def: def, forgotten: map[string]bool{}, given: make(chan struct{})}
	inv.current.Store(&list{
		def: def, devices: map[string]device{}, message: &pluginapi.ListAndWatchResponse{},
		replaced: make(chan struct{}),
	})
	return inv
}

func (inv *inventory) load() *list { return inv.current.Load() }

// redefine makes the next update follow def.
func (inv *inventory) redefine(def *accel.Definition) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.def = def
}

// update replaces the devices with accelerators, and turns those that are missing into tombstones.
func (inv *inventory) update(accelerators []accel.Accelerator, now time.Time) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	old := inv.load().devices
	next := make(map[string]device, len(accelerators))
	forgotten := map[string]bool{}
	for _, d := range inv.rows(accelerators) {
		if d.left() {
			before, known := old[d.id]
			if !known && inv.forgotten[d.id] {
				forgotten[d.id] = true
				continue
			}
			d.gone = now
			if !before.gone.IsZero() {
				d.gone = before.gone
			}
		}
		next[d.id] = d
	}
	for id, d := range old {
		if _, named := next[id]; named || forgotten[id] {
			continue
		}
		if kept, there := keep(next, id); there && d.gone.IsZero() {
			if _, isHeld := inv.held.now[id]; isHeld || d.kept {
				next[id] = kept
				continue
			}
			d.fewer = true
		}
		next[id] = tombstone(d, now)
	}
	inv.forgotten = forgotten
	inv.replace(next)
	select {
	case <-inv.given:
	default:
		close(inv.given)
	}
}

// rows returns the devices as the kubelet gets them, with one row per replica.
func (inv *inventory) rows(accelerators []accel.Accelerator) []device {
	places := placesOf(accelerators)
	var rows []device
	for _, a := range accelerators {
		nodes, env := slices.Clone(a.Nodes), slices.Clone(a.Env)
		replicas := inv.def.ReplicasOf(a)
		for n := range replicas {
			rows = append(rows, device{
				id: replicaID(a.ID, n), of: a.ID, pci: a.Address(), numa: a.NUMANode, at: places[a.ID],
				replicas: replicas, health: a.Health, withheld: a.Withheld, nodes: nodes, env: env, bare: a.Bare,
				beside: slices.Clone(a.Beside),
			})
		}
	}
	return rows
}

// adopt records who holds devices. It adds rows for ids that a pod holds but the agent does not report. Some are
// tombstones of devices that vanished while no agent was running; without a row the kubelet would report them as
// healthy to their pods. Others are replicas of devices that now have fewer replicas.
func (inv *inventory) adopt(held heldRefs, now time.Time) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.held = held
	next := maps.Clone(inv.load().devices)
	for id := range held.now {
		d, known := next[id]
		if known && d.gone.IsZero() {
			continue
		}
		if kept, there := keep(next, id); there {
			next[id] = kept
		} else if !known {
			next[id] = tombstone(device{id: id, of: DeviceOf(id), numa: -1}, now)
		}
	}
	inv.replace(next)
}

// sweep drops tombstones that no pod holds and that are at least grace old. Rows that were kept for a pod become
// tombstones when that pod has ended. It drops nothing while a call is in flight: the kubelet panics if a device
// leaves the list between its choice and the end of its Allocate. The kubelet chose before the call arrived here,
// but only among healthy devices, so the grace period covers that gap.
func (inv *inventory) sweep(held map[string]PodRef, now time.Time, grace time.Duration) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if inv.calls > 0 {
		return
	}
	old := inv.load().devices
	next := maps.Clone(old)
	for id, d := range old {
		switch _, isHeld := held[id]; {
		case isHeld:
		case d.kept && d.gone.IsZero():
			next[id] = tombstone(d, now)
		case !d.gone.IsZero() && now.Sub(d.gone) >= grace:
			delete(next, id)
			inv.forgotten[id] = true
		}
	}
	inv.replace(next)
}

// enter marks a call as in flight until the returned function is called.
func (inv *inventory) enter() (leave func()) {
	inv.mu.Lock()
	if inv.calls == 0 {
		inv.idle = make(chan struct{})
	}
	inv.calls++
	inv.mu.Unlock()
	return func() {
		inv.mu.Lock()
		inv.calls--
		if inv.calls == 0 {
			close(inv.idle)
		}
		inv.mu.Unlock()
	}
}

// quiet waits until no call is in flight, at most for patience.
func (inv *inventory) quiet(patience time.Duration) {
	inv.mu.Lock()
	idle := inv.idle
	inv.mu.Unlock()
	if idle == nil {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// replace publishes devices as the next list if anything changed. The caller holds the lock.
func (inv *inventory) replace(devices map[string]device) {
	inv.occupy(devices)
	before := inv.load()
	if inv.def == before.def && reflect.DeepEqual(devices, before.devices) {
		return
	}
	next := &list{
		def: inv.def, devices: devices, message: before.message, revision: before.revision,
		replaced: make(chan struct{}),
	}
	message := &pluginapi.ListAndWatchResponse{}
	for _, id := range slices.Sorted(maps.Keys(devices)) {
		d := devices[id]
		row := &pluginapi.Device{ID: id, Health: pluginapi.Unhealthy}
		if d.offered() {
			row.Health = pluginapi.Healthy
			next.healthy = append(next.healthy, id)
		}
		if d.numa >= 0 {
			row.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(d.numa)}}}
		}
		message.Devices = append(message.Devices, row)
	}
	if !proto.Equal(message, before.message) {
		next.message, next.revision = message, before.revision+1
	}
	inv.current.Store(next)
	close(before.replaced)
}

func tombstone(d device, now time.Time) device {
	if !d.gone.IsZero() {
		return d
	}
	message := "the device is no longer there"
	if d.kept || d.fewer {
		message = "the device has fewer replicas than before"
	}
	d.gone, d.kept = now, false
	d.health = accel.Health{State: accel.Gone, Reason: accel.DeviceGone, Message: message, Since: now}
	return d
}
