package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/deadline"
	"github.com/acceld/acceld/driver/devices"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/guard"
)

// resetDeadline is how long the kernel may take to unbind, reset or bind a device. After a reset the kernel waits up
// to a minute for the device itself (PCIE_RESET_READY_POLL_MS, drivers/pci/pci.c, Linux 6.12).
const resetDeadline = 2 * time.Minute

// ResetTarget is a device to reset.
type ResetTarget struct {
	Def    *accel.Definition
	Device accel.Accelerator
	// Linked are all devices with a direct link to this one. The list may include the device itself.
	Linked []string
}

// ResetPlan says how one device would be reset, and what is known to prevent it.
type ResetPlan struct {
	ResetTarget
	// Bound is the driver that the device is unbound from; empty if it has none.
	Bound string
	// Methods are the kernel's ways to reset the function, in the order in which the kernel tries them. It is empty
	// if the driver is only unbound and bound again.
	Methods []string
	// Users are the processes that have one of the device's nodes open or mapped.
	Users []accel.Holder
	// Problem forbids the reset, whether or not the device is in use; nil if nothing does.
	Problem *accel.Problem
}

// PlanReset says what a reset of all targets together would do. It changes nothing.
func (d *Driver) PlanReset(facts accel.Facts, targets []ResetTarget) []ResetPlan {
	var plans []ResetPlan
	for _, t := range targets {
		p := ResetPlan{ResetTarget: t}
		seen := d.devices.Observe(t.Def, []accel.Accelerator{t.Device})
		p.Problem = d.planReset(facts, targets, seen, &p)
		nodes := d.devices.ForeignNodes(t.Device.ID)
		for _, a := range accel.Flat([]accel.Accelerator{t.Device}) {
			nodes = append(nodes, a.Nodes...)
		}
		for _, v := range seen {
			nodes = append(nodes, v.Nodes...)
		}
		p.Users = d.companions.Without(t.Def.Kind, d.devices.Processes(nodes))
		plans = append(plans, p)
	}
	return plans
}

// planReset fills in how an observed device is reset, and returns what forbids it.
func (d *Driver) planReset(facts accel.Facts, targets []ResetTarget, seen []devices.Device,
	p *ResetPlan,
) *accel.Problem {
	id, def := p.Device.ID, p.Def
	if (Switches{d}).switched(id) {
		return accel.Problemf(accel.CannotReset, "device %q is given out with another driver than its kind's: wait until"+
			" its claim is over", id)
	}
	if len(seen) == 0 {
		return accel.Problemf(accel.DeviceGone, "device %q is not on the bus", id)
	}
	p.Bound = seen[0].Bound
	if problem := devices.Problem(def, seen, false); problem != nil {
		return problem
	}
	cannot := func(format string, args ...any) *accel.Problem {
		return accel.Problemf(accel.CannotReset, "device %q %s", id, fmt.Sprintf(format, args...))
	}
	switch {
	case def.Reset == accel.ResetNever:
		return cannot("is not to be reset by the kernel: the definition of %q says so", def.Kind)
	case !d.h.Exists(driverDir(def)):
		return cannot("would have no driver afterwards: %q is not loaded", def.Driver.Binds)
	case d.journals.read(def.Kind) != nil:
		return cannot("waits for the upgrade of its driver to go on, or back")
	}
	if def.Reset != accel.ResetRebind {
		if !d.h.Exists(path.Join(d.h.Devices().Dir(id), "reset")) {
			return cannot("has no attribute \"reset\": the kernel knows no way to reset its function")
		}
		text, err := d.h.ReadAttribute(path.Join(d.h.Devices().Dir(id), "reset_method"))
		if p.Methods = strings.Fields(text); err != nil {
			p.Methods = []string{"unknown"} // before Linux 5.15
		}
		if len(p.Methods) == 0 {
			return cannot("has no method in its attribute \"reset_method\": somebody has switched all of them off")
		}
	}
	if i := slices.IndexFunc(facts.PCI, func(f accel.PCIDevice) bool { return f.Address == id }); i >= 0 &&
		facts.PCI[i].SRIOV.NumVFs > 0 {
		return accel.Problemf(accel.ResetShared,
			"device %q has %d virtual functions, which would go with it: write 0 to its sriov_numvfs first, or leave functions out of the configuration", id,
			facts.PCI[i].SRIOV.NumVFs)
	}
	named := func(other string) bool {
		return slices.ContainsFunc(targets, func(t ResetTarget) bool { return t.Device.ID == other })
	}
	if others := slices.DeleteFunc(hit(facts.PCI, id, p.Methods), named); len(others) > 0 {
		return accel.Problemf(accel.ResetShared, "a reset of device %q (%s) would reset %s too", id,
			strings.Join(p.Methods, ", "), strings.Join(others, ", "))
	}
	if others := slices.DeleteFunc(slices.Clone(p.Linked), named); len(others) > 0 {
		return accel.Problemf(accel.ResetShared,
			"device %q has links of its own to %s, which must be reset together with it", id,
			strings.Join(others, ", "))
	}
	return nil
}

