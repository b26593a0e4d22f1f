package accel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Withholder is what withholds a device.
type Withholder string

// What may withhold a device.
const (
	// ByReset: somebody resets the device (`acceld reset`).
	ByReset Withholder = "reset"
	// ByPartitioning: the device is waiting to be divided, or it is not known yet how it is divided.
	ByPartitioning Withholder = "partitioning"
	// ByPartitions: the device is divided, and its partitions are offered instead.
	ByPartitions Withholder = "partitions"
	// ByDrain: the driver of the device will be replaced as soon as nobody uses it. ByUpgrade: it is being replaced
	// now.
	ByDrain   Withholder = "drain"
	ByUpgrade Withholder = "upgrade"
	// ByProof: the device has not passed its self-test with the live driver.
	ByProof Withholder = "proof"
	// ByRuntime: containers would not get the device, or not the right one.
	ByRuntime Withholder = "runtime"
	// ByPod: a pod holds the device in a form in which it is no longer offered.
	ByPod Withholder = "pod"
	// ByHandover: the device cannot be cleaned of what its former tenant left.
	ByHandover Withholder = "handover"
	// ByRepair: the device was reset a short time ago.
	ByRepair Withholder = "repair"
	// BySettings: what is configured about the device is not set yet, or waits until nobody has the device.
	BySettings Withholder = "settings"
	// ByGroup: another device is offered for the IOMMU group that it is in, or the host itself uses the group.
	ByGroup Withholder = "group"
	// BySwitch: the device is given out with another driver than its kind's, or is on the way there or back.
	BySwitch Withholder = "switch"
)

// Withheld says why a device is not offered. It is independent of the device's health, which may be perfect.
type Withheld struct {
	By     Withholder `json:"by"`
	Reason Reason     `json:"reason"`
	// Message is a sentence for people.
	Message string `json:"message,omitempty"`
}

// WithheldWith reports whether a part is withheld for the very reason that its whole device is.
func (a Accelerator) WithheldWith(whole Accelerator) bool {
	return a.Parent == whole.ID && a.Withheld != nil && whole.Withheld != nil && *a.Withheld == *whole.Withheld
}

// OnDemand reports whether claims can get the device or parts of it, whichever it has now: acceld divides it for them,
// and makes it whole again.
func (a Accelerator) OnDemand() bool {
	return a.ReadyForClaims() || a.Divided != nil && a.Health.Usable() && a.WithheldBy(ByPartitions)
}

// ReadyForClaims reports whether a claim can have the device, or the part, as it is. That the files of its kind are not
// written yet since it was divided, or made whole, does not matter: each claim has a file of its own.
func (a Accelerator) ReadyForClaims() bool {
	return a.Offered() || a.Health.Usable() && a.WithheldBy(ByRuntime) && a.Withheld.Reason == SpecPending
}

// Offered reports whether the device may be given to a container: it is usable and nothing withholds it.
func (a Accelerator) Offered() bool { return a.Health.Usable() && a.Withheld == nil }

// WithheldBy reports whether one of all withholds the device.
func (a Accelerator) WithheldBy(all ...Withholder) bool {
	return a.Withheld != nil && slices.Contains(all, a.Withheld.By)
}

// WithheldAlone reports whether the device is withheld for a reason of its own. All other reasons concern the whole
// kind, whose status reports them once for all its devices.
func (a Accelerator) WithheldAlone() bool {
	return a.WithheldBy(ByReset, ByPartitioning, ByHandover, ByRepair, BySettings, ByGroup, BySwitch)
}

// AwaitsReport reports whether the device is withheld for a moment: until the program of its kind says how it is
// divided, or until what is configured about it was set for the first time.
func (a Accelerator) AwaitsReport() bool {
	return a.WithheldBy(ByPartitioning) && a.Withheld.Reason == ProbeUnanswered ||
		a.WithheldBy(BySettings) && a.Withheld.Reason == SettingPending
}

// Refusal says why a device is not offered: what withholds it, else its health. The reason is empty if and only if
// the device is offered.
func (a Accelerator) Refusal() (Reason, string) {
	h := a.Health
	switch {
	case a.Withheld != nil:
		return a.Withheld.Reason, a.Withheld.Message
	case h.Usable():
		return "", ""
	case h.Reason != "":
		return h.Reason, h.Message
	case h.State == Gone:
		return DeviceGone, cmp.Or(h.Message, DeviceGone.Doc().Sentence)
	}
	return DeviceUnhealthy, cmp.Or(h.Message, DeviceUnhealthy.Doc().Sentence)
}

