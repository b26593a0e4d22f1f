package driver

import (
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/test/ko"
)

func (m *testMachine) kinds(def *accel.Definition) map[*accel.Definition][]accel.Accelerator {
	return map[*accel.Definition][]accel.Accelerator{def: m.accs()}
}

func (m *testMachine) isLive(name string) bool { return m.Host.Exists("/sys/module/" + name) }

// outcomeOf returns what became of a path.
func outcomeOf(all []ledger.Outcome, path string) ledger.Outcome {
	for _, o := range all {
		if o.Path == path {
			return o
		}
	}
	return ledger.Outcome{}
}

func TestPurgeUnloadsWhatAcceldLoaded(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(m *testMachine, d *Driver)
		options PurgeOptions
		action  ledger.Action
		reason  accel.Reason
		live    bool
	}{
		"loaded by acceld": {action: ledger.Removed},
		"dry run":          {options: PurgeOptions{DryRun: true}, action: ledger.Removed, live: true},
		"keep drivers":     {options: PurgeOptions{KeepDrivers: true}, action: ledger.Kept, live: true},
		"in use by a module": {
			prepare: func(m *testMachine, _ *Driver) {
				m.Write("/sys/module/edu/holders/edu_net", "")
				m.Write("/sys/module/edu/refcnt", "1\n")
			}, action: ledger.Left, reason: accel.InUse, live: true,
		},
		"in use by somebody": {
			prepare: func(m *testMachine, _ *Driver) { m.Write("/sys/module/edu/refcnt", "1\n") },
			action:  ledger.Left, reason: accel.InUse, live: true,
		},
		"refused by the kernel": {
			prepare: func(m *testMachine, _ *Driver) { m.refuseUnload["edu"] = syscall.EAGAIN },
			action:  ledger.Left, reason: accel.InUse, live: true,
		},
		"the ledger is lost": {
			prepare: func(m *testMachine, _ *Driver) { _ = os.RemoveAll(m.Path("/run/acceld/ledger")) },
			action:  ledger.Removed,
		},
		"the store is lost": {
			prepare: func(m *testMachine, d *Driver) { m.remove(path.Join(d.o.StateDir, "kmod")) },
			action:  ledger.Removed,
		},
		"somebody else loaded another": {
			prepare: func(m *testMachine, _ *Driver) {
				_ = os.RemoveAll(m.Path("/sys/module/edu"))
				m.Live(version("9.9.9"))
			}, live: true,
		},
		"unloaded and loaded by somebody else": {
			prepare: func(m *testMachine, d *Driver) {
				if p := d.Unload(m.T.Context(), wants("1.0.0"), m.Facts(), m.accs()); p != nil {
					m.T.Fatal(p)
				}
				_ = os.RemoveAll(m.Path("/var/lib/acceld/kmod")) // otherwise the store knows it
				m.Live(version("1.0.0"))
			}, live: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, d := serving(t)
			m.Live(ko.Module{Name: "other", BuildID: strings.Repeat("0f", 20)})
			if c.prepare != nil {
				c.prepare(m, d)
			}
			c.options.Kinds = m.kinds(wants("1.0.0"))
			out, problem := m.driver(Options{}).Purge(t.Context(), c.options)
			if problem != nil {
				t.Fatal(problem)
			}
			got := outcomeOf(out, "/sys/module/edu")
			if got.Action != c.action || got.Reason != c.reason || m.isLive("edu") != c.live || !m.isLive("other") {
				t.Errorf("%+v, live %t", out, m.isLive("edu"))
			}
			if c.action != ledger.Left || c.reason != accel.InUse {
				return
			}
			m.refuseUnload["edu"] = nil
			_ = os.RemoveAll(m.Path("/sys/module/edu/holders"))
			m.Write("/sys/module/edu/refcnt", "0\n")
			if out, problem := m.driver(Options{}).Purge(t.Context(), c.options); problem != nil || m.isLive("edu") {
				t.Errorf("the next purge: %+v %v", out, problem)
			}
		})
	}
}