// driverDir is the directory of the driver of a kind while it is loaded.
func driverDir(def *accel.Definition) string {
	return path.Join(path.Dir(def.Subsystem().Dir), "drivers", def.Driver.Binds)
}

// name is the kernel's name of a device.
func (r *resetting) name(p ResetPlan) string { return r.h.Devices().Place(p.Device.ID).Name }

// hit returns the other functions that one of the methods may reset along with the function id: those below the same
// port, with everything below them, or, on a root bus, those in the same slot. The kernel offers most of these
// methods only for a function that is alone on its bus (pci_parent_bus_reset, drivers/pci/pci.c), but a slot reset,
// or a method that is not known here, may affect more.
func hit(pci []accel.PCIDevice, id string, methods []string) (others []string) {
	// These methods reset only the function itself (pci_reset_fn_methods, Linux 6.12).
	alone := []string{"flr", "af_flr", "pm", "acpi", "device_specific"}
	if !slices.ContainsFunc(methods, func(m string) bool { return !slices.Contains(alone, m) }) {
		return nil
	}
	ports, _ := accel.PortsAbove(id, pci)
	slot, _, _ := strings.Cut(id, ".")
	for _, f := range pci {
		above, _ := accel.PortsAbove(f.Address, pci)
		switch {
		case f.Address == id:
		case len(ports) > 0 && slices.Contains(above, ports[len(ports)-1]), len(ports) == 0 &&
			strings.HasPrefix(f.Address, slot+"."):
			others = append(others, f.Address)
		}
	}
	return others
}

// Reset resets devices that are not in use, all of them together. It unbinds their driver, lets the kernel reset each
// function, and binds the driver again; then each device must pass its self-test. It touches nothing if a device is
// in use (InUse), or if anything else prevents the reset.
//
// During the reset, Reset holds the driver lock and lists the devices in the lock's file, so that the agent does not
// allocate them (see [lock.Resetting]). It calls ready once the list is visible. Ready returns when the agent has
// withheld the devices, and its problem cancels the reset. The kernel drops the lock when the process ends, so nothing
// can be left stale: the next [Driver.Ensure] of the kind, or the next Reset, binds a device that has no driver. Once a
// device has been touched, the reset is no longer cancelled.
func (d *Driver) Reset(ctx context.Context, facts accel.Facts, targets []ResetTarget,
	ready func(context.Context) *accel.Problem,
) *accel.Problem {
	release, problem := d.locks.Driver(ctx, "")
	if problem != nil {
		return problem
	}
	r := &resetting{Driver: d, stuck: map[string]chan struct{}{}}
	defer func() { r.end(release) }()
	for _, t := range targets {
		r.ids = append(r.ids, t.Device.ID)
	}
	// WriteAttribute does not truncate the file, so each text must be at least as long as the previous one. The agent
	// is notified when this descriptor is closed. The lock belongs to another descriptor.
	text := lock.Text(d.h, r.ids...)
	if err := d.h.WriteAttribute(lock.DriverFile(), text); err != nil {
		return accel.ProblemOf(err, "cannot say that %s are to be reset", strings.Join(r.ids, ", "))
	}
	defer func() {
		if len(r.stuck) == 0 {
			// Otherwise the list stays valid until the lock is released.
			_ = d.h.WriteAttribute(lock.DriverFile(), fmt.Sprintf("%-*s", len(text), lock.Text(d.h)))
		}
	}()
	d.point("reset announced")
	if problem := ready(ctx); problem != nil {
		return problem
	}
	r.plans = d.PlanReset(facts, targets) // the state may have changed since the caller looked
	for _, p := range r.plans {
		if p.Problem != nil {
			return p.Problem
		}
		if problem := accel.InUseProblem(fmt.Sprintf("device %q", p.Device.ID), p.Users); problem != nil {
			return problem
		}
	}
	return r.run(context.WithoutCancel(ctx))
}

