package agent

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/deviceplugin"
	"github.com/acceld/acceld/dra"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/repair"
)

// repairs are what a repairer does with the organs of an agent.
type repairs struct{ *Agent }

// repairer returns what resets devices that need it.
func (a repairs) repairer() *repair.Repairer {
	return repair.New(repair.Options{
		Log: a.Log, Follow: func() (accel.Machine, <-chan struct{}) { return a.loop.Follow() }, Changed: a.changed,
		Users: a.usersOf, Against: a.againstReset, Reset: a.resetNow,
		Evictor: a.repairEvictor, Attempts: a.history.Resets,
		Attempt: func(kind string, x accel.Accelerator, why string) (func(), *accel.Problem) {
			return a.history.Attempt(kind, x, time.Now(), why)
		},
	})
}

// usersOf names who has a device: processes, pods that were given it, and whoever has to be asked and does not answer.
func (a repairs) usersOf(ctx context.Context, def *accel.Definition, x accel.Accelerator) []string {
	names := a.users.podsOn(ctx, def, x)
	for _, h := range a.users.others(driver.NewCleaner(a.driver).Users(def, x)) {
		if !slices.Contains(names, h.String()) {
			names = append(names, h.String())
		}
	}
	return names
}

// repairEvictor returns what evicts the pods that have a device.
func (a repairs) repairEvictor(def *accel.Definition, x accel.Accelerator) func(context.Context) *accel.Problem {
	evict := a.evictor()
	return func(ctx context.Context) *accel.Problem {
		return evict(ctx, func() []accel.Holder { return a.holdersOf(ctx, def, x) })
	}
}

// holdersOf returns the processes and the pods that have a device or a part of it, as far as they are known.
func (a repairs) holdersOf(ctx context.Context, def *accel.Definition, x accel.Accelerator) []accel.Holder {
	ids := map[string]bool{}
	for _, unit := range accel.Flat([]accel.Accelerator{x}) {
		ids[unit.ID] = true
	}
	held, _ := a.users.held(ctx, def)
	maps.DeleteFunc(held, func(id string, _ []deviceplugin.PodRef) bool { return !ids[id] })
	claims, _ := a.users.claimed(ctx, def)
	claims = slices.DeleteFunc(claims, func(h dra.Holder) bool { return !ids[h.Device] })
	processes := driver.NewCleaner(a.driver).Users(def, x)
	return NameClaimants(nameHolders(processes, held, []accel.Accelerator{x}), claims)
}

// resetTarget returns a device with those that are linked to it.
func (a repairs) resetTarget(def *accel.Definition, x accel.Accelerator) []driver.ResetTarget {
	t := driver.ResetTarget{Def: def, Device: x}
	for _, other := range a.machine().Have[def.Kind].Accelerators {
		if other.Fabric != "" && other.Fabric == x.Fabric {
			t.Linked = append(t.Linked, other.ID)
		}
	}
	return []driver.ResetTarget{t}
}

// againstReset returns what forbids the reset of a device, whoever has it.
func (a repairs) againstReset(def *accel.Definition, x accel.Accelerator) *accel.Problem {
	return a.driver.PlanReset(a.machine().Facts, a.resetTarget(def, x))[0].Problem
}

// resetNow resets a device that nobody has.
func (a repairs) resetNow(ctx context.Context, def *accel.Definition, x accel.Accelerator) *accel.Problem {
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
