package driver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/host/ledger"
)

// The notes that this package keeps in the ledger. They are valid until the next boot, like what they describe.
const (
	// NoteModule is a module that acceld loaded.
	NoteModule = "module"
	// NoteTakeover is a PCI function that acceld took from another driver. Its name is the PCI address and its text
	// the name of the driver, empty if it had none.
	NoteTakeover = "takeover"
	// NoteOverride is a PCI function that acceld bound by driver_override for a kind whose driver knows no ids
	// (driver.override). Its name is the PCI address and its text the kind and the driver. What was there before is in
	// a NoteTakeover.
	NoteOverride = "override"
)

// PurgeOptions choose what a purge does.
type PurgeOptions struct {
	// DryRun changes nothing.
	DryRun bool
	// KeepDrivers leaves the modules loaded and the devices with them.
	KeepDrivers bool
	// Kinds are the active definitions with their devices. Purge looks for holders of these devices' nodes. A module
	// of any other kind is unloaded too, if the kernel counts no user.
	Kinds map[*accel.Definition][]accel.Accelerator
}

// Purge undoes what acceld did to the running kernel. It unloads the modules that acceld itself loaded, the last one
// first, restores sysfs and procfs attributes, and returns devices to the drivers they were taken from. An
// interrupted upgrade needs no special case: whichever of its modules are loaded are unloaded. What is in use stays
// and is named. Modules that were loaded before the ledger existed, or whose record is lost, are recognised by their
// build-id in the store.
func (d *Driver) Purge(ctx context.Context, o PurgeOptions) ([]ledger.Outcome, *accel.Problem) {
	if !o.DryRun {
		release, problem := d.locks.Driver(ctx, "")
		if problem != nil {
			return nil, problem
		}
		defer release()
	}
	out := d.loader.purgeCompanions(ctx, o)
	out = slices.Concat(out, Switches{d}.purge(ctx, o), Divisions{d}.purge(ctx, o)) // before the modules of the drivers
	modules, problem := d.loader.loadedByUs()
	if problem != nil {
		return out, problem
	}
	out = append(out, d.loader.purgeModules(ctx, modules, o)...)
	attributes, err := d.ledger.Undo(ledger.UndoOptions{
		DryRun: o.DryRun, Keep: o.KeepDrivers,
		Only: func(p string) bool {
			return strings.HasPrefix(p, "/sys/") || strings.HasPrefix(p, "/proc/")
		},
	})
	if err != nil {
		return out, accel.ProblemOf(err, "cannot take attributes back")
	}
	back, problem := d.takeover.giveBackAll(ctx, o)
	return slices.Concat(out, attributes, back), problem
}

// purgeCompanions stops the drivers' daemons, also if the drivers stay: their programs go with the store.
func (l *loader) purgeCompanions(ctx context.Context, o PurgeOptions) (out []ledger.Outcome) {
	for _, unit := range l.companions.Units("*") {
		result := ledger.Outcome{Path: unit, Action: ledger.Removed, Detail: "the service is stopped"}
		if !o.DryRun {
			if problem := l.companions.Stop(ctx, accel.CompanionKind(unit)); problem != nil {
				result = leftBecause(unit, problem)
			}
		}
		out = append(out, result)
	}
	return out
}

// loadedByUs returns the live modules that acceld loaded, in the order in which to unload them.
func (l *loader) loadedByUs() ([]accel.LoadedModule, *accel.Problem) {
	notes, err := l.ledger.Notes(NoteModule)
	if err != nil {
		return nil, accel.ProblemOf(err, "cannot know which modules acceld loaded")
	}
	var out []accel.LoadedModule
	for _, n := range slices.Backward(notes) {
		var note loadedNote
		live, ok := kmod.Live(l.h, n.Name)
		if ok && json.Unmarshal([]byte(n.Text), &note) == nil && kmod.Same(live, note.BuildID, note.SrcVersion,
			note.Version) {
			out = append(out, live)
		}
	}
	entries, err := l.store.List()
	if err != nil {
		return nil, accel.ProblemOf(err, "cannot read the store")
	}
	for _, e := range entries {
		for _, s := range slices.Backward(e.Modules) {
			live, ok := kmod.Live(l.h, s.Name)
			known := slices.ContainsFunc(out, func(m accel.LoadedModule) bool { return m.Name == live.Name })
			if ok && !known && s.BuildID != "" && live.BuildID == s.BuildID {
				out = append(out, live)
			}
		}
	}
	return out, nil
}

// purgeModules unloads the modules that nobody uses. It finds all users before it unloads anything.
func (l *loader) purgeModules(ctx context.Context, modules []accel.LoadedModule, o PurgeOptions) []ledger.Outcome {
	var out []ledger.Outcome
	going, left := map[string]bool{}, map[string]bool{}
	attended := len(l.companions.Units("*")) > 0 // in a dry run: what the kernel counts is theirs
	for _, m := range modules {
		going[m.Name] = true
	}
	used := map[string]*accel.Problem{}
	for def, accs := range o.Kinds {
		ours := slices.DeleteFunc(l.liveOf(def), func(m accel.LoadedModule) bool { return !going[m.Name] })
		if len(ours) == 0 {
			continue
		}
		// One user keeps all modules of a kind: half a driver is of no use.
		who := l.companions.Without(def.Kind, l.devices.Users(def, accs, ours))
		if problem := accel.HoldersProblem(def.Kind, who); problem != nil {
			for _, m := range ours {
				used[m.Name] = problem
			}
		}
	}
	for _, m := range modules {
		result := ledger.Outcome{Path: path.Join("/sys/module", m.Name), Action: ledger.Removed}
		switch problem := cmp.Or(used[m.Name], l.unloadable(m, going, attended)); {
		case o.KeepDrivers:
			result.Action, result.Detail = ledger.Kept, "the module stays loaded"
		case problem != nil:
			result = leftBecause(result.Path, problem)
		case !o.DryRun:
			if err := l.unload(ctx, m.Name); err != nil {
				result = leftBecause(result.Path, l.unloadProblem(m.Name, err, false))
			}
		}
		if result.Action == ledger.Left {
			left[m.Name] = true
			delete(going, m.Name) // the modules that it uses stay too
		}
		out = append(out, result)
	}
	if !o.DryRun {
		l.forgetAllBut(left)
	}
	return out
}

