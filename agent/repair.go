package agent

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/repair"
)

// newRepair returns what resets devices that need it.
func (a *Agent) newRepair() *repair.Repairer {
	return repair.New(repair.Options{
		Log: a.Log, Follow: func() (accel.Machine, <-chan struct{}) { return a.loop.Follow() }, Changed: a.changed,
		Users: a.usersOf, Against: a.againstReset, Reset: a.resetNow,
		Attempts: a.history.Resets,
		Attempt: func(kind string, x accel.Accelerator, why string) (func(), *accel.Problem) {
			return a.history.Attempt(kind, x, time.Now(), why)
		},
	})
}

// usersOf names who has a device: processes, pods that were given it, and whoever has to be asked and does not answer.
func (a *Agent) usersOf(ctx context.Context, def *accel.Definition, x accel.Accelerator) []string {
	names := a.users.podsOn(ctx, def, x)
	for _, h := range driver.NewCleaner(a.driver).Users(def, x) {
		if h.PID != os.Getpid() && !a.programs.Owns(h.PID) && !slices.Contains(names, h.String()) {
			names = append(names, h.String())
		}
	}
	return names
}

// resetTarget returns a device with those that are linked to it.
func (a *Agent) resetTarget(def *accel.Definition, x accel.Accelerator) []driver.ResetTarget {
	t := driver.ResetTarget{Def: def, Device: x}
	for _, other := range a.machine().Have[def.Kind].Accelerators {
		if other.Fabric != "" && other.Fabric == x.Fabric {
			t.Linked = append(t.Linked, other.ID)
		}
	}
	return []driver.ResetTarget{t}
}

// againstReset returns what forbids the reset of a device, whoever has it.
func (a *Agent) againstReset(def *accel.Definition, x accel.Accelerator) *accel.Problem {
	return a.driver.PlanReset(a.machine().Facts, a.resetTarget(def, x))[0].Problem
}

// resetNow resets a device that nobody has.
func (a *Agent) resetNow(ctx context.Context, def *accel.Definition, x accel.Accelerator) *accel.Problem {
	ready := func(ctx context.Context) *accel.Problem {
		if problem := a.awaitReset(x.ID)(ctx); problem != nil {
			return problem
		}
		// Whoever was given it just before it was withheld is known by now.
		if names := a.usersOf(ctx, def, x); len(names) > 0 {
			return accel.Problemf(accel.InUse, "device %q is in use by %s", x.ID, strings.Join(names, ", "))
		}
		return nil
	}
	return a.driver.Reset(ctx, a.machine().Facts, a.resetTarget(def, x), ready)
}
