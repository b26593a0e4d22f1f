package loop

import (
	"reflect"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
)

// The devices of a kind go through these passes, in this order:
//
//	read      Probes.Read and Accelerators: what detect reads; a device that hangs delays no other
//	enrich    Probes.Enrich: what the kind's probe program reports; package probe withholds a device that it divides
//	judge     Probes.Judge: package health says how well each device is
//	remember  what was known before: tombstones, the last health, the state before a reset; withholds during a reset,
//	          and all but one device of an IOMMU group
//	withhold  accel.Withhold: what the state of the kind withholds, such as an upgrade or a missing self-test
//	offer     accel.Units: devices and partitions for the plugin, which gives them out
//
// accelerators runs the first four. The others need the state of the kind, so [worker.observe] reads that in between.

// tombstoneFor is how long a vanished device stays listed as "gone": as long as the kubelet keeps a plugin's resource
// after its stream ended (endpointStopGracePeriod in pkg/kubelet/cm/devicemanager/types.go, Kubernetes 1.37).
const tombstoneFor = 5 * time.Minute

// accelerators reads, enriches and judges the devices of a kind. Attributes change without an event, so no reading is
// kept for longer than SampleEvery, and none from during a reset.
func (l *Loop) accelerators(k *kind, now time.Time, look depth) []accel.Accelerator {
	lost := accel.Lost(k.def.Kind, l.rivals)
	if look != verdicts || slices.ContainsFunc(k.have.Accelerators, beingReset) || now.Sub(k.read) >= l.o.SampleEvery {
		l.o.Probes.Read(k.def, lost)
		k.read = now
	}
	found := l.o.Probes.Accelerators(k.def, lost)
	found = l.o.Probes.Enrich(k.def, found)
	found = l.o.Probes.Judge(k.def, l.facts.All(), found)
	return accel.WithholdGroups(l.groups, l.remember(k, found, now))
}

// findRivals decides which kind has a device that several recognise, and reports new cases. It also decides which
// device is offered for an IOMMU group.
func (l *Loop) findRivals() {
	before := l.rivals
	l.rivals = accel.Rivalries(l.want.Kinds, l.facts.All())
	l.groups = accel.SharedGroups(l.want.Kinds, l.facts.PCI, l.rivals, l.groups)
	if reflect.DeepEqual(before, l.rivals) {
		return
	}
	for _, r := range l.rivals {
		l.o.Log.Warn("several kinds recognise a device", "device", r.Address, "owner", r.Owner, "others", r.Others)
	}
}

func beingReset(a accel.Accelerator) bool { return a.WithheldBy(accel.ByReset) }

// remember completes the devices on the bus with what was known before. A device that is being reset stays as it was
// and is withheld: that its driver and nodes come and go is no news.
func (l *Loop) remember(k *kind, found []accel.Accelerator, now time.Time) []accel.Accelerator {
	before := map[string]accel.Accelerator{}
	for _, a := range k.have.Accelerators {
		before[a.ID] = a
	}
	for i := range found {
		a, old := &found[i], before[found[i].ID]
		known, reset := old.ID != "" && old.Present(), l.o.Probes.Reset(a.ID)
		delete(before, a.ID)
		delete(k.vanished, a.ID)
		if known && reset {
			*a = old
		}
		if known && a.Health.State == "" && !beingReset(old) {
			a.Health = old.Health // the probe could not answer, and the device was not reset since
		}
		if a.Health.State == "" {
			a.Health.State = accel.Healthy
		}
		if reset {
			a.Withheld = &accel.Withheld{By: accel.ByReset, Reason: accel.BeingReset, Message: "it is being reset"}
		}
		a.Health.Since = since(old.Health, a.Health, now)
		if a.Metrics == nil && a.Bound == old.Bound { // another driver: what the last one said is out of date
			a.Metrics = old.Metrics
		}
		a.Partitions = partitions(*a, old, now)
	}
	for id, a := range before {
		if _, known := k.vanished[id]; !known {
			k.vanished[id] = now
		}
		if a.Present() {
			on := accel.SubsystemOf(id).On()
			a.Health = gone("no longer "+on, now)
			if l.facts.Function(id).Address != "" {
				a.Health.Message = on + ", and no device of this kind any more"
			}
			a.Bound, a.Nodes, a.Metrics, a.Withheld, a.Settings, a.Unrequested, a.Use = "", nil, nil, nil, nil, nil, nil
			a.Partitions = partitions(accel.Accelerator{Health: a.Health}, a, now)
		}
		if now.Sub(k.vanished[id]) < tombstoneFor {
			found = append(found, a)
		} else {
			delete(k.vanished, id)
		}
	}
	accel.SortByID(found)
	return found
}

