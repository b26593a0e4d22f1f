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
	// Refused is why the last reset was refused, or has failed, while it is not tried again; otherwise nil.
	Refused *accel.Problem
	// Attempts is how often the device was reset within the window.
	Attempts int
	// Unknown is true while it is not known whether a policy of the cluster limits repairs.
	Unknown bool
	// Allowed is whether the policy that limits repairs, if there is one, lets this node begin.
	Allowed bool
	// Hindrance is why somebody else's work on the node keeps a repair from beginning; empty if nothing does. Begun is
	// whether pods were evicted for this one.
	Hindrance string
	Begun     bool
	// Ill is how many devices of the kind need a reset, and Present how many there are.
	Ill, Present int
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
		have.State, have.Common = accel.RepairGivenUp, true
		have.Message = fmt.Sprintf("%d of %d devices need a reset at once: look for what they have in common", c.Ill,
			c.Present)
	case !c.Serves:
		have.Message = "until the driver works"
	case c.Device.WithheldBy(accel.ByReset):
		have.Message = "until somebody else has reset it"
	case c.Against != nil:
		have.State, have.Message = accel.RepairGivenUp, c.Against.Message
	case c.Hindrance != "" && !c.Begun:
		have.Message = "until nobody else works on the node: " + c.Hindrance
	case len(c.Users) > 0 && !c.evicts():
		have.Message = "until nobody has it: " + strings.Join(c.Users, ", ")
	case c.Def.Repair.Reset == accel.RepairDryRun:
		have.Would, have.Message = true, "for a person: with `repair: {reset: idle}` it would be reset now"
	case c.Refused != nil: // others may begin meanwhile
		have.Message = "to be tried again: " + c.Refused.Message
	case c.Unknown:
		have.Message = "until the policies of the cluster are known"
	case c.Def.Repair.By != "" && !c.Allowed:
		have.Asks, have.Message = true, fmt.Sprintf("until the policy %q lets this node begin", c.Def.Repair.By)
	case len(c.Users) > 0:
		have.Asks = c.Def.Repair.By != ""
		have.Message = "until nobody has it: " + strings.Join(c.Users, ", ")
	default:
		have.State, have.Asks = accel.RepairRuns, c.Def.Repair.By != ""
	}
	return have
}

// evicts reports whether the pods that have the device are evicted. A device that can be used is offered to others
// meanwhile, and would never be free.
func (c Case) evicts() bool {
	return c.Def.Repair.Reset == accel.RepairEvict && !c.Device.Health.Usable()
}
