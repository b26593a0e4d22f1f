package repair

import (
	"fmt"
	"strings"

	"github.com/acceld/acceld/accel"
)

// Case is what is known of a device and its kind.
type Case struct {
	Def    *accel.Definition
	Device accel.Accelerator
	// Serves is false while the kind has no driver that works, or while it is being replaced.
	Serves bool
	// Users names who has the device, or whom acceld has to ask first.
	Users []string
	// Against forbids the reset; nil if nothing does.
	Against *accel.Problem
	// Attempts is how often the device was reset within the window.
	Attempts int
	// Ill is how many devices of the kind need a reset, and Present how many there are.
	Ill, Present int
}

// Needs reports whether the health of a device asks for a reset that its definition lets acceld make, or name.
func Needs(def *accel.Definition, a accel.Accelerator) bool {
	if def.Repair == nil || def.Repair.Reset == "" || def.Repair.Reset == accel.RepairOff {
		return false
	}
	return a.Present() && a.Health.State != accel.Healthy && a.Health.Action == accel.ActionResetDevice
}

// Decide returns what to do about a device that needs a reset.
func Decide(c Case) accel.RepairHave {
	have := accel.RepairHave{State: accel.RepairWaits, Attempts: c.Attempts}
	most, window := c.Def.Repair.Times()
	switch {
	case c.Attempts >= most:
		have.State = accel.RepairGivenUp
		have.Message = fmt.Sprintf("it was reset %d times within %s, or that failed", c.Attempts, window)
	case c.Ill > 1 && 2*c.Ill > c.Present:
		have.State = accel.RepairGivenUp
		have.Message = fmt.Sprintf("%d of %d devices need a reset at once: look for what they have in common", c.Ill,
			c.Present)
	case !c.Serves:
		have.Message = "until the driver works"
	case c.Device.WithheldBy(accel.ByReset):
		have.Message = "until somebody else has reset it"
	case c.Against != nil:
		have.State, have.Message = accel.RepairGivenUp, c.Against.Message
	case len(c.Users) > 0:
		have.Message = "until nobody has it: " + strings.Join(c.Users, ", ")
	case c.Def.Repair.Reset == accel.RepairDryRun:
		have.Message = "for a person: with `repair: {reset: idle}` it would be reset now"
	default:
		have.State = accel.RepairRuns
	}
	return have
}
