package loop

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// ordered returns a world in which a policy of the cluster orders upgrades, with the node as the API server has it.
func ordered(policy accel.UpgradePolicy) *world {
	policy.By = "fleet"
	return served(policy)
}

// says stores the node's report as the task that writes the node does, and wakes the loop.
func (w *world) says(t *testing.T, l *Loop, grant string) string {
	t.Helper()
	report := l.Machine().Have["k-x"].UpgradeReport
	w.set(func() {
		x := w.handshakes["k-x"]
		if report.Known {
			x.UpgradeReport = report.Value
		}
		x.Grant = accel.ParseGrant(grant)
		w.handshakes = map[string]Handshake{"k-x": x}
	})
	l.Changed()
	time.Sleep(time.Second)
	synctest.Wait()
	if !report.Known {
		return "?"
	}
	return report.Value.String()
}

// An upgrade that a policy orders waits with the driver ready. It continues when one version of the node object has
// both the grant and the report.
func TestUpgradeWaitsForItsSlot(t *testing.T) {
	w := ordered(accel.UpgradePolicy{})
	run(t, w, func(l *Loop) {
		if got := w.says(t, l, ""); got != "" {
			t.Errorf("before there is anything to do: %q", got)
		}
		w.want(l, "2")
		if got := w.says(t, l, ""); got != "waiting 2" {
			t.Errorf("the node says %q", got)
		}
		u, s := pendingUpgrade(t, l), l.Machine().Status["k-x"]
		if u.Phase != accel.UpgradeWaiting || u.Failure == nil || u.Failure.Reason != accel.WaitingForSlot ||
			s.State != accel.Ready || w.offers() != 1 {
			t.Errorf("%+v %+v %+v", u, u.Failure, s)
		}
		time.Sleep(time.Hour)
		w.says(t, l, "3 2026-03-04T12:00:00Z") // for another version
		w.says(t, l, "- 2026-03-04T12:00:00Z") // revoked
		if got := w.says(t, l, "2 2026-03-04T12:00:00Z"); got != "waiting 2" || w.count("upgrade") != 0 {
			t.Fatalf("it acts without its own report: %q, %v", got, w.calls)
		}
		if got := w.says(t, l, ""); got != "upgrading 2" || w.count("upgrade") != 0 {
			t.Fatalf("it acts on a grant that was taken back: %q, %v", got, w.calls)
		}
		w.says(t, l, "2")
		w.says(t, l, "2")
		if diff := cmp.Diff([]string{"prepare", "upgrade"}, w.calls); diff != "" {
			t.Error(diff)
		}
		if got := w.says(t, l, "2"); got != "" {
			t.Errorf("after it: %q", got)
		}
	})
}

// The report stays as long as the node may act, whoever uses the driver, and until the previous driver is back.
func TestReportWhileActing(t *testing.T) {
	w := ordered(accel.UpgradePolicy{Holders: accel.HoldersWait, Timeout: "30m"})
	w.holders = []accel.Holder{holder}
	run(t, w, func(l *Loop) {
		w.want(l, "2")
		for range 3 {
			w.says(t, l, "2")
		}
		if got := w.says(t, l, "2"); got != "upgrading 2" || pendingUpgrade(t, l).Phase != accel.UpgradeDraining ||
			w.offers() != 0 {
			t.Errorf("%q, %+v", got, pendingUpgrade(t, l))
		}
		if got := w.says(t, l, ""); got != "upgrading 2" { // it must not be revoked now; if it is, the node continues
			t.Errorf("%q", got)
		}
		time.Sleep(31 * time.Minute)
		if got := w.says(t, l, "2"); got != "failed 2 InUse" || w.offers() != 1 || w.count("upgrade") != 0 {
			t.Errorf("%q, %v", got, w.calls)
		}
		w.set(func() {
			w.holders, w.fails = nil, accel.Problemf(accel.RolledBack, "it computes wrongly")
			close(w.free)
		})
		w.want(l, "3")
		for range 5 {
			w.says(t, l, "3")
		}
		if got := w.says(t, l, "3"); got != "failed 3 RolledBack" || w.count("upgrade") != 1 {
			t.Errorf("%q, %v", got, w.calls)
		}
	})
}

