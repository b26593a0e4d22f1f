package accel

import "cmp"

// Withholder names what withholds a device.
type Withholder string

// What may withhold a device.
const (
	// ByReset: somebody resets the device (`acceld reset`).
	ByReset Withholder = "reset"
	// ByPartitioning: the device is to be divided, or nobody has said yet how it is divided.
	ByPartitioning Withholder = "partitioning"
	// ByPartitions: the device is divided, and its partitions are given out instead.
	ByPartitions Withholder = "partitions"
	// ByDrain: the driver of the device is to be replaced as soon as nobody uses it; ByUpgrade: it is being replaced.
	ByDrain   Withholder = "drain"
	ByUpgrade Withholder = "upgrade"
	// ByProof: the device has not passed its self-test with the live driver.
	ByProof Withholder = "proof"
	// ByRuntime: containers would not get the device, or not the right one.
	ByRuntime Withholder = "runtime"
	// ByPod: a pod holds the device in a way in which it is not offered any more.
	ByPod Withholder = "pod"
)

// Withheld says why a device is offered to nobody, whatever its health. Health says how well a device is and is written by
// the probes and package health alone; a device that is withheld may be in perfect health.
type Withheld struct {
	By     Withholder `json:"by"`
	Reason Reason     `json:"reason"`
	// Message is a sentence for people.
	Message string `json:"message,omitempty"`
}

// Offered reports whether the device may be given to somebody: it is usable and nothing withholds it.
func (a Accelerator) Offered() bool { return a.Health.Usable() && a.Withheld == nil }

// WithheldBy reports whether one of those withholds the device.
func (a Accelerator) WithheldBy(all ...Withholder) bool {
	for _, by := range all {
		if a.Withheld != nil && a.Withheld.By == by {
			return true
		}
	}
	return false
}

// Aside reports whether the device is withheld for a reason of its own. The other reasons are those of its kind, whose status
// says them once for all devices.
func (a Accelerator) Aside() bool { return a.WithheldBy(ByReset, ByPartitioning) }

// Refusal says why a device is not offered: what withholds it, else its health. The reason is empty for one that is offered,
// and never empty for one that is not.
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
func CountOffered(accs []Accelerator) int {
	n := 0
	for _, a := range accs {
		if a.Offered() {
			n++
		}
	}
	return n
}

// Offer returns what can be given out of a kind, devices and partitions as [Units] has them, each with what withholds it. The
// device plugin, the slices of claims, the cards of a node and the hook's gate are renderings of it. It is a function of the
// machine alone.
func Offer(m Machine, kind string) []Accelerator { return Units(m.Have[kind].Accelerators) }

// Startable returns the devices of a kind as containers that were given them may start with them. What waits for its
// self-test, or for the files of the container runtime, is only not offered to anybody else: an agent that has just started
// must not keep a container from starting again. The same holds for what is drained, where a kubelet gives devices out:
// it gives out no more of them.
func Startable(m Machine, kind string) []Accelerator {
	may := func(w *Withheld) *Withheld {
		if w != nil && (w.By == ByProof || w.By == ByRuntime || w.By == ByDrain && m.Want.Kubernetes) {
			return nil
		}
		return w
	}
	var out []Accelerator
	for _, a := range m.Have[kind].Accelerators {
		parts := a.Partitions
		a.Withheld, a.Partitions = may(a.Withheld), nil
		for _, p := range parts {
			p.Withheld = may(p.Withheld)
			a.Partitions = append(a.Partitions, p)
		}
		out = append(out, a)
	}
	return out
}

// Withhold returns accs with what the state of their kind says against offering them: the driver is about to be replaced, a
// device has not passed its self-test with the driver that is live, or containers would not get it. What withholds a device
// already stays. Proven holds the ids of the devices that have passed.
func Withhold(accs []Accelerator, have Have, proven func(id string) bool) []Accelerator {
	out := make([]Accelerator, len(accs))
	for i, a := range accs {
		parts := a.Partitions
		a.Partitions = nil
		for _, p := range parts {
			if p.Withheld == nil {
				p.Withheld = withheld(have, p, proven)
			}
			a.Partitions = append(a.Partitions, p)
		}
		if a.Withheld == nil {
			a.Withheld = withheld(have, a, proven)
		}
		out[i] = a
	}
	return out
}

func withheld(have Have, a Accelerator, proven func(id string) bool) *Withheld {
	given := have.Runtime.Applied
	for _, id := range have.Runtime.Right {
		given = given || id == a.ID
	}
	switch u := have.Driver.Upgrade; {
	case !a.Health.Usable():
		return nil
	case u != nil && u.Phase == UpgradeReplacing:
		return &Withheld{By: ByUpgrade, Reason: DriverChanging, Message: "its driver is being replaced"}
	case u != nil && u.Phase == UpgradeDraining:
		return &Withheld{By: ByDrain, Reason: DriverChanging, Message: "its driver is to be replaced when nobody uses it"}
	case !have.Driver.Right || !proven(a.Address()):
		return &Withheld{By: ByProof, Reason: NotProven, Message: "it has not passed its self-test with the driver that is live"}
	case have.Runtime.Unread != nil:
		return &Withheld{By: ByRuntime, Reason: have.Runtime.Unread.Reason, Message: have.Runtime.Unread.Message}
	case !given:
		return &Withheld{By: ByRuntime, Reason: SpecPending, Message: "the files by which containers get it are not written yet"}
	}
	return nil
}