// forgetAllBut removes the notes of all modules except those that a purge had to leave: also of modules that are no
// longer live, or that somebody else has replaced.
func (l *loader) forgetAllBut(left map[string]bool) {
	notes, err := l.ledger.Notes(NoteModule)
	if err != nil {
		return // the purge reports this error elsewhere
	}
	for _, n := range notes {
		if !left[n.Name] {
			l.forgetLoad(n.Name)
		}
	}
}

// unloadable says why a module cannot be unloaded even when the modules in going are, and the companions, if there are
// any.
func (l *loader) unloadable(m accel.LoadedModule, going map[string]bool, attended bool) *accel.Problem {
	var who []string
	for _, h := range m.Holders {
		if !going[kmod.Normal(h)] {
			who = append(who, "module "+h)
		}
	}
	if m.RefCnt > len(m.Holders) && !attended {
		who = append(who, "somebody who cannot be seen from here (the kernel counts a use)")
	}
	if len(who) == 0 {
		return nil
	}
	return accel.Problemf(accel.InUse, "module %q is in use by %s", m.Name, strings.Join(who, ", "))
}

func leftBecause(name string, p *accel.Problem) ledger.Outcome {
	return ledger.Outcome{Path: name, Action: ledger.Left, Reason: p.Reason, Detail: p.Message}
}

// giveBackAll binds devices to the drivers that they were taken from.
func (t takeover) giveBackAll(ctx context.Context, o PurgeOptions) ([]ledger.Outcome, *accel.Problem) {
	notes, err := t.ledger.Notes(NoteTakeover)
	if err != nil {
		return nil, accel.ProblemOf(err, "cannot know which devices acceld took")
	}
	overrides, err := t.ledger.Notes(NoteOverride)
	if err != nil {
		return nil, accel.ProblemOf(err, "cannot know which devices acceld has bound")
	}
	var out []ledger.Outcome
	for _, n := range slices.Backward(notes) {
		result := ledger.Outcome{Path: t.h.Devices().Dir(n.Name), Action: ledger.Restored, Detail: t.returned(n)}
		if o.KeepDrivers {
			result.Action, result.Detail = ledger.Kept, "the device stays with its driver"
		} else if other := t.reboundTo(n.Name, overrides); other != "" {
			result.Action, result.Detail = ledger.Kept, fmt.Sprintf("somebody else has bound it to %q", other)
		} else if problem := t.giveBackDevice(ctx, n, o.DryRun); problem != nil {
			result = leftBecause(result.Path, problem)
		}
		if result.Action != ledger.Left && !o.DryRun {
			for _, note := range []string{NoteTakeover, NoteOverride} {
				if err := t.ledger.Forget(note, n.Name); err != nil {
					return out, accel.ProblemOf(err, "cannot forget the takeover of %q", n.Name)
				}
			}
		}
		out = append(out, result)
	}
	return out, nil
}

// returned says where a device that was taken over is after it was returned.
func (t takeover) returned(n ledger.Note) string {
	switch {
	case !t.h.Exists(t.h.Devices().Dir(n.Name)):
		return "the device is no longer on the bus"
	case n.Text == "":
		return "without a driver again"
	}
	return fmt.Sprintf("bound to %q again", n.Text)
}

// giveBackDevice returns a device to the driver that it had.
func (t takeover) giveBackDevice(ctx context.Context, n ledger.Note, dry bool) *accel.Problem {
	dir := t.h.Devices().Dir(n.Name)
	bound := t.bound(n.Name)
	if !t.h.Exists(dir) || bound == n.Text {
		return nil // the device is gone, or somebody else has already returned it
	}
	if bound != "" {
		if problem := t.held(n.Name); problem != nil {
			return problem
		}
	}
	if dry {
		return nil
	}
	if bound != "" {
		if err := t.operate(ctx, "unbind", n.Name, path.Join(dir, "driver/unbind")); err != nil {
			return accel.ProblemOf(err, "cannot take device %q from driver %q", n.Name, bound)
		}
	}
	if n.Text == "" {
		return nil
	}
	driver := path.Join("/sys/bus/pci/drivers", n.Text)
	if !t.h.Exists(driver) {
		return accel.Problemf(accel.DependencyMissing, "device %q was with driver %q, which is not loaded any more",
			n.Name, n.Text)
	}
	if err := t.operate(ctx, "bind", n.Name, path.Join(driver, "bind")); err != nil {
		return accel.ProblemOf(err, "cannot give device %q back to driver %q", n.Name, n.Text)
	}
	return nil
}
