package driver

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/ledger"
)

// A driver that knows no device by its ids is bound by driver_override (driver.override): the kernel then binds the
// function to the named driver and to no other one. Each device is recorded like a takeover, from no driver if it had
// none, so that a failed load, an unload and a purge restore it. The additional note says for which kind it was, so
// that it is also restored when the kind is no longer in force.

// overrideText is the text of a NoteOverride.
func overrideText(def *accel.Definition) string { return def.Kind + " " + def.Driver.Binds }

// reserve keeps the free devices of a kind for its driver by driver_override, if the definition says so, and records
// each before. A device that somebody else keeps for the driver, or for another one, stays as it is.
func (t takeover) reserve(def *accel.Definition, accs []accel.Accelerator) *accel.Problem {
	if !def.Driver.Override {
		return nil
	}
	for _, v := range t.devices.Observe(def, accs) {
		if v.Bound != "" || v.Kept != "" || v.Barred != "" {
			continue
		}
		if problem := t.keep(def, v); problem != nil {
			return problem
		}
		t.log.Info("device kept for a driver", "kind", def.Kind, "device", v.ID, "driver", def.Driver.Binds)
	}
	return nil
}

// held says who has a device or a virtual function of it, apart from this process; nil if nobody has.
func (t takeover) held(id string) *accel.Problem {
	who := slices.DeleteFunc(t.users(id), func(h accel.Holder) bool {
		return h.PID == os.Getpid() || t.o.Ours != nil && t.o.Ours(h.PID)
	})
	return accel.InUseProblem(fmt.Sprintf("device %q", id), who)
}

// Release gives back the devices that were bound by driver_override for a kind that no longer wants them: it is not
// among kinds, binds another driver, or does not have the device any more. It clears driver_override, and unbinds the
// device, or binds it to the driver that it was taken from. A device that a process has open stays; left says why, for
// each. Released are the devices that were given back.
func (d *Driver) Release(ctx context.Context, kinds map[string]*accel.Definition, pci []accel.PCIDevice) (
	released []string, left []*accel.Problem,
) {
	return d.takeover.release(ctx, kinds, pci)
}

func (t takeover) release(ctx context.Context, kinds map[string]*accel.Definition, pci []accel.PCIDevice) (
	released []string, left []*accel.Problem,
) {
	notes, err := t.ledger.Notes(NoteOverride)
	if err != nil {
		return nil, []*accel.Problem{accel.ProblemOf(err, "cannot know which devices acceld has bound")}
	}
	notes = slices.DeleteFunc(notes, func(n ledger.Note) bool { return overrides(kinds, pci, n) })
	if len(notes) == 0 {
		return nil, nil
	}
	release, problem := t.locks.Driver(ctx, "")
	if problem != nil {
		return nil, []*accel.Problem{problem}
	}
	defer release()
	for _, n := range notes {
		if problem := t.releaseDevice(ctx, n); problem != nil {
			left = append(left, problem)
			continue
		}
		released = append(released, n.Name)
	}
	return released, left
}

// overrides reports whether a kind in force still wants the device of a NoteOverride.
func overrides(kinds map[string]*accel.Definition, pci []accel.PCIDevice, n ledger.Note) bool {
	kind, binds, _ := strings.Cut(n.Text, " ")
	def := kinds[kind]
	if def == nil || !def.Driver.Override || def.Driver.Binds != binds {
		return false
	}
	i := slices.IndexFunc(pci, func(p accel.PCIDevice) bool { return p.Address == n.Name })
	return i < 0 || def.Recognises(pci[i]) && !accel.Lost(kind, accel.Rivalries(kinds, pci))[n.Name]
}

// bound returns the driver of a device; empty if it has none.
func (t takeover) bound(id string) string {
	link, err := t.h.Readlink(t.h.Devices().Place(id).Driver)
	if err != nil {
		return ""
	}
	return path.Base(link)
}

// reboundTo returns the driver that somebody else has bound a device to since acceld bound it by driver_override; empty
// if that is not so.
func (t takeover) reboundTo(id string, overrides []ledger.Note) string {
	i := slices.IndexFunc(overrides, func(n ledger.Note) bool { return n.Name == id })
	if i < 0 {
		return ""
	}
	if _, binds, _ := strings.Cut(overrides[i].Text, " "); t.bound(id) != binds {
		return t.bound(id)
	}
	return ""
}

// releaseDevice gives back one device of a NoteOverride. One that somebody else has bound to another driver since is
// only forgotten.
func (t takeover) releaseDevice(ctx context.Context, n ledger.Note) *accel.Problem {
	_, binds, _ := strings.Cut(n.Text, " ")
	taken, err := t.ledger.Notes(NoteTakeover)
	if err != nil {
		return accel.ProblemOf(err, "cannot know what device %q was bound to", n.Name)
	}
	i := slices.IndexFunc(taken, func(o ledger.Note) bool { return o.Name == n.Name })
	bound := t.bound(n.Name)
	if i >= 0 && bound == binds {
		if problem := t.held(n.Name); problem != nil {
			return problem
		}
	}
	t.unkeep(n.Name)
	t.point("device no longer kept")
	if i >= 0 && (bound == binds || bound == "") {
		if problem := t.giveBackDevice(ctx, taken[i], false); problem != nil {
			return problem
		}
	}
	t.forget(n.Name)
	t.log.Info("device given back", "device", n.Name, "from", binds)
	return nil
}
