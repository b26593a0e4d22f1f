package kube

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// news is something to tell by an event. Equal news within [repeatWithin] are one event with a count.
type news struct {
	warning      bool
	reason, note string
}

// transitions returns what changed from one machine to the next, in the order of kinds. The first machine of a process
// tells only what is wrong: that everything is as before a restart is no news.
func transitions(from, to accel.Machine) []news {
	var all []news
	for _, kind := range slices.Sorted(maps.Keys(to.Status)) {
		was, known := from.Status[kind]
		is := to.Status[kind]
		if known && was.State != is.State {
			all = append(all, news{
				warning: was.State == accel.Ready && is.State != accel.Absent,
				reason:  camel(string(is.State)),
				note:    shorten(fmt.Sprintf("%s: %s, was %s", kind, is.State, was.State)),
			})
		}
		if b := is.Blocked; b != nil && (was.Blocked == nil || was.Blocked.Reason != b.Reason) {
			all = append(all, news{true, string(b.Reason), shorten(fmt.Sprintf("%s: %s: %s. %s", kind, is.State, b.Message, b.Reason.Doc().Remedy))})
		}
		all = append(all, kernelNews(kind, from.Have[kind].Driver.Next, to.Have[kind].Driver.Next)...)
		all = append(all, upgradeNews(kind, from.Have[kind].Driver, to.Have[kind].Driver)...)
		all = append(all, healthNews(kind, from.Have[kind].Accelerators, to.Have[kind].Accelerators)...)
	}
	return all
}

// kernelNews warns of a reboot: a kernel that was installed would have no driver.
func kernelNews(kind string, from, to map[string]accel.Readiness) []news {
	var all []news
	for _, release := range slices.Sorted(maps.Keys(to)) {
		p, was := to[release].Problem, from[release].Problem
		if p != nil && (was == nil || was.Reason != p.Reason) {
			all = append(all, news{true, string(p.Reason), shorten(fmt.Sprintf("%s: a reboot into kernel %s would find no driver: %s. %s", kind, release, p.Message, p.Reason.Doc().Remedy))})
		}
	}
	return all
}

// upgradeNews returns what happened to an upgrade: it is wanted, something is against it, it is done.
func upgradeNews(kind string, from, to accel.DriverHave) []news {
	was, is := from.Upgrade, to.Upgrade
	switch {
	case was == nil && is == nil:
		return nil
	case is == nil && to.Right && driverChanged(from, to):
		return []news{{false, "DriverUpgraded", shorten(fmt.Sprintf("%s: the driver is %s, was %s", kind, accel.DriverRef{Version: to.Version, Key: to.Key}, was.From))}}
	case is == nil:
		return nil
	}
	var all []news
	if was == nil || was.Wish != is.Wish {
		all = append(all, news{false, "DriverUpgradePending", shorten(fmt.Sprintf("%s: upgrade from %s to %s: %s", kind, is.From, is.To, is.Why))})
	}
	if f := is.Failure; f != nil && (was == nil || was.Failure == nil || was.Failure.Reason != f.Reason) {
		all = append(all, news{true, string(f.Reason), shorten(fmt.Sprintf("%s: upgrade to %s: %s. %s", kind, is.To, f.Message, f.Reason.Doc().Remedy))})
	}
	return all
}

func driverChanged(from, to accel.DriverHave) bool {
	return from.Version != to.Version || from.Key != to.Key
}

// healthNews returns the changes of health. A device that is seen for the first time is news only when it is not well.
func healthNews(kind string, from, to []accel.Accelerator) []news {
	was := map[string]accel.HealthState{}
	for _, a := range from {
		was[a.ID] = a.Health.State
	}
	var all []news
	for _, a := range to {
		before, known := was[a.ID]
		switch {
		case a.Health.State == before || !known && a.Health.State == accel.Healthy:
		case a.Health.State == accel.Healthy:
			all = append(all, news{false, "DeviceHealthy", fmt.Sprintf("%s: %s is healthy, was %s", kind, a.ID, before)})
		default:
			reason := string(first(a.Health.Reason, accel.DeviceUnhealthy))
			all = append(all, news{true, reason, shorten(fmt.Sprintf("%s: %s is %s: %s", kind, a.ID, a.Health.State, a.Health.Message))})
		}
	}
	return all
}

// camel is "DriverMissing" of "driver-missing": reasons of events are in CamelCase.
func camel(s string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(s, "-") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}
