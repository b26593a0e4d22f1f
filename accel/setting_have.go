package accel

import (
	"cmp"
	"fmt"
	"slices"
)

// SettingState is where a setting of a device is.
type SettingState string

// The values of SettingState.
const (
	SettingApplied     SettingState = "applied"     // the device has the configured value
	SettingWaits       SettingState = "waits"       // for what the message says
	SettingRefused     SettingState = "failed"      // the device does not have it, for the reason in the message
	SettingUnsupported SettingState = "unsupported" // the device does not have such a setting
	SettingGivenUp     SettingState = "contested"   // something else keeps changing it, and acceld has stopped
)

// SettingHave is a setting of a device that is configured, or that is about to be as it was before.
type SettingHave struct {
	Name string `json:"name"`
	// Want is the configured value; empty if what was there before is being restored.
	Want string `json:"want,omitempty"`
	// Value is what the device says; empty if it does not say it.
	Value   string       `json:"value,omitempty"`
	State   SettingState `json:"state"`
	Message string       `json:"message,omitempty"`
	// Drifts is how often the value was found changed by something else since the agent started.
	Drifts int `json:"drifts,omitempty"`
	// Cause is the reason, if it is none that all settings have in common.
	Cause Reason `json:"reason,omitempty"`
}

// Reason returns the reason of a setting that is not as configured and does not wait; empty for others.
func (h SettingHave) Reason() Reason {
	switch h.State {
	case SettingRefused, SettingUnsupported:
		return cmp.Or(h.Cause, SettingFailed)
	case SettingGivenUp:
		return SettingContested
	}
	return ""
}

// String is for people: "powerLimitWatts is 300, configured is 250: waits until nobody has the device".
func (h SettingHave) String() string {
	text := h.Name
	if h.Value != "" {
		text += " is " + h.Value
	}
	switch {
	case h.State == SettingApplied && h.Value == "":
		text += " was set to " + h.Want
	case h.State != SettingApplied && h.Want == "":
		text += ", no longer configured"
	case h.State != SettingApplied && h.Value != h.Want:
		text += ", configured is " + h.Want
	}
	switch {
	case h.State == SettingWaits:
		text += ": waits " + h.Message
	case h.State != SettingApplied:
		text += ": " + string(h.State) + ": " + h.Message
	case h.Message != "":
		text += ": " + h.Message
	}
	if h.Drifts > 0 {
		text += "; changed by something else " + times(h.Drifts)
	}
	return text
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// Deviations returns the settings of a device that are not as configured, and those that something else has changed.
func (a Accelerator) Deviations() []SettingHave {
	return slices.DeleteFunc(slices.Clone(a.Settings), func(h SettingHave) bool {
		return h.State == SettingApplied && h.Drifts == 0
	})
}

// SettingChange says that a setting of a device is not as configured, for a new reason.
type SettingChange struct {
	Kind, Device string
	Setting      SettingHave
}

// Of returns the kind.
func (c SettingChange) Of() string { return c.Kind }

// settingChanges returns the settings that have failed for a new reason.
func settingChanges(kind string, from, to []Accelerator) (all []Change) {
	before := map[string]Reason{}
	for _, a := range from {
		for _, h := range a.Settings {
			before[a.ID+" "+h.Name] = h.Reason()
		}
	}
	for _, a := range to {
		for _, h := range a.Settings {
			if r := h.Reason(); r != "" && before[a.ID+" "+h.Name] != r {
				all = append(all, SettingChange{kind, a.ID, h})
			}
		}
	}
	return all
}
