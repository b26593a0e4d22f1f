package driver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/devices"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/host/ledger"
)

// The notes that this package keeps in the ledger. They end with the boot, as what they are about does.
const (
	// NoteModule is a module that acceld loaded.
	NoteModule = "module"
	// NoteTakeover is a PCI function that acceld took from another driver; its name is the address and its text the
	// driver, empty when it had none.
	NoteTakeover = "takeover"
)

// forgetful is a kernel whose unloaded modules are off the record.
type forgetful struct {
	Kernel
	forget func(name string)
}

func (k forgetful) Unload(ctx context.Context, name string) error {
	err := k.Kernel.Unload(ctx, name)
	if err == nil {
		k.forget(name)
	}
	return err
}

// PurgeOptions choose what a purge does.
type PurgeOptions struct {
	// DryRun changes nothing.
	DryRun bool
	// KeepDrivers leaves the modules loaded and the devices with them.
	KeepDrivers bool
	// Kinds are the definitions in force with their devices: whose nodes are asked for holders. A module whose kind is
	// not among them goes too, when the kernel counts no user.
	Kinds map[*accel.Definition][]accel.Accelerator
}

// Purge takes back what acceld did to the running kernel: modules that it loaded, and nobody else did, are unloaded,
// the last one first; attributes of sysfs say what they said; devices go back to the driver they were taken from. An
// upgrade that was interrupted is no special case: whichever of its modules are loaded go. What is in use stays and is
// named. Modules that were loaded before the ledger was kept, or whose record is lost, are known by their build-id in
// the store.
func (d *Driver) Purge(ctx context.Context, o PurgeOptions) ([]ledger.Outcome, *accel.Problem) {
	if !o.DryRun {
		release, problem := d.locks.Driver(ctx, "")
		if problem != nil {
			return nil, problem
		}
		defer release()
	}
	modules, problem := d.loader.loadedByUs()
	if problem != nil {
		return nil, problem
	}
	out := d.loader.purgeModules(ctx, modules, o)
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

// loadedByUs returns the live modules that acceld loaded, in the order in which they are to be removed.
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

// purgeModules unloads the modules that nobody uses: first everybody is found, then they go.
func (l *loader) purgeModules(ctx context.Context, modules []accel.LoadedModule, o PurgeOptions) []ledger.Outcome {
	var out []ledger.Outcome
	going := map[string]bool{}
	for _, m := range modules {
		going[m.Name] = true
	}
	used := map[string]*accel.Problem{}
	for def, accs := range o.Kinds {
		ours := slices.DeleteFunc(l.liveOf(def), func(m accel.LoadedModule) bool { return !going[m.Name] })
		if len(ours) == 0 {
			continue
		}
		// half a driver is of use to nobody
		if problem := accel.HoldersProblem(def.Kind, l.devices.Users(def, accs, ours)); problem != nil {
			for _, m := range ours {
				used[m.Name] = problem
			}
		}
	}
	for _, m := range modules {
		result := ledger.Outcome{Path: path.Join("/sys/module", m.Name), Action: ledger.Removed}
		switch problem := cmp.Or(used[m.Name], l.unloadable(m, going)); {
		case o.KeepDrivers:
			result.Action, result.Detail = ledger.Kept, "the module stays loaded"
		case problem != nil:
			result = leftBecause(result.Path, problem)
		case !o.DryRun:
			limited, cancel := context.WithTimeout(ctx, l.timeout)
			err := l.kernel.Unload(limited, m.Name)
			cancel()
			var errno syscall.Errno
			switch {
			case errors.As(err, &errno) && errno != syscall.ENOENT:
				result = leftBecause(result.Path, kmod.UnloadProblem(m.Name, errno, false))
			case err != nil && !errors.Is(err, syscall.ENOENT):
				result = leftBecause(result.Path, accel.ProblemOf(err, "cannot remove module %q", m.Name))
			}
		}
		if result.Action == ledger.Left {
			delete(going, m.Name) // those that it uses stay too
		} else if !o.DryRun {
			l.forgetLoad(m.Name)
		}
		out = append(out, result)
	}
	if !o.DryRun {
		l.forgetGone(going, out)
	}
	return out
}

// forgetGone ends the notes of modules that are not live any more, or were replaced by somebody else's.
func (l *loader) forgetGone(going map[string]bool, out []ledger.Outcome) {
	notes, err := l.ledger.Notes(NoteModule)
	if err != nil {
		return // the purge says so in its own way
	}
	for _, n := range notes {
		stays := func(o ledger.Outcome) bool { return o.Action == ledger.Left && path.Base(o.Path) == n.Name }
		if !going[n.Name] && !slices.ContainsFunc(out, stays) {
			l.forgetLoad(n.Name)
		}
	}
}

// unloadable says why a module cannot go beside those that go.
func (l *loader) unloadable(m accel.LoadedModule, going map[string]bool) *accel.Problem {
	var who []string
	for _, h := range m.Holders {
		if !going[kmod.Normal(h)] {
			who = append(who, "module "+h)
		}
	}
	if m.RefCnt > len(m.Holders) {
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
func (t *takeover) giveBackAll(ctx context.Context, o PurgeOptions) ([]ledger.Outcome, *accel.Problem) {
	notes, err := t.ledger.Notes(NoteTakeover)
	if err != nil {
		return nil, accel.ProblemOf(err, "cannot know which devices acceld took")
	}
	var out []ledger.Outcome
	for _, n := range slices.Backward(notes) {
		result := ledger.Outcome{
			Path: devices.Dir(n.Name), Action: ledger.Restored,
			Detail: fmt.Sprintf("bound to %q again", n.Text),
		}
		if o.KeepDrivers {
			result.Action, result.Detail = ledger.Kept, "the device stays with its driver"
		} else if problem := t.giveBackDevice(ctx, n, o.DryRun); problem != nil {
			result = leftBecause(result.Path, problem)
		}
		if result.Action != ledger.Left && !o.DryRun {
			if err := t.ledger.Forget(NoteTakeover, n.Name); err != nil {
				return out, accel.ProblemOf(err, "cannot forget the takeover of %q", n.Name)
			}
		}
		out = append(out, result)
	}
	return out, nil
}

// giveBackDevice gives a device back to the driver that it had.
func (t *takeover) giveBackDevice(ctx context.Context, n ledger.Note, dry bool) *accel.Problem {
	dir := devices.Dir(n.Name)
	bound := ""
	if link, err := t.h.Readlink(path.Join(dir, "driver")); err == nil {
		bound = path.Base(link)
	}
	if !t.h.Exists(dir) || bound == n.Text || dry {
		return nil // the device is gone, or somebody was quicker
	}
	if bound != "" {
		err := t.operations.Do(ctx, "unbind "+n.Name,
			func() error { return t.attribute(path.Join(dir, "driver/unbind"), n.Name) })
		if err != nil {
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
	if err := t.operations.Do(ctx, "bind "+n.Name,
		func() error { return t.attribute(path.Join(driver, "bind"), n.Name) }); err != nil {
		return accel.ProblemOf(err, "cannot give device %q back to driver %q", n.Name, n.Text)
	}
	return nil
}
