package loop

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
)

// TestGrantOfAnotherVersion: a grant for another version does not count, however often it is read.
func TestGrantOfAnotherVersion(t *testing.T) {
	w := ordered(accel.UpgradePolicy{})
	run(t, w, func(l *Loop) {
		w.want(l, "2")
		for range 4 {
			if got := w.says(t, l, "3 2026-03-04T12:00:00Z"); got != "waiting 2" {
				t.Errorf("the node says %q", got)
			}
		}
		if w.count("upgrade") != 0 {
			t.Errorf("%v", w.calls)
		}
	})
}

// TestNothingWithoutSlot: as long as the node has no slot, it does not even look for holders of the driver.
func TestNothingWithoutSlot(t *testing.T) {
	looked := 0
	def := &accel.Definition{Kind: "k-x"}
	def.Driver.Upgrade.By = "fleet"
	l := New(Options{
		Want: accel.Want{Kinds: map[string]*accel.Definition{"k-x": def}}, Log: slog.New(slog.DiscardHandler),
		Effects: Effects{Holders: func(context.Context, *accel.Definition, []accel.Accelerator) ([]accel.Holder,
			*accel.Problem,
		) {
			looked++
			return nil, nil
		}},
	})
	var steps guard.Group
	w := &worker{Loop: l, ctx: t.Context(), steps: &steps}
	k := l.kinds["k-x"]
	for _, acting := range []bool{false, true} {
		k.have.Driver.Upgrade = &accel.Upgrade{}
		k.up = &upgrading{prepared: &accel.DriverRef{Version: "2"}, stop: func() {}}
		k.up.acting = acting
		w.observeUpgrade(k, time.Now())
		w.upgrade(k)
		steps.Wait()
		if looked > 0 != acting || k.up.busy != acting {
			t.Errorf("acting %t: looked %d times, busy %t", acting, looked, k.up.busy)
		}
	}
}

// TestUpgradeEvictsNobody: holders that the upgrade only waits for are never evicted, not even while devices are
// withheld.
func TestUpgradeEvictsNobody(t *testing.T) {
	w := served(accel.UpgradePolicy{Holders: accel.HoldersWait})
	run(t, w, func(l *Loop) {
		w.set(func() { w.holders = []accel.Holder{holder} })
		w.want(l, "2")
		time.Sleep(time.Hour)
		synctest.Wait()
		if u := pendingUpgrade(t, l); u.Phase != accel.UpgradeDraining || w.evicted != 0 {
			t.Errorf("%+v, %d evictions", u, w.evicted)
		}
	})
}

