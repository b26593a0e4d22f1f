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
	// Reset is when the device is reset, as `acceld reset` does it; never when empty.
	Reset RepairReset `json:"reset,omitempty"`
	// Attempts is how often a device is reset within Window at most, whoever resets it; 3 when 0. After that it waits
	// for a person.
	Attempts int `json:"attempts,omitempty"`
	// Window is a time such as "12h"; "24h" when empty.
	Window string `json:"window,omitempty" form:"duration"`
	// Watch is how long a device stays withheld after the beginning of a reset, such as "5m"; not at all when empty. If
	// it fails again in that time, no pod had it.
	Watch string `json:"watch,omitempty" form:"duration"`
	// NoExecute has the actions whose need ends the pods that have a device by a claim: its taint then has the effect
	// NoExecute, and the control plane deletes them (feature gate DRADeviceTaints), whatever their disruption budget.
	// While a policy limits repairs, that is never so with ResetDevice: acceld then evicts within the limits.
	NoExecute []Action `json:"noExecute,omitempty"`
	// By names the cluster policy that limits repairs: no reset and no eviction begins before the policy's controller
	// has allowed it. acceld sets it.
	By string `json:"by,omitempty"`
}

// RepairReset is when a device is reset.
type RepairReset string

// The values of RepairReset.
const (
	RepairNever  RepairReset = "never"  // when a person says so
	RepairIdle   RepairReset = "idle"   // when nobody has it
	RepairEvict  RepairReset = "evict"  // the same, and pods that have it while it is unusable are evicted
	RepairDryRun RepairReset = "dryRun" // as with never, but acceld says when idle would reset it
)

// The defaults and bounds of [Repair].
const (
	repairAttempts    = 3
	maxRepairAttempts = 20
	repairWindow      = 24 * time.Hour
	minRepairWindow   = time.Minute
	maxRepairWindow   = 31 * 24 * time.Hour
	minRepairWatch    = time.Second
	maxRepairWatch    = 24 * time.Hour
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
	if !slices.Contains([]RepairReset{"", RepairNever, RepairIdle, RepairEvict, RepairDryRun}, r.Reset) {
		out = append(out, "reset: "+NotOneOf(r.Reset, "never", "idle", "evict", "dryRun"))
	}
	for i, a := range r.NoExecute {
		if !slices.Contains(Actions(), a) {
			out = append(out, fmt.Sprintf("noExecute[%d]: %s", i, NotOneOf(a, "RestartWorkload", "ResetDevice", "Reboot", "Service")))
		}
	}
	if r.By != "" {
		out = append(out, "by: is for a policy of the cluster to set")
	}
	if r.Attempts < 0 || r.Attempts > maxRepairAttempts {
		out = append(out, fmt.Sprintf("attempts: %d is not from 0 to %d", r.Attempts, maxRepairAttempts))
	}
	if d, err := time.ParseDuration(r.Window); r.Window != "" &&
		(err != nil || d < minRepairWindow || d > maxRepairWindow) {
		out = append(out, fmt.Sprintf("window: %q is not a time from %s to %s", r.Window, minRepairWindow,
			maxRepairWindow))
	}
	if d, err := time.ParseDuration(r.Watch); r.Watch != "" && (err != nil || d < minRepairWatch || d > maxRepairWatch) {
		out = append(out, fmt.Sprintf("watch: %q is not a time from %s to %s", r.Watch, minRepairWatch, maxRepairWatch))
	}
	return out
}

// Watches returns how long a device stays withheld after the beginning of a reset; 0 if not at all.
func (r Repair) Watches() time.Duration {
	d, err := time.ParseDuration(r.Watch)
	if err != nil { // it is empty, or was validated
		return 0
	}
	return d
}

// EndsPods reports whether the health of a device ends the pods that have it by a claim.
func (d *Definition) EndsPods(a Accelerator) bool {
	r := d.Repair
	if r == nil || a.Health.Usable() || a.Health.Action == ActionResetDevice && r.By != "" {
		return false
	}
	if a.Repair != nil && a.Repair.Common {
		return false // most devices of the kind are sick: the cause is elsewhere
	}
	return slices.Contains(r.NoExecute, a.Health.Action)
}

// NeedsRepair reports whether the health of a device asks for a reset that the definition lets acceld make, or name.
func (d *Definition) NeedsRepair(a Accelerator) bool {
	if d.Repair == nil || d.Repair.Reset == "" || d.Repair.Reset == RepairNever {
		return false
	}
	return a.Present() && a.Health.State != Healthy && a.Health.Action == ActionResetDevice
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
	// Common is whether acceld has given up because most devices of the kind need a reset at once.
	Common bool `json:"common,omitempty"`
	// Would is whether the dry run would reset it now.
	Would bool `json:"would,omitempty"`
	// Evicts is whether acceld has begun to evict the pods that have the device.
	Evicts bool `json:"evicts,omitempty"`
	// Asks is whether the device waits for, or uses, the permission of the policy that limits repairs.
	Asks bool `json:"asks,omitempty"`
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
