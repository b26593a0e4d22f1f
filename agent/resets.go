package agent

import (
	"context"
	"log/slog"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/host"
)

// resetPoll is how often the agent checks a reset in progress. Closing the file is the event, but a killed process
// holds its lock for a moment after its files are closed.
const resetPoll = 200 * time.Millisecond

// resets follows which devices `acceld reset` resets, and releases their driver. The loop withholds them.
type resets struct {
	host    *host.Host
	machine func() accel.Machine
	// pause ends the probe program of a kind until resume is called.
	pause func(ctx context.Context, kind string) (resume func())
	// poke notifies the follower of holders; wake wakes the loop.
	poke func()
	wake func(helps bool)
	log  *slog.Logger
	// changes are the changes of the file in which a reset names its devices.
	changes <-chan string

	// devices are the devices that are being reset; nil before the first reset.
	devices atomic.Pointer[[]string]
	// resume resumes the probe programs, by kind. Only run uses it.
	resume map[string]func()
}

// watch starts to watch for resets.
func (r *resets) watch(ctx context.Context) (err error) {
	r.changes, err = r.host.Watch(ctx, path.Dir(lock.DriverFile()))
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
			if name != lock.DriverFile() {
				continue
			}
		case <-again.C:
		}
		ids := lock.Resetting(r.host)
		r.hold(ctx, ids)
		if len(ids) > 0 {
			again.Reset(resetPoll)
		}
	}
}

// hold takes over which devices are being reset. It ends a kind's probe program, which has the driver open, before
// the device is shown as withheld. An agent that starts during a reset learns only later of which kind the devices are.
func (r *resets) hold(ctx context.Context, ids []string) {
	held := r.devices.Load()
	if held == nil && len(ids) == 0 {
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
	if held != nil && slices.Equal(*held, ids) {
		return
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

// isHeld reports whether a device is being reset; see loop.Probes.
func (r *resets) isHeld(id string) bool {
	held := r.devices.Load()
	return held != nil && slices.Contains(*held, id)
}
