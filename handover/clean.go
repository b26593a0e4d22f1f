package handover

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/pace"
)

// again is when a device is cleaned again that could not be cleaned.
func again() pace.Backoff { return pace.Backoff{First: time.Second, Max: time.Minute} }

// killed is how long a killed process may take to end: one that hangs in the driver does not.
const killed = 5 * time.Second

// clean begins to clean a device whose tenants have ended. The keeper is locked.
func (k *Keeper) clean(id string, d *device, def *accel.Definition, a accel.Accelerator) {
	ended, ctx := make(chan struct{}), k.ctx
	d.cleaning = ended
	// Later, the kernel may have given the number of a tenant's mount namespace to somebody else.
	kills := def.Handover.Leftovers == accel.LeftoversKill && d.failures == 0
	var former []tenant
	var names []string
	if d.tenancy != nil {
		former, names = slices.Clone(d.tenancy.Tenants), d.tenancy.names()
	}
	k.group.Go(func() {
		defer close(ended)
		begin, ends := time.Now(), 0
		problem := accel.Problemf(accel.InternalError, "device %q: the cleaning of it has failed", id) // by a panic
		defer func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.cleaned(id, d, time.Since(begin), ends, problem)
		}()
		ends, problem = k.cleanNow(ctx, def, a, former, kills)
		if problem == nil {
			k.o.Log.Info("device cleaned", "kind", def.Kind, "device", id, "former", strings.Join(names, ", "),
				"took", time.Since(begin).Round(time.Millisecond), "killed", ends)
		}
	})
	k.o.Changed()
}

// cleaned notes how the cleaning of a device has ended. The keeper is locked.
func (k *Keeper) cleaned(id string, d *device, took time.Duration, ends int, problem *accel.Problem) {
	d.cleaning, d.problem = nil, problem
	y := tenancy{}
	if d.tenancy != nil {
		y = *d.tenancy
	}
	y.Killed += ends
	if problem == nil {
		y.Tenants, y.Cleaned, y.Took, y.Last = nil, y.Cleaned+1, y.Took+took, took
		d.failures = 0
	} else {
		d.failures++
		d.retry = time.Now().Add(again().After(d.failures))
		k.o.Log.Warn("a device cannot be cleaned; it is tried again", "device", id, "reason", problem.Reason,
			"problem", problem.Message, "attempts", d.failures)
	}
	if problem == nil || d.tenancy != nil {
		d.tenancy = &y
	}
	if unsaved := k.save(); unsaved != nil {
		k.o.Log.Warn("what was cleaned is cleaned again by the next agent", "problem", unsaved.Message)
	}
	k.tell()
	k.o.Changed()
}

// cleanNow ends what former tenants have left running, scrubs the device and proves it. It returns how many processes
// it has killed.
func (k *Keeper) cleanNow(ctx context.Context, def *accel.Definition, a accel.Accelerator, former []tenant, kills bool,
) (ends int, problem *accel.Problem) {
	const rounds = 5 // a process may have had children before it was killed
	users := k.o.Users(def, a)
	for round := 0; kills && len(users) > 0 && round < rounds; round++ {
		more, problem := k.kill(ctx, users, former)
		ends += more
		if problem != nil || more == 0 {
			return ends, cmp.Or(problem, leftover(a.ID, users))
		}
		users = k.o.Users(def, a)
	}
	if problem := leftover(a.ID, users); problem != nil {
		return ends, problem
	}
	if problem := k.o.Clean(ctx, def, a); problem != nil {
		return ends, problem
	}
	// Whoever has opened it meanwhile may have read it before, and written to it after it was scrubbed.
	return ends, leftover(a.ID, k.o.Users(def, a))
}

// leftover is the problem that somebody has a device open who should not; nil if nobody has.
func leftover(id string, users []accel.Holder) *accel.Problem {
	if len(users) == 0 {
		return nil
	}
	const shown = 5
	var names []string
	for _, u := range users[:min(len(users), shown)] {
		names = append(names, u.String())
	}
	if more := len(users) - shown; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return accel.Problemf(accel.LeftoverProcess, "device %q is still open in %s, after those who were given it have ended",
		id, strings.Join(names, ", "))
}

// kill kills the users of a device that belong to its former tenants, and waits until they have ended. It returns how
// many it has killed.
func (k *Keeper) kill(ctx context.Context, users []accel.Holder, former []tenant) (ends int, problem *accel.Problem) {
	var pids []int
	for _, u := range users {
		did, err := k.o.Host.Processes().Kill(u.PID, func() bool {
			return slices.ContainsFunc(former, func(t tenant) bool { return k.belongs(t, u.PID) })
		})
		if err != nil {
			return ends, accel.ProblemOf(err, "cannot end what a former tenant has left running")
		}
		if !did {
			continue
		}
		k.o.Log.Warn("process of a former tenant killed", "process", u.String(), "device", u.Device)
		pids, ends = append(pids, u.PID), ends+1
	}
	ctx, cancel := context.WithTimeout(ctx, killed)
	defer cancel()
	for _, pid := range pids {
		if k.o.Host.Processes().AwaitExit(ctx, []int{pid}) != nil {
			break // what is still there is a leftover
		}
	}
	return ends, nil
}
