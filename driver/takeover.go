package driver

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/devices"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/host/ledger"
)

// takeover takes devices from other drivers, records each takeover, and returns the devices.
type takeover struct{ *Driver }

// operate writes the ID of a device to a file of the PCI bus, to bind or unbind it. What names the operation.
func (d *Driver) operate(ctx context.Context, what, id, file string) error {
	return d.operations.Do(ctx, what+" "+id, func() error { return d.attribute(file, id) })
}

// reprobe asks the kernel to find a driver for a device that has none, or for what is below it.
func (d *Driver) reprobe(ctx context.Context, v devices.Device) {
	place := d.h.Devices().Place(v.ID)
	name, file := place.Name, path.Join(path.Dir(place.Drivers), "drivers_probe")
	switch {
	case place.Drivers == "":
		return // a device of a class is what a driver made
	case v.Below != nil:
		name, file = v.Below.Name, v.Below.ProbeFile()
	case v.Bound != "":
		return
	}
	if err := d.operate(ctx, "bind", name, file); err != nil {
		d.log.Warn("cannot ask for a probe", "device", name, "error", err)
	}
}

// wanted returns the devices that must be taken from another driver before ours can have them, if that is allowed for
// each of them. Otherwise the problem names the first one for which it is not allowed, the cause, and what the
// operator can do.
func (t takeover) wanted(def *accel.Definition, accs []accel.Accelerator) ([]devices.Device, *accel.Problem) {
	var out []devices.Device
	for _, v := range t.devices.Observe(def, accs) {
		if v.Bound == "" || def.Serves(v.Bound) {
			continue
		}
		if problem := t.mayTake(def, v); problem != nil {
			return nil, problem
		}
		out = append(out, v)
	}
	return out, nil
}

// mayTake says why a device is left to the driver that it is bound to. It never takes a device that somebody assigned
// elsewhere on purpose (to a virtual machine, or by driver_override), that shows the console, or that is in use: by
// processes, or by the host itself as a disk or a network interface.
func (t takeover) mayTake(def *accel.Definition, v devices.Device) *accel.Problem {
	is := fmt.Sprintf("device %q is bound to driver %q, not to %q", v.ID, v.Bound, def.Driver.Binds)
	listed := slices.ContainsFunc(def.Driver.Conflicts,
		func(name string) bool { return kmod.Normal(name) == kmod.Normal(v.Bound) })
	blacklist := fmt.Sprintf(`"blacklist %s" in a file of /etc/modprobe.d, a new initramfs and a reboot`, v.Bound)
	switch {
	case strings.Contains(v.Bound, "vfio") || v.Bound == "pci-stub" || v.Bound == "xen-pciback":
		return accel.Problemf(accel.ConflictDriver, "%s: it is set aside for a virtual machine and stays there", is)
	case !listed:
		return accel.Problemf(accel.ConflictDriver,
			"%s, and driver.conflicts does not name that driver: unbind it, or use %s", is, blacklist)
	case !def.Driver.Takeover:
		return accel.Problemf(accel.ConflictDriver, "%s: set driver.takeover, or use %s", is, blacklist)
	case v.Kept != "" && v.Kept != def.Driver.Binds:
		return accel.Problemf(accel.ConflictDriver, "%s, and kept for driver %q by driver_override", is, v.Kept)
	case def.Driver.Override && t.devices.Bridge(v.ID):
		return accel.Problemf(accel.ConflictDriver, "%s, and is a bridge, which leads to other devices", is)
	case t.devices.ShowsConsole(v.ID):
		return accel.Problemf(accel.ConflictDriver, "%s, and shows the machine's console, which would be lost: use %s",
			is, blacklist)
	}
	switch use, err := t.devices.HostUse(v.ID); {
	case err != nil:
		return accel.Problemf(accel.ConflictDriver, "%s, and whether this host itself uses it is not known: %v", is, err)
	case use != "":
		return accel.Problemf(accel.InUse, "%s, and this host itself uses it: %s", is, use)
	}
	if problem := accel.HoldersProblem(def.Kind, t.users(v.ID)); problem != nil {
		problem.Message = is + ": " + problem.Message
		return problem
	}
	return nil
}

// users returns who has a device open, or one of its virtual functions, which go with its driver.
func (t takeover) users(id string) []accel.Holder {
	return Functions(t).add(t.devices.Processes(t.devices.ForeignNodes(id)), []accel.Accelerator{{ID: id}})
}