// TestPurgeInTheMiddleOfAnUpgrade: at every point of an upgrade, a purge leaves none of acceld's modules loaded.
func TestPurgeInTheMiddleOfAnUpgrade(t *testing.T) {
	for _, how := range []string{"", "wrong"} {
		for n := 0; ; n++ {
			m, d := serving(t)
			m.bad["2.0.0"] = how
			def := wants("2.0.0")
			points, dead := m.killAt(d, n, func() { _, _ = d.Upgrade(t.Context(), def, m.Facts(), m.accs()) })
			out, problem := m.driver(Options{}).Purge(t.Context(), PurgeOptions{Kinds: m.kinds(def)})
			if problem != nil || m.isLive("edu") {
				t.Errorf("%q, killed at %d (%s): %+v %v", how, n, points[len(points)-1], out, problem)
			}
			if notes, err := m.driver(Options{}).ledger.Notes(""); err != nil || len(notes) > 0 {
				t.Errorf("%q, killed at %d: still on record: %+v %v", how, n, notes, err)
			}
			if !dead {
				break
			}
		}
	}
}

func TestPurgeGivesDevicesBack(t *testing.T) {
	m, d := serving(t)
	m.Write("/sys/bus/pci/drivers/before/bind", "")
	override := "/sys/bus/pci/devices/" + ko.Device + "/driver_override"
	m.Write(override, "(null)\n")
	if err := d.ledger.Note(NoteTakeover, ko.Device, "before"); err != nil {
		t.Fatal(err)
	}
	if err := d.ledger.Attribute(override, "edu"); err != nil {
		t.Fatal(err)
	}
	m.Write(override, "edu\n") // unlike an attribute, a file keeps the tail of longer content
	if _, problem := m.driver(Options{}).Purge(t.Context(),
		PurgeOptions{DryRun: true, Kinds: m.kinds(wants("1.0.0"))}); problem != nil || m.bound(ko.Device) != "edu" {
		t.Errorf("a dry run gave the device to %q: %v", m.bound(ko.Device), problem)
	}
	out, problem := m.driver(Options{}).Purge(t.Context(), PurgeOptions{Kinds: m.kinds(wants("1.0.0"))})
	if problem != nil {
		t.Fatal(problem)
	}
	if m.bound(ko.Device) != "before" {
		t.Errorf("the device is with %q", m.bound(ko.Device))
	}
	if text, err := os.ReadFile(m.Path(override)); err != nil || text[0] != '\n' {
		t.Errorf("written to driver_override: %q, %v", text, err)
	}
	if o := outcomeOf(out, "/sys/bus/pci/devices/"+ko.Device); o.Action != ledger.Restored ||
		!strings.Contains(fmt.Sprint(o), "before") {
		t.Errorf("%+v", out)
	}
	if n, err := d.ledger.Remaining(); err != nil || n != 0 {
		t.Errorf("%d still on record, %v", n, err)
	}
}

// TestPurgeOfVanishedDevice: of a device that is gone, and of one that had no driver, nothing is claimed.
func TestPurgeOfVanishedDevice(t *testing.T) {
	m, d := serving(t)
	for id, before := range map[string]string{"0000:7f:00.0": "before", ko.Device: ""} {
		if err := d.ledger.Note(NoteTakeover, id, before); err != nil {
			t.Fatal(err)
		}
	}
	out, problem := m.driver(Options{}).Purge(t.Context(), PurgeOptions{Kinds: m.kinds(wants("1.0.0"))})
	if problem != nil {
		t.Fatal(problem)
	}
	for id, want := range map[string]string{
		"0000:7f:00.0": "the device is no longer on the bus", ko.Device: "without a driver again",
	} {
		if o := outcomeOf(out, "/sys/bus/pci/devices/"+id); o.Detail != want || o.Action != ledger.Restored {
			t.Errorf("%s: %+v", id, o)
		}
	}
}
