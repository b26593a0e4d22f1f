package loop

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// fan is somebody else's work on the node.
func fan(c accel.MaintenanceCondition) []accel.Maintenance {
	return []accel.Maintenance{{Condition: c, Reason: "Fan"}}
}

func TestDecideUnderMaintenance(t *testing.T) {
	now := at
	hindrance := accel.Problemf(accel.UnderMaintenance, "node is under maintenance")
	going, waiting := accel.ParseUpgradeReport("upgrading 2"), accel.ParseUpgradeReport("waiting 2")
	failed := accel.ParseUpgradeReport("failed 2 RolledBack")
	fleet, evict := accel.UpgradePolicy{By: "fleet"}, accel.UpgradePolicy{Holders: accel.HoldersEvict}
	held := upgradeDecision{phase: accel.UpgradeWaiting, problem: hindrance, byEvent: true}
	heldInOrder := held
	heldInOrder.report = waiting
	before := &accel.Failure{Problem: *hindrance}
	for _, c := range []struct {
		name string
		in   upgradeCase
		want upgradeDecision
	}{
		{
			"it is prepared meanwhile",
			upgradeCase{phase: accel.UpgradePending, hindrance: hindrance},
			upgradeDecision{step: upgradePrepares, phase: accel.UpgradePending},
		},
		{"it does not begin", upgradeCase{phase: accel.UpgradePending, target: "2", hindrance: hindrance}, held},
		{
			"whatever the look for holders gave",
			upgradeCase{phase: accel.UpgradeWaiting, target: "2", hindrance: hindrance, looked: &lookedFor{}},
			held,
		},
		{
			"nor does one whose holders were in the way",
			upgradeCase{
				phase: accel.UpgradeWaiting, target: "2", hindrance: hindrance,
				failure: &accel.Failure{Problem: *accel.Problemf(accel.InUse, "in use")},
			},
			held,
		},
		{
			"it waits for its slot",
			upgradeCase{phase: accel.UpgradeWaiting, target: "2", policy: fleet, hindrance: hindrance},
			heldInOrder,
		},
		{
			"it has a slot and has done nothing",
			upgradeCase{
				phase: accel.UpgradeWaiting, target: "2", policy: fleet, hindrance: hindrance, granted: "2", report: going,
				written: going, acting: true, failure: &accel.Failure{Problem: *accel.Problemf(accel.InUse, "in use")},
			},
			heldInOrder,
		},
		{
			"it has a slot and the node was drained for it",
			upgradeCase{
				phase: accel.UpgradeWaiting, target: "2", policy: fleet, hindrance: hindrance, granted: "2", report: going,
				written: going, acting: true, begun: true,
			},
			upgradeDecision{step: upgradeLooks, phase: accel.UpgradeWaiting, report: going, acting: true},
		},
		{
			"the node was drained for another version",
			upgradeCase{
				phase: accel.UpgradeWaiting, target: "2", policy: fleet, hindrance: hindrance, granted: "3", begun: true,
			},
			heldInOrder,
		},
		{
			"it evicts",
			upgradeCase{
				phase: accel.UpgradeDraining, drained: now, target: "2", policy: evict, hindrance: hindrance,
				withheld: true,
			},
			upgradeDecision{step: upgradeLooks, phase: accel.UpgradeDraining, drained: now, evict: true},
		},
		{
			"it replaces the driver",
			upgradeCase{phase: accel.UpgradeReplacing, target: "2", hindrance: hindrance},
			upgradeDecision{step: upgradeReplaces, phase: accel.UpgradeReplacing},
		},
		{
			"it has failed",
			upgradeCase{
				phase: accel.UpgradeWaiting, target: "2", hindrance: hindrance, report: failed,
				failure: &accel.Failure{Problem: *accel.Problemf(accel.RolledBack, "x")},
			},
			upgradeDecision{phase: accel.UpgradeWaiting, report: failed},
		},
		{
			"the policies are not known",
			upgradeCase{
				phase: accel.UpgradeWaiting, target: "2", hindrance: hindrance, policiesUnknown: true, report: waiting,
			},
			held,
		},
		{
			"nobody works any more",
			upgradeCase{phase: accel.UpgradeWaiting, target: "2", failure: before},
			upgradeDecision{step: upgradeLooks, phase: accel.UpgradeWaiting, clear: true},
		},
		{
			"nobody works any more, in order",
			upgradeCase{phase: accel.UpgradeWaiting, target: "2", policy: fleet, report: waiting, failure: before},
			upgradeDecision{
				phase: accel.UpgradeWaiting, report: waiting, clear: true, byEvent: true,
				problem: accel.Problemf(accel.WaitingForSlot, `version 2 is ready and waits for a slot of the policy "fleet"`),
			},
		},
	} {
		c.in.kind, c.in.now = "k-x", now
		got := decideUpgrade(c.in)
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(upgradeDecision{})); diff != "" {
			t.Errorf("%s: -want +got\n%s", c.name, diff)
		}
	}
}

