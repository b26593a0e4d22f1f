package kube

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	corev1 "k8s.io/api/core/v1"
)

// Reasons of the condition that are not an accel.Reason.
const (
	reasonReady    = "Ready"
	reasonIdle     = "Idle"
	reasonProgress = "InProgress"
)

// maxMessage keeps the condition and an event's note below what the API takes (1 KiB for a note).
const maxMessage = 1000

// Condition renders the node condition, without its times. It is True when every kind on the host is ready and every
// device and partition of them healthy or at least usable, and on a host without accelerators (reason Idle). Otherwise
// it is False, and the reason is that of the first blocked kind, else of the first unhealthy device, else InProgress.
// The message has no times and no counters in it, so that a step that is tried again and again causes no writes.
func Condition(m accel.Machine) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: ConditionType, Status: corev1.ConditionFalse}
	var blocked, ill, moving, ready, worn []string
	var blockedReason, illReason accel.Reason
	for _, kind := range slices.Sorted(maps.Keys(m.Status)) {
		st, accs := m.Status[kind], m.Have[kind].Accelerators
		switch {
		case st.Blocked != nil:
			blocked = append(blocked, fmt.Sprintf("%s is %s: %s", kind, st.State, st.Blocked.Message))
			blockedReason = first(blockedReason, st.Blocked.Reason)
		case complete(m, kind):
			ready = append(ready, fmt.Sprintf("%s: %d usable", kind, accel.CountUsable(accs)))
		case st.State != accel.Absent:
			moving = append(moving, fmt.Sprintf("%s is %s", kind, st.State))
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
				illReason = first(illReason, a.Health.Reason)
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
		c.Reason = string(first(illReason, accel.DeviceUnhealthy))
	case len(moving) > 0:
		c.Reason = reasonProgress
	case len(ready) > 0:
		c.Status, c.Reason = corev1.ConditionTrue, reasonReady
	default:
		c.Status, c.Reason = corev1.ConditionTrue, reasonIdle
		ready = []string{"no accelerator on this host"}
	}
	c.Message = shorten(strings.Join(slices.Concat(blocked, ill, moving, worn, ready), "; "))
	return c
}

// ailing returns the devices that are not healthy, and the unhealthy partitions of usable devices. A partition that is
// gone is not among them: its device is divided in another way.
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

// upgradeWords says that another driver is wanted and how far it is. While it waits the old one serves: it is no reason
// for the condition to be False.
func upgradeWords(kind string, u *accel.Upgrade) string {
	s := fmt.Sprintf("%s: upgrade from %s to %s is %s", kind, u.From, u.To, u.Phase)
	if u.Failure != nil {
		s += fmt.Sprintf(", %s: %s", u.Failure.Reason, u.Failure.Message)
	}
	return s
}

// first returns the first of a and b that says something.
func first(a, b accel.Reason) accel.Reason {
	if a != "" {
		return a
	}
	return b
}

// shorten makes one valid line of at most [maxMessage] bytes of a text that came from a driver or a compiler.
func shorten(s string) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "?")
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage-len("…")], "") + "…"
}
