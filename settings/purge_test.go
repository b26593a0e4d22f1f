package settings

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/ledger"
)

// purged runs an agent that sets something, changes what it has left, and purges.
func purged(t *testing.T, s accel.Setting, change func(*bed), dry bool) (*bed, ledger.Outcome) {
	t.Helper()
	b := newBed(t, s)
	if s.File == "" {
		b.told = map[string]accel.ProbeSetting{s.Name: {Value: "on"}}
		b.takes(func(_ accel.ProbeSetting, to string) accel.ProbeSetting { return accel.ProbeSetting{Value: to} })
	}
	stop := b.run(b.keeper())
	stop()
	b.writes = nil
	change(b)
	return b, b.purge(dry)
}

// purge purges the host, which has one setting on record at most.
func (b *bed) purge(dry bool) ledger.Outcome {
	b.Helper()
	program := &fake{b: b}
	out, problem := Purge(b.Context(), PurgeOptions{
		Host: b.m.Host, Ledger: b.ledger, DryRun: dry, Write: b.store,
		Start: func(_ context.Context, kind string) (Program, error) {
			if kind != "a-b" || b.untold != "" {
				return nil, errors.New(b.untold)
			}
			return program, nil
		},
		Users:         func(string, string) []string { return b.users },
		FunctionUsers: func(string) []string { return b.users },
	})
	if problem != nil || len(out) > 1 {
		b.Fatalf("%+v, %v", out, problem)
	}
	if len(out) == 0 {
		return ledger.Outcome{}
	}
	return out[0]
}

func TestPurge(t *testing.T) {
	lasting := ecc("off")
	for name, c := range map[string]struct {
		s      accel.Setting
		change func(b *bed)
		dry    bool
		action ledger.Action
		reason accel.Reason
		detail string
		writes string // what is written
		notes  int    // how much stays on record
	}{
		"ours":     {limit("80"), func(*bed) {}, false, ledger.Restored, "", `it is "100" again`, "100", 0},
		"dry":      {limit("80"), func(*bed) {}, true, ledger.Restored, "", "", "", 1},
		"restored": {limit("80"), func(b *bed) { b.put("100") }, false, ledger.Settled, "", "", "", 0},
		"another's": {
			limit("80"), func(b *bed) { b.put("33") }, false, ledger.Kept, "", "something else has set it to 33", "", 0,
		},
		"another binding": {
			limit("80"), func(b *bed) { b.m.Unbind(one); b.m.Bind(one, "edu"); b.put("90") }, false, ledger.Settled, "", "",
			"", 0,
		},
		"no driver": {limit("80"), func(b *bed) { b.m.Unbind(one) }, false, ledger.Settled, "", "not bound any more", "", 0},
		"unreadable": {
			limit("80"), func(b *bed) { b.put("1\n2") }, false, ledger.Left, accel.SettingFailed, "no value of a setting", "", 1,
		},
		"refused": {
			limit("80"), func(b *bed) { b.write = func(string, string) error { return unix.EIO } }, false, ledger.Left,
			accel.SettingFailed, "input/output error", "100", 1,
		},
		"ignored": {
			limit("80"), func(b *bed) { b.write = func(string, string) error { return nil } }, false, ledger.Left,
			accel.SettingFailed, `the device has taken "100" and says "80"`, "100", 1,
		},
		"by the program": {lasting, func(*bed) {}, false, ledger.Restored, "", `it is "on" again`, "ecc=on", 0},
		"no program": {
			lasting, func(b *bed) { b.untold = "gone" }, false, ledger.Left, accel.SettingFailed, "does not run: gone", "", 1,
		},
		"not known to the program": {
			lasting, func(b *bed) { b.told = nil }, false, ledger.Left, accel.SettingFailed, "does not know the device", "", 1,
		},
		"lasting, no driver": {
			lasting, func(b *bed) { b.m.Unbind(one) }, false, ledger.Left, accel.DeviceGone, "the device keeps the setting", "", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, got := purged(t, c.s, c.change, c.dry)
				if got.Action != c.action || got.Reason != c.reason || !strings.Contains(got.Detail, c.detail) ||
					!strings.HasPrefix(got.Path, "/sys/bus/pci/devices/"+one) {
					t.Errorf("%+v", got)
				}
				b.wrote(strings.Fields(c.writes)...)
				if n := len(b.notes(false)) + len(b.notes(true)); n != c.notes {
					t.Errorf("%d on record", n)
				}
			})
		})
	}
}

// TestPurgeInUse: a setting that needs an idle device is not restored under its user.
func TestPurgeInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		s := limit("80")
		s.Needs = accel.SettingNeedsIdle
		step := Decide(Case{
			Kind: "a-b", Address: one, Setting: s, Read: Reading{Text: "100"}, Binding: Binding(b.m.Host, one), Asked: true,
			Calm: true,
		})
		books := book{ledger: b.ledger}
		if _, err := books.load(); err != nil {
			t.Fatal(err)
		}
		if err := books.put(name("a-b", accel.Accelerator{ID: one}, s.Name, false), *step.Record); err != nil {
			t.Fatal(err)
		}
		b.put("80")
		b.users = []string{"train (pid 7)"}
		got := b.purge(false)
		if got.Action != ledger.Left || got.Reason != accel.InUse || !strings.Contains(got.Detail, "pid 7") {
			t.Errorf("%+v", got)
		}
		b.users = nil
		if got := b.purge(false); got.Action != ledger.Restored || b.is() != "100" {
			t.Errorf("%+v, %q", got, b.is())
		}
		if got := b.purge(false); got.Action != "" {
			t.Errorf("once more: %+v", got)
		}
	})
}

// TestPurgeBlind: what the device does not say is undone.
func TestPurgeBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, got := purged(t, clock("1400"), func(b *bed) {
			b.told = map[string]accel.ProbeSetting{"clock": {}}
			r := Record{
				Kind: "a-b", Address: one, Setting: "clock", Undo: "off", Ours: []string{"1400"}, Done: true,
				Binding: Binding(b.m.Host, one),
			}
			if err := b.ledger.Note(note, name("a-b", accel.Accelerator{ID: one}, "clock", false), r.encode()); err != nil {
				b.Fatal(err)
			}
		}, false)
		if got.Action != ledger.Restored {
			t.Errorf("%+v", got)
		}
		b.wrote("clock=off")
	})
}

// TestPurgeDamaged: a record that cannot be read is named.
func TestPurgeDamaged(t *testing.T) {
	b := newBed(t)
	if err := b.ledger.Note(note, "x", "{"); err != nil {
		t.Fatal(err)
	}
	if got := b.purge(false); got.Action != ledger.Left || got.Reason != accel.LedgerDamaged {
		t.Errorf("%+v", got)
	}
}
