package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/deadline"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
)

// Switches gives devices to VFIO, for claims, and back to the driver of their kind.
type Switches struct{ *Driver }

// NewSwitches returns what switches the devices of a driver manager's host.
func NewSwitches(d *Driver) Switches { return Switches{d} }

// SwitchRequest is a device that a claim asks for with VFIO.
type SwitchRequest struct {
	Def    *accel.Definition
	Device accel.Accelerator
	// Claim is the UID of the claim, and Name its namespace and name.
	Claim, Name string
	// Known reports whether acceld gives a function out by itself.
	Known func(id string) bool
	// Ready returns when nobody is given the device any more. It is called after the journal is written.
	Ready func(context.Context) *accel.Problem
}

// Give gives a device to VFIO, or goes on where an interrupted switch has ended, and returns the device as it is then.
// If that is impossible, the device goes back to its driver. It changes nothing if somebody has the device open, or if
// the IOMMU group is not the device's alone.
func (d Switches) Give(ctx context.Context, facts accel.Facts, r SwitchRequest) (accel.Accelerator, *accel.Problem) {
	a := r.Device
	release, problem := d.locks.Driver(ctx, r.Def.Kind)
	if problem != nil {
		return a, problem
	}
	defer release()
	g := giving{Switches: d, SwitchRequest: r, facts: facts}
	problem = g.run(ctx)
	if problem == nil {
		return d.given(a), nil
	}
	if j, _ := d.h.Devices().SwitchedOf(a.ID); j != nil && j.Claim == r.Claim && ctx.Err() == nil {
		if stuck := d.restore(ctx, a.ID); stuck != nil {
			problem.Message += "; " + stuck.Message
		}
	}
	return a, problem
}

// giving is one switch to VFIO in progress.
type giving struct {
	Switches
	SwitchRequest
	facts accel.Facts
	ready bool // Ready has returned
	// stopped are the companions, which had the device open.
	stopped bool
}

// maxSwitchSteps bounds a switch: each step is needed at most twice.
const maxSwitchSteps = 16

// run takes the steps of a switch to VFIO.
func (g *giving) run(ctx context.Context) (problem *accel.Problem) {
	defer func() {
		if g.stopped {
			version := sight{modules: g.loader.liveOf(g.Def)}.version()
			problem = cmp.Or(problem, g.halves.attend(context.WithoutCancel(ctx), g.Def, version))
		}
	}()
	for range maxSwitchSteps {
		s := g.see(g.Device.ID, g.Def.Driver.Binds, g.Known)
		if g.Def.VFIO != nil {
			s.Target = g.live(*g.Def.VFIO)
		}
		step, problem := away(g.Def, g.Device.ID, g.Claim, s)
		switch {
		case problem != nil || step == switchDone:
			return problem
		case ctx.Err() != nil:
			return accel.Problemf(accel.SwitchFailed, "device %q: the switch was called off before %q", g.Device.ID, step)
		case step != switchNote && !g.ready:
			if problem := g.Ready(ctx); problem != nil {
				return problem
			}
			g.ready = true
			continue // whoever was given it just before is seen now
		}
		if problem := g.take(ctx, step, s); problem != nil {
			return problem
		}
	}
	return accel.Problemf(accel.SwitchFailed, "device %q does not stay with the driver for vfio", g.Device.ID)
}

// take takes one step.
func (g *giving) take(ctx context.Context, step switchStep, s switchSight) *accel.Problem {
	id := g.Device.ID
	g.point("before: " + string(step))
	defer g.point("after: " + string(step))
	switch step {
	case switchNote:
		err := g.h.Devices().Switch(id, accel.Switched{
			Use: accel.UseVFIO, Kind: g.Def.Kind, Driver: g.Def.VFIO.DriverName(), From: g.Def.Driver.Binds,
			Kept: s.Kept, Group: s.Group, Claim: g.Claim, Name: g.Name, Since: time.Now().UTC().Truncate(time.Second),
			Serial: g.Device.Serial, UUID: g.Device.UUID, Model: g.Device.Model,
		})
		if err != nil {
			return accel.ProblemOf(err, "cannot give device %q out with vfio", id)
		}
		return nil
	case switchLoad:
		return g.load(ctx)
	case switchAwait:
		there := deadline.Until(ctx, g.settle, func() bool { return g.groupNode(id) })
		if !there {
			return accel.Problemf(accel.SwitchFailed, "device %q has driver %q, and the node of its IOMMU group is missing", id,
				s.Bound)
		}
		return nil
	case switchUnbind:
		g.stopped = len(g.companions.Units(g.Def.Kind)) > 0
		if problem := g.companions.Stop(ctx, g.Def.Kind); problem != nil {
			return problem
		}
	}
	return g.effect(ctx, id, step, s.Journal.Driver)
}

