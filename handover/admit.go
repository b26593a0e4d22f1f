package handover

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
)

// Admit lets the container whose first process is pid have devices. It returns when every device was cleaned of what
// other tenants left on it and it is written down that the container's tenant has it, or with the problem that the
// pod's event shows. Devices of kinds that need no care, and partitions, pass.
func (k *Keeper) Admit(ctx context.Context, pid int, ids []string) *accel.Problem {
	processes := k.o.Host.Processes()
	group, err := processes.GroupOf(pid)
	if err != nil {
		return accel.Problemf(accel.HandoverRefused, "it is not known whose container this is: %v", err)
	}
	who := tenant{Group: group, Since: time.Now()}
	if mounts := processes.MountNamespace(pid); mounts != "" {
		who.Mounts = []string{mounts}
	}
	ids = slices.Clone(ids)
	slices.Sort(ids) // two containers with the same devices wait in one order
	for _, id := range slices.Compact(ids) {
		if problem := k.admit(ctx, who, id); problem != nil {
			return problem
		}
	}
	return nil
}

// Lend lets a claim have a device that it gets in another way than with the driver of its kind: no container of the
// claim asks for it then. It is [Keeper.Admit] for a claim that is prepared, before the device gets its other driver.
func (k *Keeper) Lend(ctx context.Context, claim, id string) *accel.Problem {
	return k.admit(ctx, tenant{Claim: claim, Since: time.Now()}, id)
}

// admit lets a tenant have one device.
func (k *Keeper) admit(ctx context.Context, who tenant, id string) *accel.Problem {
	k.mu.Lock()
	defer k.mu.Unlock()
	for asked := false; ; {
		def, a := k.find(id)
		if def != nil && def.Handover == nil {
			return nil // it was configured otherwise meanwhile
		}
		known := def != nil && k.loaded && k.ctx != nil
		if known && who.Group.Pod != "" {
			var uids []string
			if uids, known = k.o.Claims(id); len(uids) > 0 {
				who.Claim = uids[0]
			}
		}
		if !known {
			if problem := k.await(ctx, nil, "it is not known yet who has it"); problem != nil {
				return of(id, problem)
			}
			continue
		}
		d := k.device(id)
		former := k.remaining(d, true)
		switch {
		case d.cleaning != nil:
		case k.grant(d, def, a, who):
			k.tell() // its end is watched from now on
			return k.save()
		case asked && d.problem != nil:
			return d.problem
		case former == nil:
			asked = true
			k.clean(id, d, def, a)
		}
		var problem *accel.Problem
		if d.cleaning != nil {
			problem = k.await(ctx, d.cleaning, "it is still being cleaned")
		} else {
			problem = k.awaitTenant(ctx, *former)
		}
		if problem != nil {
			return of(id, problem)
		}
	}
}

// of names the device in a problem.
func of(id string, p *accel.Problem) *accel.Problem {
	return accel.Problemf(p.Reason, "device %q: %s", id, p.Message)
}

// await waits, unlocked, until something is closed, or there is news. If ctx ends first, it returns a problem with the
// sentence.
func (k *Keeper) await(ctx context.Context, closed <-chan struct{}, sentence string) *accel.Problem {
	news := k.news
	k.mu.Unlock()
	defer k.mu.Lock()
	select {
	case <-closed:
	case <-news:
	case <-ctx.Done():
		return accel.Problemf(accel.HandoverRefused, "%s: this is tried again", sentence)
	}
	return nil
}

// awaitTenant waits, unlocked, until the processes of a former tenant have ended, or there is news.
func (k *Keeper) awaitTenant(ctx context.Context, former tenant) *accel.Problem {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	empty := make(chan struct{})
	if former.Claim == "" || k.unprepared(former.Claim) { // otherwise there is news when it is unprepared
		guard.Go(func() {
			for _, g := range former.groups() {
				if k.o.Host.Processes().AwaitEmpty(waiting, g) != nil {
					return
				}
			}
			close(empty)
		})
	}
	return k.await(ctx, empty, fmt.Sprintf("%s has it and has not ended", former))
}

// grant lets a tenant have a device if it may have it as it is, and reports whether it may. The keeper is locked.
func (k *Keeper) grant(d *device, def *accel.Definition, a accel.Accelerator, who tenant) bool {
	if k.learn(d, def, a); d.tenancy == nil {
		return false
	}
	y := d.tenancy
	switch same := y.find(who); {
	case same != nil:
		same.add(who)
	case len(y.Tenants) == 0, def.ReplicasOf(a) > 1:
		y.Tenants = append(y.Tenants, who)
	default:
		return false
	}
	d.problem, d.failures = nil, 0
	return true
}

// learn finds out who has a device of which that is not known: who has it open now has found on it whatever is there.
// The keeper is locked.
func (k *Keeper) learn(d *device, def *accel.Definition, a accel.Accelerator) {
	if d.tenancy != nil || d.cleaning != nil {
		return
	}
	for _, u := range k.o.Users(def, a) {
		group, err := k.o.Host.Processes().GroupOf(u.PID)
		if err != nil {
			continue // it has ended, or is nobody's container
		}
		if d.tenancy == nil {
			d.tenancy = &tenancy{}
		}
		t := tenant{Group: group, Since: time.Now()}
		if same := d.tenancy.find(t); same == nil {
			d.tenancy.Tenants = append(d.tenancy.Tenants, t)
		}
	}
}

// belongs reports whether a process is one of a tenant's, by its control group or its mount namespace. The kernel
// reuses the number of a mount namespace that is gone, so the number proves nothing about a process in another pod's
// group.
func (k *Keeper) belongs(t tenant, pid int) bool {
	p := k.o.Host.Processes()
	if slices.ContainsFunc(t.groups(), func(g host.Group) bool { return p.Contains(g, pid) }) {
		return true
	}
	if own, err := p.GroupOf(pid); err == nil && own.Pod != "" {
		return false
	}
	return slices.Contains(t.Mounts, p.MountNamespace(pid))
}

// remaining returns a former tenant of a device that has not ended; nil if all have. Asked means that somebody else was
// given the device: then a pod without a process has ended, although its control group may still be there. The keeper
// is locked.
func (k *Keeper) remaining(d *device, asked bool) *tenant {
	if d.tenancy == nil {
		return nil
	}
	p := k.o.Host.Processes()
	for i, t := range d.tenancy.Tenants {
		there := p.There(t.Group)
		switch {
		case t.Claim != "":
			there = !k.unprepared(t.Claim) || slices.ContainsFunc(t.groups(), p.Populated)
		case asked || t.Group.Pod == "":
			there = there && p.Populated(t.Group)
		}
		if there {
			return &d.tenancy.Tenants[i]
		}
	}
	return nil
}

// ended reports whether a control group is gone.
func (k *Keeper) ended(g host.Group) bool { return !k.o.Host.Processes().There(g) }

// unprepared reports whether no device is prepared for a claim any more.
func (k *Keeper) unprepared(claim string) bool {
	for id := range k.devices {
		if uids, known := k.o.Claims(id); !known || slices.Contains(uids, claim) {
			return false
		}
	}
	return true
}
