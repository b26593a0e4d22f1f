package agent

import (
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/loop"
)

// draining is a device plugin for a kind that was allocated by claims before. It does not offer the devices that pods
// still hold by those claims.
type draining struct {
	loop.Plugin
	claims interface {
		Update([]accel.Accelerator)
		Held() (ids []string, known bool)
	}
}

// Update passes the devices to both plugins: the DRA plugin gives them to containers that start again.
func (d *draining) Update(accs []accel.Accelerator) {
	d.claims.Update(accs)
	held, known := d.claims.Held()
	offer := slices.Clone(accs)
	for i, x := range offer {
		if x.Offered() && (!known || slices.Contains(held, x.ID)) {
			offer[i].Withheld = &accel.Withheld{
				By: accel.ByPod, Reason: accel.DeviceHeld,
				Message: "held by a pod's claim",
			}
		}
	}
	d.Plugin.Update(offer)
}

// Problem reports that claims hold devices, or that nobody knows which, unless the device plugin has a problem of its
// own.
func (d *draining) Problem() *accel.Problem {
	if p := d.Plugin.Problem(); p != nil {
		return p
	}
	held, known := d.claims.Held()
	switch {
	case !known:
		return accel.Problemf(accel.ProbeUnanswered,
			"no device is offered: it is not known which devices claims of pods hold")
	case len(held) > 0:
		return accel.Problemf(accel.DeviceHeld, "%d devices are held by claims of pods", len(held))
	}
	return nil
}