// effect changes a device: what both directions have in common.
func (d Switches) effect(ctx context.Context, id string, step switchStep, driver string) *accel.Problem {
	var err error
	override := path.Join(d.h.Devices().Dir(id), "driver_override")
	switch step {
	case switchKeep:
		err = d.ledger.Attribute(override, driver)
	case switchUnbind:
		err = d.operate(ctx, "unbind", id, path.Join(d.h.Devices().Dir(id), "driver/unbind"))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // it has none: somebody was faster
		}
	case switchBind:
		err = d.operate(ctx, "bind", id, path.Join("/sys/bus/pci/drivers", driver, "bind"))
	case switchForget:
		err = d.h.Devices().Unswitch(id)
	}
	if err != nil {
		return accel.ProblemOr(err, accel.SwitchFailed, "cannot %s: device %q, driver %q", step, id, driver)
	}
	return nil
}

// load makes the modules for VFIO live. They are the kernel's, and stay loaded.
func (g *giving) load(ctx context.Context) *accel.Problem {
	v := *g.Def.VFIO
	def := &accel.Definition{Kind: g.Def.Kind + "-vfio", Driver: accel.DriverDefinition{Binds: v.DriverName()}}
	for _, name := range v.ModuleNames() {
		def.Driver.Modules = append(def.Driver.Modules, accel.Module{Name: name})
	}
	plan, _, problem := g.sources.Acquire(ctx, def, g.facts, source.Options{NoBuild: true})
	if problem != nil {
		return problem
	}
	defer plan.Close()
	loaded, log, problem := g.loader.insertAll(ctx, def, g.facts, plan, func() *accel.Problem { return nil })
	if problem == nil && !g.live(v) {
		problem = accel.Problemf(accel.SwitchFailed, "the modules for vfio are loaded, and there is no PCI driver %q%s",
			v.DriverName(), kernelSays(log, v.DriverName()))
	}
	if problem != nil {
		for _, name := range slices.Backward(loaded) {
			if err := g.loader.unload(context.WithoutCancel(ctx), name); err != nil {
				g.log.Warn("cannot unload a module again", "module", name, "error", err)
			}
		}
	}
	return problem
}

// live reports whether the driver for VFIO and its modules are live, or in the kernel.
func (d Switches) live(v accel.VFIO) bool {
	return d.h.Exists(path.Join("/sys/bus/pci/drivers", v.DriverName())) &&
		!slices.ContainsFunc(v.ModuleNames(), func(name string) bool {
			return !d.h.Exists(path.Join("/sys/module", kmod.Normal(name)))
		})
}

// see reads what the machine shows about a device. Binds is the driver of its kind.
func (d Switches) see(id, binds string, known func(string) bool) (s switchSight) {
	dir := d.h.Devices().Dir(id)
	var err error
	s.Journal, s.Unknown = d.h.Devices().SwitchedOf(id)
	s.Present = d.h.Exists(dir)
	s.Bound = d.takeover.bound(id)
	if o, err := d.h.ReadAttribute(path.Join(dir, "driver_override")); err == nil && o != "(null)" {
		s.Kept = o
	}
	if s.Journal != nil {
		binds = cmp.Or(s.Journal.From, binds)
	}
	s.Home = binds != "" && d.h.Exists(path.Join("/sys/bus/pci/drivers", binds))
	s.Node = d.groupNode(id)
	s.Functions = len(Functions(d).Of(id))
	divided, undecided := d.h.Devices().DividedOf(id)
	s.Divided, s.Unknown = divided != nil, cmp.Or(s.Unknown, undecided)
	s.Barred = d.devices.Barred(id)
	s.Users = d.usersOf(id)
	if servesHost(s.Bound) {
		if s.Use, err = d.devices.HostUse(id); err != nil {
			s.Unknown = cmp.Or(s.Unknown, fmt.Errorf("whether this host itself uses it is not known: %w", err))
		}
	}
	s.Group = -1
	if g, err := strconv.Atoi(d.h.Devices().Group(id)); err == nil && s.Present {
		s.Group = g
		if s.Others, err = d.members(g, id, known); err != nil {
			s.Unknown = cmp.Or(s.Unknown, err)
		}
	}
	return s
}

// members returns the other functions of an IOMMU group that are no bridges.
func (d Switches) members(group int, id string, known func(string) bool) (out []groupMember, err error) {
	names, err := d.h.Names(path.Join("/sys/kernel/iommu_groups", strconv.Itoa(group), "devices"))
	if err != nil {
		return nil, fmt.Errorf("what else is in IOMMU group %d is not known: %w", group, err)
	}
	if !slices.Contains(names, id) {
		return nil, fmt.Errorf("IOMMU group %d does not have the device", group)
	}
	for _, name := range names {
		if name != id && !d.devices.Bridge(name) {
			out = append(out, groupMember{
				Address: name, Driver: d.takeover.bound(name), Known: known != nil && known(name),
			})
		}
	}
	return out, nil
}

// groupNode reports whether the node of a device's IOMMU group is there.
func (d Switches) groupNode(id string) bool {
	found, missing := d.h.Devices().Nodes(id, accel.VFIONodeOf())
	return len(found) == 1 && len(missing) == 0 && d.h.Exists(found[0].Path)
}