// resetting is one reset in progress.
type resetting struct {
	*Driver
	ids   []string
	plans []ResetPlan
	// stuck are devices for which the kernel did not finish in time. Each channel is closed when the kernel returns.
	stuck map[string]chan struct{}
}

// end releases the lock once the kernel has finished every operation.
func (r *resetting) end(release func()) {
	if len(r.stuck) == 0 {
		release()
		return
	}
	guard.Go(func() {
		for _, back := range r.stuck {
			<-back
		}
		release()
	})
}

// tell writes one attribute and waits until the kernel has acted on it.
func (r *resetting) tell(ctx context.Context, what, id, file, text string) *accel.Problem {
	back := make(chan struct{})
	err := r.operations.Within(ctx, resetDeadline, what+" "+id, func() error {
		defer close(back)
		return r.attribute(file, text)
	})
	if errors.Is(err, deadline.ErrNoAnswer) {
		r.stuck[id] = back
		err = fmt.Errorf("%w; the kernel is still at it", err)
	}
	if err != nil {
		return accel.Problemf(accel.ReasonForError(err, accel.ResetFailed), "cannot %s device %q: %v", what, id, err)
	}
	r.point(what + " " + id)
	return nil
}

// run carries out the reset. Whatever fails on the way, it tries to bind every device to its driver again.
func (r *resetting) run(ctx context.Context) *accel.Problem {
	tail, unread := r.h.Kernel().Tail()
	if unread == nil {
		defer tail.Close()
	}
	var problem *accel.Problem
	for _, p := range r.plans {
		problem = cmp.Or(problem, r.companions.Stop(ctx, p.Def.Kind))
	}
	for _, p := range r.plans {
		if problem == nil && p.Bound != "" {
			problem = r.tell(ctx, "unbind", p.Device.ID, path.Join(driverDir(p.Def), "unbind"), r.name(p))
		}
	}
	for _, p := range r.plans {
		if problem == nil && len(p.Methods) > 0 {
			problem = r.tell(ctx, "reset", p.Device.ID, path.Join(r.h.Devices().Dir(p.Device.ID), "reset"), "1")
		}
	}
	for _, p := range r.plans {
		if r.stuck[p.Device.ID] == nil {
			problem = cmp.Or(problem, r.bind(ctx, p))
		}
	}
	for _, p := range r.plans {
		version := sight{modules: r.loader.liveOf(p.Def)}.version()
		problem = cmp.Or(problem, r.halves.attend(ctx, p.Def, version)) // the next Ensure does it if this did not
	}
	for _, p := range r.plans {
		if problem == nil {
			about := accel.Accelerator{ID: p.Device.ID, UUID: p.Device.UUID, Partitions: p.Device.Partitions}
			_, problem = selfTest{r.Driver, true}.run(ctx, p.Def, []accel.Accelerator{about})
		}
	}
	if problem == nil {
		r.log.Debug("devices reset", "devices", len(r.plans))
	} else if unread == nil {
		problem.Message += kernelSays(tail.Lines(), r.ids...)
	}
	return problem
}

// bind binds a device to its driver, unless it is already bound, and waits for its nodes.
func (r *resetting) bind(ctx context.Context, p ResetPlan) *accel.Problem {
	accs := []accel.Accelerator{p.Device}
	var refused *accel.Problem
	if seen := r.devices.Observe(p.Def, accs); len(seen) > 0 && seen[0].Bound == "" {
		refused = r.tell(ctx, "bind", p.Device.ID, path.Join(driverDir(p.Def), "bind"), r.name(p))
	}
	there := func() *accel.Problem {
		seen := r.devices.Observe(p.Def, accs)
		if len(seen) == 0 {
			return accel.Problemf(accel.DeviceGone, "device %q has not come back to the bus", p.Device.ID)
		}
		return devices.Problem(p.Def, seen, true)
	}
	if refused == nil {
		deadline.Until(ctx, r.settle, func() bool {
			r.devices.MakeNodes(p.Def, accs, false)
			return there() == nil
		})
	}
	problem := there()
	if problem != nil && refused != nil {
		return refused // the refusal says more
	}
	return problem
}
