package kube

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	corev1 "k8s.io/api/core/v1"
)

// Reasons of the condition in addition to accel.Reason.
const (
	reasonReady    = "Ready"
	reasonIdle     = "Idle"
	reasonProgress = "InProgress"
)

// maxMessage is the limit in bytes for the condition's message and an event's note. The API takes 1 KiB for a note.
const maxMessage = 1000

// Condition returns the node condition without its times. It is True if every kind on the host is ready and every
// device and partition is healthy or at least usable, and also on a host without accelerators (reason Idle).
// Otherwise it is False; the reason is that of the first blocked kind, else of the first unhealthy device, else
// InProgress, else LibraryMissing. Repeated attempts of a step change nothing in the message, and work in progress
// changes it with every tenth of it that is done, so that there are few writes.
func Condition(m accel.Machine) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: ConditionType, Status: corev1.ConditionFalse}
	var blocked, ill, moving, working, ready, worn, lacking []string
	var blockedReason, illReason accel.Reason
	for _, kind := range slices.Sorted(maps.Keys(m.Status)) {
		st, accs := m.Status[kind], m.Have[kind].Accelerators
		switch {
		case st.Blocked != nil:
			blocked = append(blocked, fmt.Sprintf("%s is %s: %s", kind, st.State, st.Blocked.Message))
			blockedReason = cmp.Or(blockedReason, st.Blocked.Reason)
		case complete(m, kind):
			ready = append(ready, fmt.Sprintf("%s: %d usable", kind, accel.CountUsable(accs)))
		case st.State != accel.Absent:
			moving = append(moving, fmt.Sprintf("%s is %s", kind, st.State))
		}
		for _, p := range m.Have[kind].Work {
			working = append(working, kind+": "+p.Report(m.Taken))
		}
		if p := m.Have[kind].Runtime.LibraryMissing; p != nil {
			lacking = append(lacking, p.Message)
		}
		for _, a := range accs {
			if a.WithheldAlone() {
				worn = append(worn, fmt.Sprintf("%s %s is withheld: %s", kind, a.ID, a.Withheld.Message))
			}
		}
		for _, a := range ailing(accs) {
			switch {
			case a.Health.Usable():
				worn = append(worn, fmt.Sprintf("%s %s is %s: %s", kind, a.ID, a.Health.State, a.Health.Message))
			default:
				ill = append(ill, fmt.Sprintf("%s %s is %s: %s", kind, a.ID, a.Health.State, a.Health.Message))
				illReason = cmp.Or(illReason, a.Health.Reason)
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(m.Have)) {
		if u := m.Have[kind].Driver.Upgrade; u != nil {
			ready = append(ready, upgradeWords(kind, u))
		}
	}
	switch {
	case len(blocked) > 0:
		c.Reason = string(blockedReason)
	case len(ill) > 0:
		c.Reason = string(cmp.Or(illReason, accel.DeviceUnhealthy))
	case len(moving) > 0:
		c.Reason = reasonProgress
	case len(lacking) > 0: // the devices are offered, and no container can use them
		c.Reason = string(accel.LibraryMissing)
	case len(ready) > 0:
		c.Status, c.Reason = corev1.ConditionTrue, reasonReady
	default:
		c.Status, c.Reason = corev1.ConditionTrue, reasonIdle
		ready = []string{"no accelerator on this host"}
	}
	for _, x := range m.Facts.Maintenance {
		ready = append(ready, x.String())
	}
	c.Message = shorten(strings.Join(slices.Concat(blocked, ill, moving, working, lacking, worn, ready), "; "))
	return c
}

// ailing returns the devices that are not healthy, and the unhealthy partitions of usable devices. It leaves out
// partitions that are gone: their device was repartitioned.
func ailing(accs []accel.Accelerator) []accel.Accelerator {
	var all []accel.Accelerator
	for _, a := range accs {
		if a.Health.State != accel.Healthy {
			all = append(all, a)
		}
		for _, p := range a.Partitions {
			if a.Health.Usable() && p.Health.State == accel.Unhealthy {
				all = append(all, p)
			}
		}
	}
	return all
}

// upgradeWords reports a pending driver upgrade and its progress. The old driver works meanwhile, so the condition
// does not become False.
func upgradeWords(kind string, u *accel.Upgrade) string {
	s := fmt.Sprintf("%s: upgrade from %s to %s is %s", kind, u.From, u.To, u.Phase)
	if u.Failure != nil {
		s += fmt.Sprintf(", %s: %s", u.Failure.Reason, u.Failure.Message)
	}
	return s
}

// shorten returns text from a driver or a compiler as one valid line of at most [maxMessage] bytes.
func shorten(s string) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "?")
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage-len("…")], "") + "…"
}