// usersOf returns who has a device open, apart from acceld and the companions of drivers.
func (d Switches) usersOf(id string) []accel.Holder {
	who := d.companions.Without("*", d.devices.Processes(d.devices.ForeignNodes(id)))
	return slices.DeleteFunc(who, func(h accel.Holder) bool {
		return h.PID == os.Getpid() || d.o.Ours != nil && d.o.Ours(h.PID)
	})
}

// given returns a device as VFIO has it.
func (d Switches) given(a accel.Accelerator) accel.Accelerator {
	a.Switched, _ = d.h.Devices().SwitchedOf(a.ID) // it was just read
	a.Bound, a.Nodes = d.takeover.bound(a.ID), nil
	found, _ := d.h.Devices().Nodes(a.ID, accel.VFIONodeOf())
	for _, n := range found {
		a.Nodes = append(a.Nodes, n.DeviceNode)
	}
	a.WithholdSwitched()
	return a
}

// switched reports whether a device is given out with another driver than its kind's, or may be.
func (d Switches) switched(id string) bool {
	j, err := d.h.Devices().SwitchedOf(id)
	return j != nil || err != nil
}

// Return gives a device back to the driver of its kind, if it is over with what it was given out for: over is asked
// while nobody else changes drivers.
func (d Switches) Return(ctx context.Context, id string, over func(accel.Switched) bool) *accel.Problem {
	release, problem := d.locks.Driver(ctx, "")
	if problem != nil {
		return problem
	}
	defer release()
	j, err := d.h.Devices().SwitchedOf(id)
	if err != nil {
		return accel.ProblemOr(err, accel.NotGivenBack, "device %q is not given back", id)
	}
	if j == nil || !over(*j) {
		return nil
	}
	return d.restore(ctx, id)
}

// restore takes the steps back to the driver of the kind. The driver lock is held.
func (d Switches) restore(ctx context.Context, id string) *accel.Problem {
	ctx = context.WithoutCancel(ctx) // once begun, each step is short
	refused := false
	for range maxSwitchSteps {
		s := d.see(id, "", nil)
		s.Refused = refused
		step, problem := back(id, s)
		if problem != nil || step == switchDone {
			return problem
		}
		d.point("before: " + string(step))
		switch step {
		case switchBind:
			problem = d.effect(ctx, id, step, s.Journal.From)
			if refused = problem != nil; refused {
				d.log.Warn("the driver of the kind has refused a device that it had before", "device", id, "problem", problem)
				problem = nil
			}
		case switchRestore:
			problem = d.unkeep(id, s.Journal)
		default:
			problem = d.effect(ctx, id, step, s.Journal.Driver)
		}
		if problem != nil {
			return accel.Problemf(accel.NotGivenBack, "device %q is not given back: %s", id, problem.Message)
		}
		d.point("after: " + string(step))
		if step == switchForget {
			d.log.Info("device given back", "kind", s.Journal.Kind, "device", id, "from", s.Journal.Driver, "to", s.Bound)
		}
	}
	return accel.Problemf(accel.NotGivenBack, "device %q does not stay with the driver of its kind", id)
}

// unkeep restores driver_override as it was before the switch.
func (d Switches) unkeep(id string, j *accel.Switched) *accel.Problem {
	file := path.Join(d.h.Devices().Dir(id), "driver_override")
	var err error
	if j.Kept != "" {
		err = d.ledger.Attribute(file, j.Kept)
	} else {
		_, err = d.ledger.Undo(ledger.UndoOptions{Only: func(p string) bool {
			return strings.HasSuffix(p, "/"+id+"/driver_override")
		}})
	}
	if o, unread := d.h.ReadAttribute(file); err == nil && unread == nil && o == j.Driver {
		err = d.h.WriteAttribute(file, "\n") // the ledger has no record of it; a lone newline unsets it (Linux 5.19)
	}
	if err != nil {
		return accel.ProblemOf(err, "cannot restore driver_override of %q", id)
	}
	return nil
}

// purge gives all switched devices back. The driver lock is held.
func (d Switches) purge(ctx context.Context, o PurgeOptions) (out []ledger.Outcome) {
	all, err := d.h.Devices().Switched()
	if err != nil {
		out = append(out, leftBecause(host.SwitchedDir, accel.ProblemOf(err, "a device may be given out otherwise")))
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		j := all[id]
		result := ledger.Outcome{
			Path: d.h.Devices().Dir(id), Action: ledger.Restored, Detail: fmt.Sprintf("bound to %q again", j.From),
		}
		switch _, problem := back(id, d.see(id, "", nil)); {
		case o.KeepDrivers:
			result.Action, result.Detail = ledger.Kept, fmt.Sprintf("the device stays with driver %q", j.Driver)
		case problem != nil:
			result = leftBecause(result.Path, problem)
		case !o.DryRun:
			if problem := d.restore(ctx, id); problem != nil {
				result = leftBecause(result.Path, problem)
			}
		}
		if result.Action == ledger.Left && !o.DryRun {
			// The journal goes with acceld's directories; the ledger stays, and the next purge goes on from it.
			if err := d.ledger.Note(NoteTakeover, id, j.From); err == nil {
				continue // it is reported with the devices that were taken over
			}
		}
		out = append(out, result)
	}
	return out
}
