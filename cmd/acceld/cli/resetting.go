package cli

import (
	"context"
	"path"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver"
)

// resetAgain is how often it is looked whether a reset goes on: whoever is killed in the midst has its lock for a moment longer than
// its files, whose closing is the event.
const resetAgain = 200 * time.Millisecond

// followResets holds devices back while somebody resets them (`acceld reset`), and lets go of their driver.
func (a *running) followResets(ctx context.Context) error {
	changes, err := a.host.Watch(ctx, path.Dir(driver.ResetSign()))
	if err != nil {
		return err
	}
	a.group.Go(func() {
		resume := map[string]func(){} // probe programs that wait, by kind
		again := time.NewTimer(0)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case name, ok := <-changes:
				if !ok {
					return
				}
				if name != driver.ResetSign() {
					continue
				}
			case <-again.C:
			}
			ids := driver.Resetting(a.host)
			a.hold(ctx, ids, resume)
			if len(ids) > 0 {
				again.Reset(resetAgain)
			}
		}
	})
	return nil
}

// hold takes over which devices are being reset. A kind's program ends before its device is shown as held back: it has the driver
// open.
func (a *running) hold(ctx context.Context, ids []string, resume map[string]func()) {
	if held := a.resets.Load(); held != nil && slices.Equal(*held, ids) || held == nil && len(ids) == 0 {
		return
	}
	busy := map[string]bool{}
	for kind, have := range a.loop.Machine().Have {
		busy[kind] = slices.ContainsFunc(have.Accelerators, func(x accel.Accelerator) bool { return slices.Contains(ids, x.ID) })
		if busy[kind] && resume[kind] == nil {
			resume[kind] = a.programs.Pause(ctx, kind)
		}
	}
	a.resets.Store(&ids)
	for kind, goOn := range resume {
		if !busy[kind] {
			goOn()
			delete(resume, kind)
		}
	}
	a.log.Info("devices being reset", "devices", ids)
	a.holding.Poke()
	a.loop.Wake(true) // a driver may be missing
}

// isHeld reports whether a device is being reset.
func (a *running) isHeld(id string) bool {
	held := a.resets.Load()
	return held != nil && slices.Contains(*held, id)
}

// heldForReset shows devices that are being reset as they were before, and withheld: that driver and nodes come and go is no
// news.
func (a *running) heldForReset(def *accel.Definition, accs []accel.Accelerator) []accel.Accelerator {
	last := a.loop.Machine().Have[def.Kind].Accelerators
	for i, x := range accs {
		if !a.isHeld(x.ID) {
			continue
		}
		for _, old := range last {
			if old.ID == x.ID && old.Present() {
				accs[i] = old
			}
		}
		accs[i].Withheld = &accel.Withheld{By: accel.ByReset, Reason: accel.BeingReset, Message: "it is being reset"}
	}
	return accs
}

// probeDriver is the driver's probe without the devices that are being reset.
func (a *running) probeDriver(def *accel.Definition, facts accel.Facts, accs []accel.Accelerator) (accel.DriverHave, *accel.Problem) {
	return a.driver.Probe(def, facts, slices.DeleteFunc(slices.Clone(accs), func(x accel.Accelerator) bool { return a.isHeld(x.ID) }))
}