// contested returns what remains of a device problem once permitted takeovers are taken into account. It is nil if
// every device can be had, or if some devices are free and can be served.
func (t takeover) contested(def *accel.Definition, accs []accel.Accelerator, problem *accel.Problem) *accel.Problem {
	if problem == nil || problem.Reason != accel.ConflictDriver {
		return problem
	}
	if t.devices.AnyFree(def, accs) {
		return nil
	}
	take, refused := t.wanted(def, accs)
	if refused == nil && len(take) == 0 {
		return problem // kept for another driver
	}
	return refused
}

// insertPlan makes the modules of a plan live, along with what they need: firmware, and devices that other drivers
// hold. See loader.insertAll for the return values.
func (d *Driver) insertPlan(ctx context.Context, def *accel.Definition, facts accel.Facts, accs []accel.Accelerator,
	p *kmod.Plan,
) (loaded, log []string, problem *accel.Problem) {
	if problem := d.firmware.Place(facts, p); problem != nil {
		return nil, nil, problem
	}
	attempt := p.ID + " " + store.Wish(def, facts)
	if problem := d.takeover.refused(def, accs, attempt); problem != nil {
		return nil, nil, problem
	}
	loaded, log, problem = d.loader.insertAll(ctx, def, facts, p, func() *accel.Problem {
		return d.takeover.take(ctx, def, accs, attempt)
	})
	if problem == nil {
		d.takeover.offer(ctx, def, accs)
	}
	return loaded, log, problem
}

// takeAgain is how long devices stay with the driver that they were returned to while acceld would only repeat the
// attempt that failed: each attempt interrupts whoever uses them.
const takeAgain = 10 * time.Minute

// takes remembers, by kind, the last attempts for which devices were taken over.
type takes struct {
	mu   sync.Mutex
	last map[string]taken
}

// taken is an attempt to load a driver for which devices were taken over. The problem is nil unless it failed.
type taken struct {
	attempt string
	at      time.Time
	problem *accel.Problem
}

// begin notes an attempt.
func (s *takes) begin(kind, attempt string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = map[string]taken{}
	}
	s.last[kind] = taken{attempt: attempt, at: time.Now()}
}

// end notes how the attempt of a kind ended that began at a time or later; a nil problem forgets all attempts.
func (s *takes) end(kind string, since time.Time, problem *accel.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.last[kind]
	switch {
	case problem == nil:
		delete(s.last, kind)
	case known && !last.at.Before(since):
		last.problem = problem
		s.last[kind] = last
	}
}

// failed returns the last attempt of a kind if it was the same one, failed, and is not long ago.
func (s *takes) failed(kind, attempt string) (taken, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.last[kind]
	return last, last.problem != nil && last.attempt == attempt && time.Since(last.at) < takeAgain
}

// refused returns why devices are not taken over now, although they may be: the same attempt has just failed.
func (t takeover) refused(def *accel.Definition, accs []accel.Accelerator, attempt string) *accel.Problem {
	last, failed := t.takes.failed(def.Kind, attempt)
	if !failed {
		return nil
	}
	held, problem := t.wanted(def, accs)
	if problem != nil || len(held) == 0 {
		return nil //nolint:nilerr // nothing would be taken
	}
	again := *last.problem
	again.Message = fmt.Sprintf("%s; device %q stays with driver %q, and is taken from it again at %s at the earliest",
		again.Message, held[0].ID, held[0].Bound, last.at.Add(takeAgain).Format("15:04:05"))
	return &again
}

// take takes the devices that another driver holds. For each device it records the driver that has it, sets
// driver_override to keep it for ours, and unbinds it; each change is recorded before it is made. If a failure or the
// end of the process interrupts a takeover, giveBack undoes it. Unlike the modules of a driver, devices are taken one
// by one: the first one that cannot be had ends it.
func (t takeover) take(ctx context.Context, def *accel.Definition, accs []accel.Accelerator,
	attempt string,
) *accel.Problem {
	taken, problem := t.wanted(def, accs)
	if problem != nil && t.devices.AnyFree(def, accs) {
		return t.reserve(def, accs) // the free devices are served; Probe names the others
	}
	if problem != nil {
		return problem
	}
	if problem := t.reserve(def, accs); problem != nil {
		return problem
	}
	if len(taken) > 0 {
		t.takes.begin(def.Kind, attempt)
	}
	for _, v := range taken {
		dir := t.h.Devices().Dir(v.ID)
		if problem := t.keep(def, v); problem != nil {
			return problem
		}
		if err := t.operate(ctx, "unbind", v.ID, path.Join(dir, "driver/unbind")); err != nil {
			return accel.ProblemOf(err, "cannot take device %q from driver %q", v.ID, v.Bound)
		}
		t.point("device unbound")
		t.log.Info("device taken over", "kind", def.Kind, "device", v.ID, "from", v.Bound)
	}
	return nil
}

