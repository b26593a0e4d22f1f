package accel

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Repair says what acceld does by itself about a device whose health asks for a reset ([ActionResetDevice]). Such a
// device is offered to nobody anyway.
type Repair struct {
	// Reset is when the device is reset, as `acceld reset` does it; off when empty.
	Reset RepairReset `json:"reset,omitempty"`
	// Attempts is how often a device is reset within Window at most, whoever resets it; 3 when 0. After that it waits
	// for a person.
	Attempts int `json:"attempts,omitempty"`
	// Window is a time such as "12h"; "24h" when empty.
	Window string `json:"window,omitempty"`
}

// RepairReset is when a device is reset.
type RepairReset string

// The values of RepairReset.
const (
	RepairOff    RepairReset = "off"    // when a person says so
	RepairIdle   RepairReset = "idle"   // when nobody has it
	RepairEvict  RepairReset = "evict"  // the same, and pods that have it while it is unusable are evicted
	RepairDryRun RepairReset = "dryRun" // as with off, but acceld says when idle would reset it
)

// The defaults and bounds of [Repair].
const (
	repairAttempts    = 3
	maxRepairAttempts = 20
	repairWindow      = 24 * time.Hour
	minRepairWindow   = time.Minute
	maxRepairWindow   = 31 * 24 * time.Hour
)

// Times returns how often a device is reset within which time at most.
func (r Repair) Times() (attempts int, window time.Duration) {
	window, err := time.ParseDuration(r.Window)
	if err != nil { // it is empty, or was validated
		window = repairWindow
	}
	return cmp.Or(r.Attempts, repairAttempts), window
}

// Problems returns the errors in r, each as "<field>: <sentence>".
func (r Repair) Problems() []string {
	var out []string
	if !slices.Contains([]RepairReset{"", RepairOff, RepairIdle, RepairEvict, RepairDryRun}, r.Reset) {
		out = append(out, fmt.Sprintf("reset: %q is not one of off, idle, evict, dryRun", r.Reset))
	}
	if r.Attempts < 0 || r.Attempts > maxRepairAttempts {
		out = append(out, fmt.Sprintf("attempts: %d is not from 0 to %d", r.Attempts, maxRepairAttempts))
	}
	if d, err := time.ParseDuration(r.Window); r.Window != "" &&
		(err != nil || d < minRepairWindow || d > maxRepairWindow) {
		out = append(out, fmt.Sprintf("window: %q is not a time from %s to %s", r.Window, minRepairWindow,
			maxRepairWindow))
	}
	return out
}

// RepairState is what acceld does about a device that needs a reset.
type RepairState string

// The values of RepairState.
const (
	RepairWaits   RepairState = "waits"    // for what the message says
	RepairRuns    RepairState = "runs"     // it is being reset
	RepairGivenUp RepairState = "given-up" // somebody has to look at it
)

// RepairStates returns all states.
func RepairStates() []RepairState { return []RepairState{RepairWaits, RepairRuns, RepairGivenUp} }

// RepairHave is what acceld does about a device that needs a reset.
type RepairHave struct {
	State RepairState `json:"state"`
	// Message says what it waits for, or why it has given up.
	Message string `json:"message,omitempty"`
	// Attempts is how often the device was reset within the window.
	Attempts int `json:"attempts"`
}

// String is for people: "waits until nobody has it: pod default/train; reset once before".
func (r RepairHave) String() string {
	text := "waits " + r.Message
	switch r.State {
	case RepairRuns:
		text = "it is being reset"
	case RepairGivenUp:
		text = "given up: " + r.Message
	}
	switch r.Attempts {
	case 0:
	case 1:
		text += "; reset once before"
	default:
		text += fmt.Sprintf("; reset %d times before", r.Attempts)
	}
	return text
}