// CountOffered returns how many of accs are offered.
func CountOffered(accs []Accelerator) int { return count(accs, Accelerator.Offered) }

// CountWithheld returns how many of accs are usable and given to nobody, each for a reason of its own that somebody may
// want to know. A device that a claim has with another driver is not among them.
func CountWithheld(accs []Accelerator) int {
	return count(accs, func(a Accelerator) bool {
		return a.Health.Usable() && a.WithheldAlone() && !a.WithheldBy(BySwitch) && !a.AwaitsReport()
	})
}

// UsableText says how many devices of a kind are usable, and how many of them are withheld: "8 of 8 devices usable, 1
// withheld".
func UsableText(accs []Accelerator) string {
	text := fmt.Sprintf("%d of %d devices usable", CountUsable(accs), len(accs))
	if n := CountWithheld(accs); n > 0 {
		text += fmt.Sprintf(", %d withheld", n)
	}
	return text
}

// Offer returns the devices and partitions of a kind that can be given out, as [Units] lists them, each with what
// withholds it. The device plugin, the resource slices and the cards of a node are renderings of it. The hook's gate
// uses [Startable] instead.
func Offer(m Machine, kind string) []Accelerator { return Units(m.Have[kind].Accelerators) }

// Startable returns the devices of a kind for the decision whether a container that already has them may start. A
// device that waits for its self-test, its settings, or the files of the container runtime, is withheld only from new
// containers: an agent that has just started must not keep a container from restarting. The same holds for a device
// that is being drained, if a kubelet gives devices out, because the kubelet does not allocate it any more.
func Startable(m Machine, kind string) []Accelerator {
	return each(m.Have[kind].Accelerators, func(a *Accelerator) {
		if a.WithheldBy(BySwitch) && (a.Switched == nil || a.Switched.Ready(*a)) { // for those who have it
			a.Withheld = nil
		}
		if a.WithheldBy(ByProof, ByRuntime, BySettings) || m.Want.Kubernetes && a.WithheldBy(ByDrain) {
			a.Withheld = nil
		}
	})
}

// Withhold returns accs with the devices withheld that the state of their kind does not allow to be offered: the
// driver is about to be replaced, a device has not passed its self-test with the live driver, or containers would not
// get it. A device that is already withheld keeps its reason. Proven reports whether a device with that ID has passed
// its self-test. Withhold also says which devices are bare.
func Withhold(accs []Accelerator, have Have, proven func(id string) bool) []Accelerator {
	return each(accs, func(a *Accelerator) {
		if a.Withheld == nil {
			a.Withheld = withheld(have, *a, proven)
		}
		a.Bare = have.Runtime.Applied && len(a.Nodes) == 0 && !have.Runtime.Names(a.ID)
	})
}

// Names reports whether the CDI spec has a device or partition.
func (h RuntimeHave) Names(id string) bool {
	return slices.ContainsFunc(h.Devices, func(name string) bool { return strings.HasSuffix(name, "="+id) })
}

// each returns a copy of accs after calling change for each device and each of its partitions.
func each(accs []Accelerator, change func(*Accelerator)) []Accelerator {
	out := slices.Clone(accs)
	for i := range out {
		out[i].Partitions = slices.Clone(out[i].Partitions)
		change(&out[i])
		for p := range out[i].Partitions {
			change(&out[i].Partitions[p])
		}
	}
	return out
}

func withheld(have Have, a Accelerator, proven func(id string) bool) *Withheld {
	given := have.Runtime.Applied || slices.Contains(have.Runtime.AppliedTo, a.ID)
	switch u := have.Driver.Upgrade; {
	case !a.Health.Usable(), a.Aside(): // its own driver does not concern the latter
		return nil
	case u != nil && u.Phase == UpgradeReplacing:
		return &Withheld{By: ByUpgrade, Reason: DriverChanging, Message: "its driver is being replaced"}
	case u != nil && u.Phase == UpgradeDraining:
		return &Withheld{
			By: ByDrain, Reason: DriverChanging,
			Message: "its driver is to be replaced when nobody uses it",
		}
	case !have.Driver.Serves || !proven(a.Address()):
		return &Withheld{
			By: ByProof, Reason: NotProven,
			Message: "it has not passed its self-test with the driver that is live",
		}
	case have.Runtime.NotHonored != nil:
		return &Withheld{
			By: ByRuntime, Reason: have.Runtime.NotHonored.Reason,
			Message: have.Runtime.NotHonored.Message,
		}
	case !given:
		return &Withheld{
			By: ByRuntime, Reason: SpecPending,
			Message: "the files by which containers get it are not written yet",
		}
	}
	return nil
}