// works sets who else works on the node.
func (w *world) works(l *Loop, all []accel.Maintenance) {
	w.set(func() { w.maintenance = all })
	l.Changed()
	time.Sleep(time.Second)
	synctest.Wait()
}

func TestUpgradeUnderMaintenance(t *testing.T) {
	w := served(accel.UpgradePolicy{})
	run(t, w, func(l *Loop) {
		w.works(l, fan(accel.Drained))
		w.want(l, "2")
		time.Sleep(time.Hour)
		synctest.Wait()
		f := pendingUpgrade(t, l).Failure
		if w.count("upgrade") != 0 || w.offers() != 1 || f == nil || f.Reason != accel.UnderMaintenance || f.Attempts != 1 ||
			f.Message != "node is under maintenance: reason Fan by condition Drained" {
			t.Fatalf("%v, %+v", w.calls, f)
		}
		if got := l.Machine().Facts.Maintenance; !cmp.Equal(got, fan(accel.Drained)) {
			t.Errorf("%v", got)
		}
		w.works(l, nil)
		if w.count("upgrade") != 1 {
			t.Errorf("when nobody works any more: %v, %+v", w.calls, l.Machine().Have["k-x"].Driver.Upgrade)
		}
	})
}

// TestNodeNotAskedFor: until the node has been read for the first time, somebody may work on it.
func TestNodeNotAskedFor(t *testing.T) {
	w := served(accel.UpgradePolicy{})
	w.unasked = true
	run(t, w, func(l *Loop) {
		w.want(l, "2")
		if f := pendingUpgrade(t, l).Failure; w.count("upgrade") != 0 || f == nil || f.Reason != accel.UnderMaintenance {
			t.Fatalf("%v, %+v", w.calls, f)
		}
		w.set(func() { w.unasked = false })
		w.works(l, nil)
		if w.count("upgrade") != 1 {
			t.Errorf("%v", w.calls)
		}
	})
}

// TestMaintenanceBeginsMeanwhile: what has begun is finished, and a slot with which nothing was done is given back.
func TestMaintenanceBeginsMeanwhile(t *testing.T) {
	w := ordered(accel.UpgradePolicy{})
	w.holders = []accel.Holder{holder}
	run(t, w, func(l *Loop) {
		w.want(l, "2")
		for range 3 {
			w.says(t, l, "2")
		}
		if got := w.says(t, l, "2"); got != "upgrading 2" {
			t.Fatal(got)
		}
		w.works(l, fan(accel.MaintenanceInProgress))
		w.release() // by whoever drains the node
		w.says(t, l, "2")
		if got := w.says(t, l, "2"); got != "waiting 2" || w.count("upgrade") != 0 {
			t.Errorf("it begins under maintenance: %q, %v", got, w.calls)
		}
		w.works(l, nil)
		for range 3 {
			w.says(t, l, "2")
		}
		if w.count("upgrade") != 1 {
			t.Errorf("%v", w.calls)
		}
	})
	w = ordered(accel.UpgradePolicy{Holders: accel.HoldersWait})
	w.holders = []accel.Holder{holder}
	run(t, w, func(l *Loop) {
		w.want(l, "2")
		for range 3 {
			w.says(t, l, "2")
		}
		if w.offers() != 0 {
			t.Fatal("devices are offered")
		}
		w.works(l, fan(accel.MaintenanceInProgress))
		w.release()
		if w.says(t, l, "2"); w.count("upgrade") != 1 {
			t.Errorf("what has begun is not finished: %v, %+v", w.calls, pendingUpgrade(t, l))
		}
	})
}

// TestFirstDriverUnderMaintenance: a driver that does not work yet takes nothing away from anybody.
func TestFirstDriverUnderMaintenance(t *testing.T) {
	w := served(accel.UpgradePolicy{})
	w.maintenance = slices.Concat(fan(accel.MaintenanceInProgress), fan(accel.Drained))
	run(t, w, func(l *Loop) {
		if m := l.Machine(); m.Status["k-x"].State != accel.Ready || w.offers() != 1 {
			t.Errorf("%+v", m.Status["k-x"])
		}
	})
}
