package loop

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// TestDecideUpgrade covers every decision of an upgrade, by what is known about it.
func TestDecideUpgrade(t *testing.T) {
	now := at
	since := now.Add(-time.Minute)
	process, pod := holder, accel.Holder{Namespace: "team", Pod: "train", Device: "0000:01:00.0"}
	module := accel.Holder{Other: "module edu_net"}
	inUse := func(all ...accel.Holder) *accel.Problem { return accel.HoldersProblem("k-x", all) }
	silent := accel.Problemf(accel.ProbeUnanswered, "the kubelet does not answer")
	refused := accel.Problemf(accel.EvictionRefused, "its disruption budget allows none")
	late := func(p *accel.Problem) *accel.Problem {
		l := *p
		l.Message = "given up after 1m0s: " + l.Message
		return &l
	}
	refuse := accel.UpgradePolicy{}
	wait, evict := accel.UpgradePolicy{Holders: accel.HoldersWait}, accel.UpgradePolicy{Holders: accel.HoldersEvict}
	minute := accel.UpgradePolicy{Holders: accel.HoldersWait, Timeout: "1m"}
	nearly := accel.UpgradePolicy{Holders: accel.HoldersWait, Timeout: "1m5s"}
	fleet, ordered := accel.UpgradePolicy{By: "fleet"}, minute
	ordered.By = "fleet"
	waiting, going := accel.ParseUpgradeReport("waiting 2"), accel.ParseUpgradeReport("upgrading 2")
	failed := accel.ParseUpgradeReport("failed 2 InUse")
	slot := func(message string) *accel.Problem { return accel.Problemf(accel.WaitingForSlot, "%s", message) }
	found := func(holders ...accel.Holder) *lookedFor { return &lookedFor{holders: holders} }
	for _, c := range []struct {
		name string
		in   upgradeCase
		want upgradeDecision
	}{
		// Before the look for holders.
		{
			"wanted",
			upgradeCase{phase: accel.UpgradePending},
			upgradeDecision{step: upgradePrepares, phase: accel.UpgradePending},
		},
		{
			"ready",
			upgradeCase{phase: accel.UpgradePending, target: "2"},
			upgradeDecision{step: upgradeLooks, phase: accel.UpgradePending},
		},
		{
			"ready, and without a slot",
			upgradeCase{phase: accel.UpgradeWaiting, target: "2", policy: fleet},
			upgradeDecision{
				step: upgradeWaits, phase: accel.UpgradeWaiting, report: waiting, problem: slot(
					`version 2 is ready and waits for a slot of the policy "fleet"`), byEvent: true,
			},
		},
		{
			"ready, and with its slot",
			upgradeCase{phase: accel.UpgradeWaiting, target: "2", policy: fleet, report: going, acting: true},
			upgradeDecision{step: upgradeLooks, phase: accel.UpgradeWaiting, report: going, acting: true},
		},
		// The slot.
		{
			"the policies are not known",
			upgradeCase{phase: accel.UpgradePending, target: "2", policiesUnknown: true, report: waiting, granted: "2"},
			upgradeDecision{
				phase: accel.UpgradeWaiting, problem: slot("the policies of the cluster are not known yet"), byEvent: true,
			},
		},
		{
			"a grant for another version",
			upgradeCase{phase: accel.UpgradeWaiting, target: "2", policy: fleet, granted: "3", written: going},
			upgradeDecision{
				phase: accel.UpgradeWaiting, report: waiting, problem: slot(
					`version 2 is ready and waits for a slot of the policy "fleet"`), byEvent: true,
			},
		},
		{
			"granted, and the report is not written",
			upgradeCase{
				phase: accel.UpgradeWaiting, target: "2", policy: fleet, granted: "2", report: waiting, written: waiting,
				failure: &accel.Failure{Problem: *slot("x")},
			},
			upgradeDecision{
				phase: accel.UpgradeWaiting, report: going, problem: slot(
					"the slot is granted; that the node goes on is being written down"), byEvent: true,
			},
		},
		{
			"granted, and the report is written",
			upgradeCase{
				phase: accel.UpgradeWaiting, target: "2", policy: fleet, granted: "2", report: going, written: going,
				failure: &accel.Failure{Problem: *slot("x")},
			},
			upgradeDecision{step: upgradeLooks, phase: accel.UpgradeWaiting, report: going, acting: true, clear: true},
		},
		{
			"granted, and nothing is prepared",
			upgradeCase{phase: accel.UpgradePending, policy: fleet, granted: "2", written: going},
			upgradeDecision{step: upgradePrepares, phase: accel.UpgradePending},
		},
		{
			"given up, and reported",
			upgradeCase{
				phase: accel.UpgradeWaiting, target: "2", policy: fleet, granted: "2", report: failed, written: failed,
				failure: &accel.Failure{Problem: *inUse(process)},
			},
			upgradeDecision{phase: accel.UpgradeWaiting, report: failed},
		},
		{
			"given up, and the machine has changed",
			upgradeCase{
				phase: accel.UpgradeWaiting, target: "2", policy: fleet, report: failed, written: failed,
				failure: &accel.Failure{Problem: *inUse(process), RetryAt: now},
			},
			upgradeDecision{
				phase: accel.UpgradeWaiting, report: waiting, problem: slot(
					`version 2 is ready and waits for a slot of the policy "fleet"`), byEvent: true,
			},
		},
		{
			"a policy orders upgrades from now on, and the devices are withheld",
			upgradeCase{phase: accel.UpgradeDraining, target: "2", policy: fleet, drained: since, withheld: true},
			upgradeDecision{
				phase: accel.UpgradeWaiting, report: waiting, problem: slot(
					`version 2 is ready and waits for a slot of the policy "fleet"`), byEvent: true,
			},
		},
		{
			"a policy orders upgrades from now on, and the replacement has begun",
			upgradeCase{phase: accel.UpgradeReplacing, target: "2", policy: fleet, drained: since},
			upgradeDecision{step: upgradeReplaces, phase: accel.UpgradeReplacing, drained: since},
		},
		{
			"with its slot, and the time is up",
			upgradeCase{
				phase: accel.UpgradeDraining, target: "2", drained: since, policy: ordered, report: going, acting: true,
				looked: found(process),
			},
			upgradeDecision{
				phase: accel.UpgradeWaiting, report: failed, problem: late(inUse(process)), byEvent: true, await: true,
			},
		},
		{
			"held back, and the kubelet still counts devices",
			upgradeCase{phase: accel.UpgradeDraining, target: "2", drained: since, policy: evict},
			upgradeDecision{step: upgradeWaits, phase: accel.UpgradeDraining, drained: since},
		},
		{
			"held back, and the kubelet counts none",
			upgradeCase{phase: accel.UpgradeDraining, target: "2", drained: since, withheld: true, policy: wait},
			upgradeDecision{step: upgradeLooks, phase: accel.UpgradeDraining, drained: since},
		},
		{
			"held back, and pods are to be evicted",
			upgradeCase{phase: accel.UpgradeDraining, target: "2", drained: since, withheld: true, policy: evict},
			upgradeDecision{step: upgradeLooks, phase: accel.UpgradeDraining, drained: since, evict: true},
		},
		{
			"nobody is evicted before devices are held back",
			upgradeCase{phase: accel.UpgradePending, target: "2", withheld: true, policy: evict},
			upgradeDecision{step: upgradeLooks, phase: accel.UpgradePending},
		},
		{
			"nobody had it",
			upgradeCase{phase: accel.UpgradeReplacing, target: "2", drained: since},
			upgradeDecision{step: upgradeReplaces, phase: accel.UpgradeReplacing, drained: since},
		},
		// No holders.
		{
			"a first look finds nobody",
			upgradeCase{phase: accel.UpgradePending, looked: found()},
			upgradeDecision{phase: accel.UpgradeDraining, drained: now, clear: true},
		},
		{
			"a second look finds nobody",
			upgradeCase{phase: accel.UpgradeDraining, drained: since, looked: found()},
			upgradeDecision{step: upgradeReplaces, phase: accel.UpgradeReplacing, drained: since, clear: true},
		},
		// Holders.
		{
			"refuse",
			upgradeCase{phase: accel.UpgradePending, policy: refuse, looked: found(process)},
			upgradeDecision{phase: accel.UpgradeWaiting, problem: inUse(process), await: true},
		},
		{
			"refuse, and a pod came while the devices were being held back",
			upgradeCase{phase: accel.UpgradeDraining, drained: since, policy: refuse, looked: found(pod)},
			upgradeDecision{phase: accel.UpgradeWaiting, problem: inUse(pod), await: true},
		},
		{
			"wait for a process",
			upgradeCase{phase: accel.UpgradePending, policy: wait, looked: found(process)},
			upgradeDecision{
				phase: accel.UpgradeDraining, drained: now, problem: inUse(process), retryAt: now.Add(lookAgainAnyway),
				await: true,
			},
		},
		{
			"wait for a pod without a process",
			upgradeCase{phase: accel.UpgradeDraining, drained: since, policy: wait, looked: found(process, pod)},
			upgradeDecision{
				phase: accel.UpgradeDraining, drained: since, problem: inUse(process, pod), retryAt: now.Add(lookAgain),
				await: true,
			},
		},
		{
			"wait, and the time is nearly up",
			upgradeCase{phase: accel.UpgradeDraining, drained: since, policy: nearly, looked: found(process)},
			upgradeDecision{
				phase: accel.UpgradeDraining, drained: since, problem: inUse(process),
				retryAt: now.Add(5 * time.Second), await: true,
			},
		},
		{
			"wait, and the time is up",
			upgradeCase{phase: accel.UpgradeDraining, drained: since, policy: minute, looked: found(process)},
			upgradeDecision{
				phase: accel.UpgradeWaiting, report: failed, problem: late(inUse(process)), byEvent: true, await: true,
			},
		},
		{
			"evict begins with holding devices back",
			upgradeCase{phase: accel.UpgradePending, policy: evict, looked: found(pod)},
			upgradeDecision{phase: accel.UpgradeDraining, drained: now, clear: true},
		},
		{
			"evict, and it was refused",
			upgradeCase{
				phase: accel.UpgradeDraining, drained: since, policy: evict,
				looked: &lookedFor{holders: []accel.Holder{pod}, refused: refused},
			},
			upgradeDecision{
				phase: accel.UpgradeDraining, drained: since, problem: refused, retryAt: now.Add(lookAgain),
				await: true,
			},
		},
		{
			"wait, and a module does not end by itself",
			upgradeCase{phase: accel.UpgradePending, policy: wait, looked: found(pod, module)},
			upgradeDecision{phase: accel.UpgradeWaiting, problem: inUse(pod, module), retryAt: now.Add(lookAgain)},
		},
		{
			"evict, and a module came while the devices were being held back",
			upgradeCase{phase: accel.UpgradeDraining, drained: since, policy: evict, looked: found(module)},
			upgradeDecision{phase: accel.UpgradeWaiting, problem: inUse(module), retryAt: now.Add(lookAgain)},
		},
		// Unknown holders.
		{
			"refuse, and no answer",
			upgradeCase{phase: accel.UpgradePending, policy: refuse, looked: &lookedFor{unanswered: silent}},
			upgradeDecision{phase: accel.UpgradeWaiting, problem: silent, retryAt: now.Add(lookAgain)},
		},
		{
			"refuse, and no answer any more",
			upgradeCase{
				phase: accel.UpgradeDraining, drained: since, policy: refuse,
				looked: &lookedFor{unanswered: silent},
			},
			upgradeDecision{phase: accel.UpgradeWaiting, problem: silent, retryAt: now.Add(lookAgain)},
		},
		{
			"wait, and no answer",
			upgradeCase{phase: accel.UpgradePending, policy: wait, looked: &lookedFor{unanswered: silent}},
			upgradeDecision{phase: accel.UpgradeWaiting, problem: silent, retryAt: now.Add(lookAgain)},
		},
		{
			"wait, and no answer any more",
			upgradeCase{
				phase: accel.UpgradeDraining, drained: since, policy: wait,
				looked: &lookedFor{unanswered: silent},
			},
			upgradeDecision{phase: accel.UpgradeDraining, drained: since, problem: silent, retryAt: now.Add(lookAgain)},
		},
		{
			"wait, and no answer until the time is up",
			upgradeCase{
				phase: accel.UpgradeDraining, drained: since, policy: minute,
				looked: &lookedFor{unanswered: silent},
			},
			upgradeDecision{
				phase: accel.UpgradeWaiting, report: accel.ParseUpgradeReport("failed 2 ProbeUnanswered"),
				problem: late(silent), byEvent: true,
			},
		},
		{
			"wait for a process, and there may be more",
			upgradeCase{
				phase: accel.UpgradeDraining, drained: since, policy: wait,
				looked: &lookedFor{holders: []accel.Holder{process}, unanswered: silent},
			},
			upgradeDecision{
				phase: accel.UpgradeDraining, drained: since, problem: inUse(process), retryAt: now.Add(lookAgain),
				await: true,
			},
		},
	} {
		c.in.kind, c.in.now = "k-x", now
		if c.in.looked != nil {
			c.in.target = "2" // nobody looks before the driver is ready
		}
		got := decideUpgrade(c.in)
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(upgradeDecision{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
