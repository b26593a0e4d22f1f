package deviceplugin

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/acceld/acceld/accel"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// device is one row of the list that the kubelet gets. It is a value; nobody changes one that is in a list.
type device struct {
	id     string
	numa   int // -1 when the platform names none
	health accel.Health
	nodes  []accel.DeviceNode
	gone   time.Time // since when it is a tombstone; zero for a device that is there
}

func (d device) equal(e device) bool {
	return d.id == e.id && d.numa == e.numa && d.health == e.health && d.gone.Equal(e.gone) && slices.Equal(d.nodes, e.nodes)
}

func (d device) healthy() bool { return d.health.Usable() }

// list is an immutable version of the inventory.
type list struct {
	devices map[string]device
	healthy []string // ids, sorted
	// message is what the kubelet gets, revision counts its changes.
	message  *pluginapi.ListAndWatchResponse
	revision int
	replaced chan struct{} // closed when there is a newer list
}

// inventory holds the current list. Readers take it without a lock; the lock is held for memory operations only, so
// that no call of the kubelet ever waits for anything else.
type inventory struct {
	current atomic.Pointer[list]

	mu    sync.Mutex
	calls int           // Allocate and GetPreferredAllocation in flight
	given chan struct{} // closed by the first update
	// forgotten are tombstones that were dropped while the agent still names them as gone.
	forgotten map[string]bool
}

func newInventory() *inventory {
	inv := &inventory{forgotten: map[string]bool{}, given: make(chan struct{})}
	inv.current.Store(&list{message: &pluginapi.ListAndWatchResponse{}, replaced: make(chan struct{})})
	return inv
}

func (inv *inventory) load() *list { return inv.current.Load() }

// update replaces the devices that are there by accelerators, and makes the others tombstones.
func (inv *inventory) update(accelerators []accel.Accelerator, now time.Time) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	old := inv.load().devices
	next := make(map[string]device, len(accelerators))
	forgotten := map[string]bool{}
	for _, a := range accelerators {
		d := device{id: a.ID, numa: a.NUMANode, health: a.Health, nodes: slices.Clone(a.Nodes)}
		if a.Health.State == accel.Gone {
			before, known := old[a.ID]
			if !known && inv.forgotten[a.ID] {
				forgotten[a.ID] = true
				continue
			}
			d.gone = now
			if !before.gone.IsZero() {
				d.gone = before.gone
			}
		}
		next[a.ID] = d
	}
	for id, d := range old {
		if _, named := next[id]; !named && !forgotten[id] {
			next[id] = tombstone(d, now)
		}
	}
	inv.forgotten = forgotten
	inv.replace(next)
	select {
	case <-inv.given:
	default:
		close(inv.given)
	}
}

// adopt makes tombstones of devices that a pod holds and nobody names: they vanished while no agent ran. Without it the
// kubelet would report them as healthy to their pods.
func (inv *inventory) adopt(held map[string]PodRef, now time.Time) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	old := inv.load().devices
	next := maps.Clone(old)
	if next == nil {
		next = map[string]device{}
	}
	for id := range held {
		if _, known := old[id]; !known {
			next[id] = tombstone(device{id: id, numa: -1}, now)
		}
	}
	inv.replace(next)
}

// sweep drops tombstones that no pod holds and that have been unhealthy for at least grace. It drops nothing while a
// call is in flight: the kubelet panics when a device leaves the list between its choice and the end of its Allocate.
// The kubelet chose before the call arrived here, which the grace covers: it chooses among healthy devices only.
func (inv *inventory) sweep(held map[string]PodRef, now time.Time, grace time.Duration) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if inv.calls > 0 {
		return
	}
	old := inv.load().devices
	next := maps.Clone(old)
	for id, d := range old {
		if _, isHeld := held[id]; !isHeld && !d.gone.IsZero() && now.Sub(d.gone) >= grace {
			delete(next, id)
			inv.forgotten[id] = true
		}
	}
	inv.replace(next)
}

// tombstones reports whether any device is one.
func (l *list) tombstones() bool {
	for _, d := range l.devices {
		if !d.gone.IsZero() {
			return true
		}
	}
	return false
}

// enter marks a call as in flight until the function that it returns is called.
func (inv *inventory) enter() (leave func()) {
	inv.mu.Lock()
	inv.calls++
	inv.mu.Unlock()
	return func() {
		inv.mu.Lock()
		inv.calls--
		inv.mu.Unlock()
	}
}

// replace publishes devices as the next list, unless nothing is different. The caller holds the lock.
func (inv *inventory) replace(devices map[string]device) {
	before := inv.load()
	if maps.EqualFunc(devices, before.devices, device.equal) {
		return
	}
	next := &list{devices: devices, message: before.message, revision: before.revision, replaced: make(chan struct{})}
	message := &pluginapi.ListAndWatchResponse{}
	for _, id := range slices.Sorted(maps.Keys(devices)) {
		d := devices[id]
		row := &pluginapi.Device{ID: id, Health: pluginapi.Unhealthy}
		if d.healthy() {
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
	d.gone = now
	d.health = accel.Health{State: accel.Gone, Reason: accel.DeviceGone, Message: "the device is no longer there", Since: now}
	return d
}