// keep records which driver has a device, and keeps the device for ours by driver_override.
func (t takeover) keep(def *accel.Definition, v devices.Device) *accel.Problem {
	if def.Driver.Override {
		if err := t.ledger.Note(NoteOverride, v.ID, overrideText(def)); err != nil {
			return accel.ProblemOf(err, "cannot keep device %q for driver %q", v.ID, def.Driver.Binds)
		}
	}
	if err := t.ledger.Note(NoteTakeover, v.ID, v.Bound); err != nil {
		return accel.ProblemOf(err, "cannot take device %q from driver %q", v.ID, v.Bound)
	}
	t.point("takeover noted")
	if err := t.ledger.Attribute(path.Join(t.h.Devices().Dir(v.ID), "driver_override"), def.Driver.Binds); err != nil {
		return accel.ProblemOf(err, "cannot keep device %q for driver %q", v.ID, def.Driver.Binds)
	}
	t.point("device kept")
	return nil
}

// offer asks the kernel to bind the devices that were taken: a module that was already live has not probed them.
func (t takeover) offer(ctx context.Context, def *accel.Definition, accs []accel.Accelerator) {
	notes, err := t.ledger.Notes(NoteTakeover)
	if err != nil {
		return // without a record nothing was taken
	}
	for _, v := range t.devices.Observe(def, accs) {
		if slices.ContainsFunc(notes, func(n ledger.Note) bool { return n.Name == v.ID }) {
			t.reprobe(ctx, v)
		}
	}
}

// settle is giveBack under the driver lock.
func (t takeover) settle(ctx context.Context, def *accel.Definition, accs []accel.Accelerator) {
	if notes, err := t.ledger.Notes(NoteTakeover); err != nil || len(notes) == 0 {
		return
	}
	release, problem := t.locks.Driver(ctx, def.Kind)
	if problem != nil {
		return // the lock's holder deals with the devices, and the next Ensure looks again
	}
	defer release()
	t.giveBack(ctx, def, accs)
}

// giveBack returns devices that were taken over and are not bound to our driver to the drivers that had them. The
// takeovers are recorded in the ledger, so this also cleans up after a process that died.
func (t takeover) giveBack(ctx context.Context, def *accel.Definition, accs []accel.Accelerator) {
	notes, err := t.ledger.Notes(NoteTakeover)
	if err != nil {
		return // what is not recorded was not taken
	}
	ctx = context.WithoutCancel(ctx) // also if the caller gives up
	seen := t.devices.Observe(def, accs)
	for _, n := range slices.Backward(notes) {
		i := slices.IndexFunc(seen, func(v devices.Device) bool { return v.ID == n.Name })
		if i < 0 || seen[i].Bound == def.Driver.Binds {
			continue
		}
		t.unkeep(n.Name)
		if seen[i].Bound == "" {
			if problem := t.giveBackDevice(ctx, n, false); problem != nil {
				t.log.Warn("a device cannot be given back", "device", n.Name, "driver", n.Text, "problem", problem)
				continue // it stays recorded: the next Ensure or purge tries again
			}
			t.log.Info("device given back", "kind", def.Kind, "device", n.Name, "to", n.Text)
		}
		t.forget(n.Name)
	}
}

// unkeep restores driver_override of a device.
func (t takeover) unkeep(id string) {
	// The ledger records the path with links resolved, below /sys/devices.
	override := func(p string) bool { return strings.HasSuffix(p, "/"+id+"/driver_override") }
	if _, err := t.ledger.Undo(ledger.UndoOptions{Only: override}); err != nil {
		t.log.Warn("cannot clear what keeps a device for a driver", "device", id, "error", err)
	}
}

// forget removes what is on record about a device that was given back.
func (t takeover) forget(id string) {
	for _, note := range []string{NoteTakeover, NoteOverride} {
		if err := t.ledger.Forget(note, id); err != nil {
			t.log.Warn("a device that was given back is still on record", "device", id, "error", err)
		}
	}
}
