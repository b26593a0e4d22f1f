package accel

import (
	"slices"
	"time"
)

// HealthState is the health of one accelerator.
type HealthState string

// The health states, from best to worst. A degraded device is usable, but somebody should look at it. Gone is a
// tombstone: the PCI function is no longer there.
const (
	Healthy   HealthState = "healthy"
	Degraded  HealthState = "degraded"
	Unhealthy HealthState = "unhealthy"
	Gone      HealthState = "gone"
)

// HealthStates returns all health states, from best to worst.
func HealthStates() []HealthState { return []HealthState{Healthy, Degraded, Unhealthy, Gone} }

// Worse reports whether s is worse than o. The empty state means unknown, and is never the worse one.
func (s HealthState) Worse(o HealthState) bool {
	return slices.Index(HealthStates(), s) > slices.Index(HealthStates(), o)
}

// Action is what restores a device that does not recover by itself.
type Action string

// The actions, from cheap to expensive. The empty action means to wait, or to do what the reason says.
const (
	ActionRestartWorkload Action = "RestartWorkload"
	ActionResetDevice     Action = "ResetDevice"
	ActionReboot          Action = "Reboot"
	ActionService         Action = "Service"
)

// Actions returns all actions, from cheap to expensive.
func Actions() []Action {
	return []Action{ActionRestartWorkload, ActionResetDevice, ActionReboot, ActionService}
}

// Sentence says what to do; empty if there is no action.
func (a Action) Sentence() string {
	return map[Action]string{
		ActionRestartWorkload: "restart the programs that use it",
		ActionResetDevice:     "reset it, or bind its driver again",
		ActionReboot:          "reboot the node",
		ActionService:         "someone has to work on the machine",
	}[a]
}

// Remedy says what to do about a device that is not healthy, including acceld's command for it if there is one; empty
// if nothing is known.
func (a Accelerator) Remedy() string {
	switch h := a.Health; {
	case h.Action == ActionResetDevice:
		return h.Action.Sentence() + ": acceld reset " + a.Address()
	case h.Action != "":
		return h.Action.Sentence()
	case h.Reason != "":
		return h.Reason.Doc().Remedy
	}
	return ""
}

// Health is the health of one accelerator with its reason.
type Health struct {
	State  HealthState `json:"state"`
	Reason Reason      `json:"reason,omitempty"`
	// Action is what to do; empty if the device recovers by itself or the reason says more.
	Action  Action `json:"action,omitempty"`
	Message string `json:"message,omitempty"`
	// Evidence is what the verdict is based on, such as a line of the kernel log.
	Evidence string    `json:"evidence,omitempty"`
	Since    time.Time `json:"since"`
}

// Fault is an error that a device has reported through the kernel log.
type Fault struct {
	// Code is the driver's own code for the error, such as "79".
	Code  string `json:"code"`
	Title string `json:"title,omitempty"`
	// Count is how often it was reported since the agent began to read the log.
	Count uint64    `json:"count"`
	Last  time.Time `json:"last"`
}

// Present reports whether the PCI function is on the bus.
func (a Accelerator) Present() bool { return a.Health.State != Gone }

// Worse reports whether h is worse than o: its state is worse, or the states are equal and its action is more
// expensive.
func (h Health) Worse(o Health) bool {
	if h.State != o.State {
		return h.State.Worse(o.State)
	}
	return slices.Index(Actions(), h.Action) > slices.Index(Actions(), o.Action)
}

// Usable reports whether a device in this state of health can be given to a container.
func (h Health) Usable() bool { return h.State == Healthy || h.State == Degraded }

// HealthUnknown is what people read of a device that nothing has told about.
const HealthUnknown = "unknown"

// Seen returns the health as far as it was seen: without its driver, a device that nothing complained about tells
// nothing.
func (a Accelerator) Seen() string {
	if a.Health.State == Healthy && a.Bound == "" && a.Profile == "" && !SubsystemOf(a.ID).Class {
		return HealthUnknown
	}
	return string(a.Health.State)
}

// CountUsable returns how many of accs are usable.
func CountUsable(accs []Accelerator) int {
	return count(accs, func(a Accelerator) bool { return a.Health.Usable() })
}
