package agent

import (
	"context"
	"log/slog"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/host"
)

// resetPoll is how often a reset is looked at while one goes on: whoever is killed in the midst has its lock for a
// moment longer than its files, whose closing is the event.
const resetPoll = 200 * time.Millisecond

// resets holds devices back while somebody resets them (`acceld reset`), and lets go of their driver.
type resets struct {
	host    *host.Host
	driver  *driver.Driver
	machine func() accel.Machine
	// pause ends the probe program of a kind until resume is called.
	pause func(ctx context.Context, kind string) (resume func())
	// poke tells the follower of holders, and wake the loop.
	poke func()
	wake func(helps bool)
	log  *slog.Logger
	// changes are of the file in which a reset names its devices.
	changes <-chan string

	// devices are those that somebody resets; nil before the first.
	devices atomic.Pointer[[]string]
	// resume lets the probe programs run again, by kind; run's.
	resume map[string]func()
}

// watch begins to watch for resets.
func (r *resets) watch(ctx context.Context) (err error) {
	r.changes, err = r.host.Watch(ctx, path.Dir(driver.ResetSign()))
	return err
}

// run follows resets until ctx ends.
func (r *resets) run(ctx context.Context) error {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case name, ok := <-r.changes:
			if !ok {
				return nil
			}
			if name != driver.ResetSign() {
				continue
			}
		case <-again.C:
		}
		ids := driver.Resetting(r.host)
		r.hold(ctx, ids)
		if len(ids) > 0 {
			again.Reset(resetPoll)
		}
	}
}

// hold takes over which devices are being reset. A kind's program ends before its device is shown as held back: it has
// the driver open.
func (r *resets) hold(ctx context.Context, ids []string) {
	if held := r.devices.Load(); held != nil && slices.Equal(*held, ids) || held == nil && len(ids) == 0 {
		return
	}
	if r.resume == nil {
		r.resume = map[string]func(){}
	}
	busy := map[string]bool{}
	for kind, have := range r.machine().Have {
		busy[kind] = slices.ContainsFunc(have.Accelerators, func(x accel.Accelerator) bool {
			return slices.Contains(ids, x.ID)
		})
		if busy[kind] && r.resume[kind] == nil {
			r.resume[kind] = r.pause(ctx, kind)
		}
	}
	r.devices.Store(&ids)
	for kind, goOn := range r.resume {
		if !busy[kind] {
			goOn()
			delete(r.resume, kind)
		}
	}
	r.log.Info("devices being reset", "devices", ids)
	r.poke()
	r.wake(true) // a driver may be missing
}

// isHeld reports whether a device is being reset.
func (r *resets) isHeld(id string) bool {
	held := r.devices.Load()
	return held != nil && slices.Contains(*held, id)
}

// shown returns the devices of a kind with those that are being reset as they were before, and withheld: that
// driver and nodes come and go is no news.
func (r *resets) shown(def *accel.Definition, accs []accel.Accelerator) []accel.Accelerator {
	last := r.machine().Have[def.Kind].Accelerators
	for i, x := range accs {
		if !r.isHeld(x.ID) {
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
func (r *resets) probeDriver(def *accel.Definition, facts accel.Facts, accs []accel.Accelerator) (
	accel.DriverHave, *accel.Problem,
) {
	others := slices.DeleteFunc(slices.Clone(accs), func(x accel.Accelerator) bool { return r.isHeld(x.ID) })
	return r.driver.Probe(def, facts, others)
}
