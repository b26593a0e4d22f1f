package loop

import (
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

// If a policy of the cluster orders upgrades, the node reports its progress and the cluster's controller grants a
// slot. The loop reads the report and the grant from one version of the node object. If that version has both, the
// controller has not revoked the grant: it does so only in a version in which the node is not acting.

// observeSlot finds out whether a prepared upgrade may continue, and sets the node's report about it.
func (l *Loop) observeSlot(k *kind, now time.Time) {
	u := k.up
	if u == nil || !u.prepared || u.busy || u.acting || u.phase == accel.UpgradeReplacing || !l.ordered(k) {
		return
	}
	if f := u.failure; f != nil && f.Reason != accel.WaitingForSlot && (f.RetryAt.IsZero() || now.Before(f.RetryAt)) {
		return // given up, and reported
	}
	target, policy := u.to.Target(), k.def.Driver.Upgrade.By
	seen := l.sync().Handshakes[k.def.Kind]
	problem := accel.Problemf(accel.WaitingForSlot,
		"version %s is ready and waits for a slot of the policy %q", target, policy)
	switch going := (accel.UpgradeReport{Phase: accel.ReportUpgrading, Version: target}); {
	case l.want.PoliciesUnknown:
		problem.Message = "the policies of the cluster are not known yet"
		u.report = accel.UpgradeReport{}
	case seen.Grant.Version != target:
		u.report = accel.UpgradeReport{Phase: accel.ReportWaiting, Version: target}
	case seen.UpgradeReport != going:
		problem.Message = "the slot is granted; that the node goes on is being written down"
		u.report = going
	default:
		u.report, u.acting, u.failure = going, true, nil
		l.o.Log.Info("driver upgrade has its slot", "kind", k.def.Kind, "version", target, "policy", policy)
		return
	}
	if !u.drained.IsZero() {
		u.end() // no policy ordered upgrades when it began
	}
	u.phase = accel.UpgradeWaiting
	if f := u.failure; f == nil || f.Reason != problem.Reason || f.Message != problem.Message {
		l.failUpgrade(k, u, problem, now)
	}
	if again := *u.failure; !again.RetryAt.IsZero() { // a change of the node object is an event
		again.RetryAt = time.Time{}
		u.failure = &again
	}
}

// ordered reports whether the cluster decides when a driver in use may be replaced.
func (l *Loop) ordered(k *kind) bool { return k.def.Driver.Upgrade.By != "" || l.want.PoliciesUnknown }

// gaveUp records that the node is not acting any more and that the upgrade failed.
func (u *upgrading) gaveUp(to accel.DriverRef, problem *accel.Problem) {
	u.acting, u.report = false, accel.UpgradeReport{
		Phase: accel.ReportFailed, Version: to.Target(),
		Reason: problem.Reason,
	}
}

// observeWord sets the node's report about a kind's upgrade, or leaves it unknown.
func (l *Loop) observeWord(k *kind) {
	said := l.sync().Handshakes[k.def.Kind].UpgradeReport
	switch f := k.have.Failure; {
	case l.want.PoliciesUnknown:
		k.have.UpgradeReport = accel.Answer[accel.UpgradeReport]{}
	case k.def.Driver.Upgrade.By == "" || accel.CountPresent(k.have.Accelerators) == 0:
		k.have.UpgradeReport = accel.Known(accel.UpgradeReport{})
	case k.up != nil && (k.up.acting || k.up.report != accel.UpgradeReport{}):
		k.have.UpgradeReport = accel.Known(k.up.report)
		k.report = k.up.report
	case k.have.Driver.Serves && k.running != accel.StepUpgrade:
		k.have.UpgradeReport = accel.Known(accel.UpgradeReport{}) // no report, not even while a driver is prepared
		k.report = accel.UpgradeReport{}
	case k.report.Phase == accel.ReportFailed:
		k.have.UpgradeReport = accel.Known(k.report) // neither driver works
	case k.replaced:
		k.have.UpgradeReport = accel.Known(accel.UpgradeReport{}) // a device that is not bound is no outcome of it
	case f != nil && f.Step == accel.StepDriver && f.Reason.Doc().Permanent && said.Phase == accel.ReportUpgrading:
		k.have.UpgradeReport = accel.Known(accel.UpgradeReport{
			Phase: accel.ReportFailed, Version: said.Version,
			Reason: f.Reason,
		})
	default: // an earlier agent, which ended midway, reported last, and the driver is not back yet
		k.have.UpgradeReport = accel.Answer[accel.UpgradeReport]{}
	}
}

// sync returns what the API server has about this node; nothing without credentials.
func (l *Loop) sync() Sync {
	if l.o.KubeSync == nil {
		return Sync{}
	}
	return l.o.KubeSync()
}

// Handshake is the handshake between node and controller about a kind, from one node object.
type Handshake struct {
	UpgradeReport accel.UpgradeReport
	Grant         accel.Grant
}

// Handshakes reads the handshakes from the annotations of a node, by kind.
func Handshakes(annotations map[string]string) map[string]Handshake {
	out := map[string]Handshake{}
	for key, value := range annotations {
		if kind, ok := strings.CutPrefix(key, accel.ReportAnnotation); ok {
			x := out[kind]
			x.UpgradeReport = accel.ParseUpgradeReport(value)
			out[kind] = x
		}
		if kind, ok := strings.CutPrefix(key, accel.GrantAnnotation); ok {
			x := out[kind]
			x.Grant = accel.ParseGrant(value)
			out[kind] = x
		}
	}
	return out
}