// TestReportAboutABadDevice: the new driver serves, except for a device that did not work before either. That must not
// stop the rollout.
func TestReportAboutABadDevice(t *testing.T) {
	w := ordered(accel.UpgradePolicy{})
	run(t, w, func(l *Loop) {
		l.o.Effects.Upgrade = func(ctx context.Context, def *accel.Definition, f accel.Facts,
			accs []accel.Accelerator, to accel.DriverRef,
		) (accel.DriverHave, *accel.Problem) {
			have, problem := w.upgrade(ctx, def, f, accs, to)
			w.set(func() { w.unbound, w.refuse = true, accel.Problemf(accel.ProbeFailed, "a device is not bound") })
			have.Serves = false
			return have, problem
		}
		w.want(l, "2")
		for range 3 {
			w.says(t, l, "2")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := l.Machine().Status["k-x"]; w.count("upgrade") != 1 || s.State != accel.DriverMissing || s.Blocked == nil {
			t.Fatalf("%v, %+v", w.calls, s)
		}
		if got := w.says(t, l, "2"); got != "" {
			t.Errorf("the node says %q", got)
		}
	})
}

// TestServedDigest: a node says that it serves what a policy asks of its driver once no other driver is wanted under
// that policy, and not while it still gets one.
func TestServedDigest(t *testing.T) {
	w := ordered(accel.UpgradePolicy{Digest: "one"})
	run(t, w, func(l *Loop) {
		serves := func(when, want string) {
			t.Helper()
			if got := l.Machine().Have["k-x"].ServedDigest; got != accel.Known(want) {
				t.Errorf("%s: %+v, want %q", when, got, want)
			}
		}
		serves("at first", "one")
		asks := func(policy, digest string) {
			want := l.Machine().Want
			def := *want.Kinds["k-x"]
			def.Driver.Upgrade.By, def.Driver.Upgrade.Digest = policy, digest
			want.Kinds = map[string]*accel.Definition{"k-x": &def}
			l.Configure(want)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		w.set(func() { w.wanted = "2" })
		asks("fleet", "two")
		serves("another driver is wanted", "one")
		for range 3 {
			w.says(t, l, "2")
		}
		if w.count("upgrade") != 1 {
			t.Fatalf("%v", w.calls)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		serves("it serves", "two")
		asks("fleet", "three")
		serves("the driver is as the policy asks anyway", "three")
		asks("", "")
		serves("no policy orders upgrades", "")
	})
}

// Until the policies are known, no driver in use is replaced, and the report of an earlier agent stays.
func TestUnsure(t *testing.T) {
	w := served(accel.UpgradePolicy{})
	w.unsure = true
	run(t, w, func(l *Loop) {
		w.want(l, "2")
		if got := w.says(t, l, ""); got != "?" || w.count("upgrade") != 0 {
			t.Errorf("%q, %v", got, w.calls)
		}
		sure := l.Machine().Want
		sure.PoliciesUnknown = false
		l.Configure(sure)
		time.Sleep(time.Second)
		synctest.Wait()
		if w.count("upgrade") != 1 {
			t.Errorf("%v", w.calls)
		}
	})
}

// An agent that starts after another one ended midway leaves that one's report until a driver works, or none can.
func TestReportOfAnAgentBefore(t *testing.T) {
	w := ordered(accel.UpgradePolicy{})
	w.handshakes = map[string]Handshake{"k-x": {UpgradeReport: accel.UpgradeReport{
		Phase:   accel.ReportUpgrading,
		Version: "2",
	}}}
	w.refuse = accel.Problemf(accel.NoSpace, "full")
	run(t, w, func(l *Loop) {
		report := func() string {
			time.Sleep(time.Minute)
			synctest.Wait()
			if report := l.Machine().Have["k-x"].UpgradeReport; report.Known {
				return report.Value.String()
			}
			return "?"
		}
		if got := report(); got != "?" {
			t.Errorf("while it is tried again: %q", got)
		}
		w.set(func() { w.refuse = accel.Problemf(accel.KernelMismatch, "other kernel") })
		if got := report(); got != "failed 2 KernelMismatch" {
			t.Errorf("when nothing serves and nothing helps: %q", got)
		}
		w.set(func() { w.refuse = nil })
		l.Wake(true)
		if got := report(); got != "" {
			t.Errorf("when a driver serves: %q", got)
		}
	})
}

// A node reports devices that need a reset while it waits, begins when one version of the node object has its report
// and the permission, and reports nothing when no device needs one.
func TestRepairReport(t *testing.T) {
	waits := accel.RepairHave{State: accel.RepairWaits}
	asks := accel.RepairHave{State: accel.RepairWaits, Asks: true}
	runs := accel.RepairHave{State: accel.RepairRuns, Asks: true}
	gaveUp := accel.RepairHave{State: accel.RepairGivenUp}
	common := accel.RepairHave{State: accel.RepairGivenUp, Common: true}
	given := accel.ParseRepairPermit("yes 2026-03-04T12:00:00Z")
	says := accel.ParseRepairReport
	for name, c := range map[string]struct {
		repairs []*accel.RepairHave
		seen    Handshake
		unknown bool
		want    string
		allowed bool
	}{
		"nothing is ill":         {},
		"waits for a pod":        {repairs: []*accel.RepairHave{&waits}, want: "ill 1/3"},
		"asks":                   {repairs: []*accel.RepairHave{&asks, &waits}, want: "waiting 2/3"},
		"given up":               {repairs: []*accel.RepairHave{&gaveUp}},
		"given up, most are ill": {repairs: []*accel.RepairHave{&common, &common}, want: "ill 2/3"},
		"not known yet":          {repairs: []*accel.RepairHave{&asks, nil}, want: "?"},
		"policies unknown":       {repairs: []*accel.RepairHave{&asks}, unknown: true, want: "?"},
		"allowed": {
			repairs: []*accel.RepairHave{&asks}, seen: Handshake{RepairReport: says("waiting 1/3"), RepairPermit: given},
			want: "repairing 1/3",
		},
		"allowed, and the controller knows": {
			repairs: []*accel.RepairHave{&runs}, seen: Handshake{RepairReport: says("repairing 2/3"), RepairPermit: given},
			want: "repairing 1/3", allowed: true,
		},
		"taken back": {
			repairs: []*accel.RepairHave{&asks}, seen: Handshake{
				RepairReport: says("repairing 1/3"), RepairPermit: accel.ParseRepairPermit("- 2026-03-04T12:00:00Z"),
			},
			want: "waiting 1/3",
		},
		"allowed, and nothing to do": {
			repairs: []*accel.RepairHave{&waits}, seen: Handshake{RepairReport: says("repairing 1/3"), RepairPermit: given},
			want: "ill 1/3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := &kind{def: &accel.Definition{Kind: "k-x", Repair: &accel.Repair{Reset: accel.RepairIdle, By: "fleet"}}}
			k.have.Accelerators = make([]accel.Accelerator, 3)
			for i := range k.have.Accelerators {
				a := &k.have.Accelerators[i]
				a.Health.State = accel.Healthy
				if i < len(c.repairs) {
					a.Health = accel.Health{State: accel.Unhealthy, Action: accel.ActionResetDevice}
					a.Repair = c.repairs[i]
				}
			}
			k.reportRepair(c.seen, c.unknown)
			got := "?"
			if k.have.RepairReport.Known {
				got = k.have.RepairReport.Value.String()
			}
			if diff := cmp.Diff([]any{c.want, c.allowed}, []any{got, k.have.RepairAllowed}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHandshakes(t *testing.T) {
	got := Handshakes(map[string]string{
		"acceld.dev/upgrade-a": "waiting 2", "acceld.dev/grant-a": "2 2026-03-04T12:00:00Z",
		"acceld.dev/repair-b": "waiting 1/8", "acceld.dev/allow-repair-b": "yes 2026-03-04T12:00:00Z", "example.com/x": "y",
	})
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	if diff := cmp.Diff(map[string]Handshake{
		"a": {UpgradeReport: accel.ParseUpgradeReport("waiting 2"), Grant: accel.Grant{Version: "2", Since: at}},
		"b": {RepairReport: accel.ParseRepairReport("waiting 1/8"), RepairPermit: accel.RepairPermit{Given: true, Since: at}},
	}, got); diff != "" {
		t.Error(diff)
	}
}