// gone is the health of a tombstone.
func gone(message string, since time.Time) accel.Health {
	return accel.Health{State: accel.Gone, Reason: accel.DeviceGone, Message: message, Since: since}
}

// partitions merges the partitions of a device with the tombstones of its former partitions. A partition without a
// health of its own gets the device's health.
func partitions(device, before accel.Accelerator, now time.Time) []accel.Accelerator {
	old := map[string]accel.Accelerator{}
	for _, p := range before.Partitions {
		old[p.ID] = p
	}
	var list []accel.Accelerator
	for _, p := range device.Partitions {
		p.Health = p.Health.Below(device.Health)
		if was, known := old[p.ID]; known {
			p.Health.Since = since(was.Health, p.Health, now)
		} else if p.Health.Since.IsZero() {
			p.Health.Since = now
		}
		delete(old, p.ID)
		list = append(list, p)
	}
	for _, p := range old {
		if p.Present() {
			p.Health = gone("the device is not divided in this way any more", now)
			if !device.Present() {
				p.Health.Message = device.Health.Message
			}
			p.Bound, p.Nodes, p.Env, p.Withheld = "", nil, nil, nil
		}
		if now.Sub(p.Health.Since) < tombstoneFor {
			list = append(list, p)
		}
	}
	accel.SortByID(list)
	return list
}

// since returns the time of the old health if the new one is the same, and at otherwise.
func since(old, now accel.Health, at time.Time) time.Time {
	if old.State == now.State && old.Reason == now.Reason && old.Message == now.Message && !old.Since.IsZero() {
		return old.Since
	}
	return at
}

func present(accs []accel.Accelerator) []accel.Accelerator {
	return slices.DeleteFunc(slices.Clone(accs), func(a accel.Accelerator) bool { return !a.Present() })
}

// inventory returns the devices of a kind, each with what withholds it now. k.have already contains what the passes
// withhold; the rest follows from the state of the kind.
func (k *kind) inventory() []accel.Accelerator {
	return accel.Withhold(k.have.Accelerators, k.have, k.passed)
}

// proving reports whether the driver serves and only the self-tests are outstanding.
func (k *kind) proving() bool {
	return k.have.Driver.Serves && !k.have.Driver.PastCheck() && k.have.Failure == nil
}

// offer gives the plugin the inventory. Devices are withheld one by one, so that a hot-plugged device never delays
// the others. A plugin that started early gets nothing until the first self-tests have ended, so that what the previous
// agent offered stays published while they run.
func (l *Loop) offer(k *kind, now time.Time) {
	if k.plugin == nil {
		return
	}
	if k.told = k.told || !k.proving(); k.told {
		k.plugin.Update(accel.Units(k.inventory()))
	}
	if f := k.have.Failure; f != nil && (!waits(f.Step) || f.Reason == accel.StepFailed) {
		return // the failure of an earlier step, or of an own step, takes precedence
	}
	step := accel.StepRegister
	if k.have.Plugin.Registered {
		step = accel.StepAwait
	}
	k.note(step, k.plugin.Problem(), now)
}