// TestGates: the first gate that is not passed decides the state, whatever is true behind it.
func TestGates(t *testing.T) {
	all := climb(true, true)
	ready := all[len(all)-1]
	for name, c := range map[string]struct {
		change func(*accel.Have)
		want   accel.State
	}{
		"as it is":               {func(*accel.Have) {}, accel.Ready},
		"fewer devices offered":  {func(h *accel.Have) { h.Plugin.Allocatable = accel.Known(0) }, accel.KubeletPending},
		"more devices offered":   {func(h *accel.Have) { h.Plugin.Allocatable = accel.Known(2) }, accel.KubeletPending},
		"no labels":              {func(h *accel.Have) { h.Monitoring.Labelled = false }, accel.Unwatched},
		"nothing collected":      {func(h *accel.Have) { h.Monitoring.Collected = time.Time{} }, accel.Unwatched},
		"labels before a driver": {func(h *accel.Have) { h.Driver.Serves = false }, accel.DriverMissing},
		"none, as it drains":     {inPhase(accel.UpgradeDraining), accel.Ready},
		"none, as it replaces":   {inPhase(accel.UpgradeReplacing), accel.Ready},
		"none, upgrade pending":  {inPhase(accel.UpgradePending), accel.KubeletPending},
	} {
		h := ready.Have["k-x"]
		c.change(&h)
		m := ready
		m.Have = map[string]accel.Have{"k-x": h}
		if got := Next(m, "k-x").State; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	for _, c := range []struct {
		from, to accel.State
		want     bool
	}{
		{accel.DriverMissing, accel.Ready, false},
		{accel.DriverMissing, accel.RuntimeMissing, false},
		{accel.Unwatched, accel.Ready, true},
		{accel.Ready, accel.DriverMissing, true},
		{accel.Ready, accel.Ready, false},
		{accel.RuntimeMissing, accel.Unwatched, false},
	} {
		if got := Allowed(ready, c.from, c.to); got != c.want {
			t.Errorf("%s to %s: %t", c.from, c.to, got)
		}
	}
}

// inPhase is a kind in a phase of an upgrade, of which the kubelet offers no device.
func inPhase(p accel.UpgradePhase) func(*accel.Have) {
	return func(h *accel.Have) {
		h.Driver.Upgrade, h.Plugin.Allocatable = &accel.Upgrade{Phase: p}, accel.Known(0)
	}
}

// TestOneStepAtATime: the end of something else does not end the step that is in flight.
func TestOneStepAtATime(t *testing.T) {
	l := New(Options{
		Want:   accel.Want{Kinds: map[string]*accel.Definition{"k-x": {Kind: "k-x"}}},
		Probes: Probes{Facts: func() accel.Facts { return accel.Facts{} }},
	})
	k := l.kinds["k-x"]
	k.running = accel.StepDriver
	l.finish(outcome{kind: "k-x", step: accel.StepMonitor})
	if k.running != accel.StepDriver {
		t.Errorf("running is %q", k.running)
	}
	l.finish(outcome{kind: "k-x", step: accel.StepDriver})
	if k.running != accel.StepNone {
		t.Errorf("running is %q", k.running)
	}
}

// TestFingerprint: every deliberate change of a device or a module shows, and what changes by itself does not.
func TestFingerprint(t *testing.T) {
	facts := func(change func(*accel.Facts)) string {
		f := accel.Facts{
			PCI:     []accel.PCIDevice{device("0000:01:00.0")},
			Modules: []accel.LoadedModule{{Name: "m", BuildID: "b", SrcVersion: "s", State: "live"}},
		}
		change(&f)
		return fingerprint(f)
	}
	before := facts(func(*accel.Facts) {})
	for name, c := range map[string]struct {
		change func(*accel.Facts)
		same   bool
	}{
		"uses of a module": {func(f *accel.Facts) { f.Modules[0].RefCnt = 7 }, true},
		"another build":    {func(f *accel.Facts) { f.Modules[0].BuildID = "c" }, false},
		"another source":   {func(f *accel.Facts) { f.Modules[0].SrcVersion = "t" }, false},
		"on its way":       {func(f *accel.Facts) { f.Modules[0].State = "coming" }, false},
		"no module":        {func(f *accel.Facts) { f.Modules = nil }, false},
		"another driver":   {func(f *accel.Facts) { f.PCI[0].Driver = "vfio-pci" }, false},
		"headers":          {func(f *accel.Facts) { f.Kernel.Headers = "/usr/src/x" }, false},
	} {
		if got := facts(c.change) == before; got != c.same {
			t.Errorf("%s: the same %t, want %t", name, got, c.same)
		}
	}
}

// TestSnapshots: a snapshot never changes, and its holder is notified when there is a newer one.
func TestSnapshots(t *testing.T) {
	l := New(Options{Want: accel.Want{Kinds: map[string]*accel.Definition{"k-x": {Kind: "k-x"}}}})
	k := l.kinds["k-x"]
	k.have.Accelerators = []accel.Accelerator{{ID: "0000:01:00.0", Model: "first"}}
	l.store(l.snapshot(time.Now()))
	m, replaced := l.Follow()
	select {
	case <-replaced:
		t.Fatal("the newest one is replaced")
	default:
	}
	k.have.Accelerators[0].Model = "second"
	l.store(l.snapshot(time.Now()))
	select {
	case <-replaced:
	default:
		t.Error("nobody is told of a newer one")
	}
	if got, now := m.Have["k-x"].Accelerators[0].Model, l.Machine().Have["k-x"].Accelerators[0].Model; got != "first" ||
		now != "second" {
		t.Errorf("held %q, newest %q", got, now)
	}
}

// TestEndIsNoNews: what the plugins report while the agent ends is not published.
func TestEndIsNoNews(t *testing.T) {
	for range 20 { // which of the two the loop sees first is random
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var l *Loop
			passes, after := 0, 0
			l = New(Options{
				SampleEvery: time.Hour, Resync: time.Hour,
				Probes: Probes{Facts: func() accel.Facts { return accel.Facts{} }},
				Effects: Effects{Publish: func(accel.Machine) {
					if passes++; passes < 2 {
						l.Changed()
						return
					}
					if ctx.Err() != nil {
						after++
					}
					cancel()
					l.Changed()
				}},
			})
			if err := l.Run(ctx); err != nil || after > 0 || passes != 2 {
				t.Errorf("%v, %d passes, %d after the end", err, passes, after)
			}
		})
	}
}
