package deviceplugin

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

// replicaMark separates a device's id from the number of a replica.
const replicaMark = "::"

// replicaID is the kubelet's id for the n-th replica of a device, counted from 0: "<id>::<n>". The first replica has
// the device's own id, so that what a pod holds stays valid when a device starts or stops being shared.
func replicaID(id string, n int) string {
	if n == 0 {
		return id
	}
	return id + replicaMark + strconv.Itoa(n)
}

// DeviceOf returns the id of the device that one of the kubelet's ids stands for.
func DeviceOf(id string) string {
	of, _, _ := strings.Cut(id, replicaMark)
	return of
}

// heldRefs says who holds devices, by the kubelet's ids.
type heldRefs struct {
	now    map[string]PodRef // under the resource's name
	before map[string]PodRef // under the resource's previous names
}

// with returns the holders of both; newer wins where they differ.
func (h heldRefs) with(newer heldRefs) heldRefs {
	both := heldRefs{now: map[string]PodRef{}, before: map[string]PodRef{}}
	for _, x := range []heldRefs{h, newer} {
		maps.Copy(both.now, x.now)
		maps.Copy(both.before, x.before)
	}
	return both
}

// keep returns a row for a replica that a pod holds although the device now has fewer replicas. The row reports the
// device's health to the pod, and ends with it. It returns false if the device does not exist.
func keep(rows map[string]device, id string) (device, bool) {
	d, there := rows[DeviceOf(id)]
	if !there || !d.gone.IsZero() {
		return device{}, false
	}
	d.id, d.kept, d.taken = id, true, false
	return d, true
}

// chosenBefore reports whether the kubelet may have chosen a replica before it heard that the device has fewer. Its
// Allocate for that is answered: the kubelet would refuse the pod permanently.
func (d device) chosenBefore(devices map[string]device, now time.Time) bool {
	return d.fewer && now.Sub(d.gone) < callDeadline && devices[d.of].offered()
}

// occupy marks the rows that are not offered because a pod holds the device as it was offered before: under another
// name of the resource, or as one of several replicas when there is only one now. What pods hold stays as it is.
func (inv *inventory) occupy(rows map[string]device) {
	busy := map[string]bool{}
	for id := range inv.held.before {
		busy[DeviceOf(id)] = true
	}
	for _, d := range rows {
		if d.kept && d.replicas <= 1 {
			busy[d.of] = true
		}
	}
	for id, d := range rows {
		_, mine := inv.held.now[id]
		d.taken = busy[d.of] && !mine && !d.kept
		rows[id] = d
	}
}

// refusal says why a row is not offered.
func (d device) refusal() string {
	withheld := d.withheld
	if withheld == nil && d.taken && d.health.Usable() {
		withheld = &accel.Withheld{
			By: accel.ByPod, Reason: accel.DeviceHeld,
			Message: "a pod holds it as it was offered before",
		}
	}
	reason, message := accel.Accelerator{Health: d.health, Withheld: withheld}.Refusal()
	if d.health.State == "" && withheld == nil {
		message = "its health is not known"
	}
	return fmt.Sprintf("%s (%s)", message, reason)
}

// count returns how many devices are among the kubelet's ids. It skips a device that is not offered or that has
// healthy replicas missing from ids.
func (l *list) count(ids []string) int {
	have, want := map[string]int{}, map[string]int{}
	for _, d := range l.devices {
		if d.taken {
			want[d.of] = len(ids) + 1
		}
	}
	for _, id := range ids {
		have[DeviceOf(id)]++
	}
	for _, id := range l.healthy {
		want[DeviceOf(id)]++
	}
	n := 0
	for of, k := range have {
		if k >= want[of] {
			n++
		}
	}
	return n
}

// passing reports whether any row is waiting for the end of a pod.
func (l *list) passing() bool {
	for _, d := range l.devices {
		if !d.gone.IsZero() || d.kept || d.taken {
			return true
		}
	}
	return false
}

// taken counts the devices that pods hold as they were offered before.
func (l *list) taken() int {
	devices := map[string]bool{}
	for _, d := range l.devices {
		if d.taken {
			devices[d.of] = true
		}
	}
	return len(devices)
}
