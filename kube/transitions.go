package kube

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/acceld/acceld/accel"
)

// news is the content of an event. Equal news within [repeatWithin] are one event with a count.
type news struct {
	warning      bool
	reason, note string
}

// transitions returns the news of a machine, ordered by kind. The first machine of a process yields only news of
// problems: an unchanged state after a restart is no news.
func transitions(from, to accel.Machine) []news {
	var all []news
	for _, c := range accel.Diff(from, to) {
		switch c := c.(type) {
		case accel.StateChange:
			if c.From != "" {
				all = append(all, news{
					warning: c.From == accel.Ready && c.To != accel.Absent,
					reason:  camel(string(c.To)),
					note:    shorten(fmt.Sprintf("%s: %s, was %s", c.Kind, c.To, c.From)),
				})
			}
		case accel.BlockedChange:
			all = append(all, warning(c.Problem, "%s: %s: %s", c.Kind, c.State, c.Problem.Message))
		case accel.KernelChange:
			all = append(all, warning(c.Problem, "%s: a reboot into kernel %s would find no driver: %s", c.Kind,
				c.Release, c.Problem.Message))
		case accel.UpgradeChange:
			all = append(all, upgradeNews(c)...)
		case accel.HealthChange:
			all = append(all, healthNews(c)...)
		case accel.RepairChange:
			all = append(all, repairNews(c))
		case accel.SettingChange:
			all = append(all, warning(accel.Problem{Reason: c.Setting.Reason()}, "%s: %s: setting %s", c.Kind, c.Device,
				c.Setting))
		case accel.SwitchChange:
			all = append(all, news{false, "DeviceSwitched", shorten(fmt.Sprintf("%s: %s: %s", c.Kind, c.Device, c))})
		case accel.UnrequestedChange:
			p := accel.Problem{Reason: accel.UnrequestedUse}
			all = append(all, warning(p, "%s: %s is in use without a request: %s", c.Kind, c.Device, c))
		}
	}
	return all
}

// warning reports a problem, and what to do about it.
func warning(p accel.Problem, format string, args ...any) news {
	return news{true, string(p.Reason), shorten(fmt.Sprintf(format, args...) + ". " + p.Remedy())}
}

// upgradeNews reports that an upgrade is requested, cannot continue, or is done.
func upgradeNews(c accel.UpgradeChange) []news {
	var all []news
	is := c.To.Upgrade
	if c.Done() {
		now := accel.DriverRef{Version: c.To.Version, Key: c.To.Key}
		all = append(all, news{
			false, "DriverUpgraded",
			shorten(fmt.Sprintf("%s: the driver is %s, was %s", c.Kind, now, c.From.Upgrade.From)),
		})
	}
	if c.Wished() {
		all = append(all, news{
			false, "DriverUpgradePending",
			shorten(fmt.Sprintf("%s: upgrade from %s to %s: %s", c.Kind, is.From, is.To, is.Why)),
		})
	}
	if c.Failed() {
		all = append(all, warning(is.Failure.Problem, "%s: upgrade to %s: %s", c.Kind, is.To, is.Failure.Message))
	}
	return all
}

// healthNews reports a change of health. A new device is news only if it is not healthy. A partition that only
// follows its device is no news, nor is one that is gone because its device was repartitioned.
func healthNews(c accel.HealthChange) []news {
	switch {
	case c.To == nil, c.Inherited, c.Parent != "" && c.To.State == accel.Gone:
		return nil
	case c.To.State != accel.Healthy:
		reason := string(cmp.Or(c.To.Reason, accel.DeviceUnhealthy))
		return []news{{true, reason, shorten(fmt.Sprintf("%s: %s is %s: %s", c.Kind, c.Device, c.To.State,
			c.To.Message))}}
	case c.From != nil && c.From.State != accel.Healthy:
		return []news{{false, "DeviceHealthy", fmt.Sprintf("%s: %s is healthy, was %s", c.Kind, c.Device,
			c.From.State)}}
	}
	return nil
}

// repairNews reports what acceld does about a device that needs a reset, or would do.
func repairNews(c accel.RepairChange) news {
	x := news{reason: "DeviceReset"}
	switch {
	case c.Repair.Would:
		x.reason = "DeviceResetDryRun"
	case c.Repair.State == accel.RepairGivenUp:
		x.warning, x.reason = true, "RepairGivenUp"
	}
	x.note = fmt.Sprintf("%s: %s: %s", c.Kind, c.Device, c.Repair)
	if c.Why.Reason != "" { // a device that is being reset may not be there
		x.note += fmt.Sprintf(" (%s: %s)", c.Why.Reason, c.Why.Message)
	}
	x.note = shorten(x.note)
	return x
}

// camel returns "DriverMissing" for "driver-missing": reasons of events are in CamelCase.
func camel(s string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(s, "-") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}
