package agent

import (
	"context"
	"time"

	"github.com/acceld/acceld/accel"
)

// releaseAgain is how soon it is looked again whether a device that was in use can be given back.
const releaseAgain = 30 * time.Second

// giveBack gives back the devices that were bound by driver_override for a kind that is no longer in force, until ctx
// ends. An agent that starts with another configuration does so for the earlier ones.
func (a *Agent) giveBack(ctx context.Context) error {
	said := map[string]bool{}
	for {
		m, replaced := a.loop.Follow()
		wait := time.Hour
		if forceKnown(m) {
			released, left := a.driver.Release(ctx, m.Want.Kinds, m.Facts.PCI)
			if len(released) > 0 {
				a.wake(true) // another kind may wait for it
			}
			if len(left) > 0 {
				wait = releaseAgain
			}
			for _, p := range left {
				if !said[p.Message] {
					a.Log.Info("a device is given back later", "reason", p.Reason, "message", p.Message)
				}
			}
			clear(said)
			for _, p := range left {
				said[p.Message] = true
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-replaced:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// forceKnown reports whether it is known which kinds are in force: the host was read, the policies of the cluster are
// known, and no definition or policy is left out for an error in it.
func forceKnown(m accel.Machine) bool {
	return !m.Taken.IsZero() && !m.Want.PoliciesUnknown &&
		(m.Want.Problem == nil || m.Want.Problem.Reason != accel.DefinitionInvalid &&
			m.Want.Problem.Reason != accel.PolicyInvalid)
}
