package loop

import (
	"strings"

	"github.com/acceld/acceld/accel"
)

// If a policy of the cluster orders upgrades, the node reports its progress and the cluster's controller grants a
// slot; [decideUpgrade] decides what the node reports and when it may act. The loop reads the report and the grant
// from one version of the node object. If that version has both, the controller has not revoked the grant: it does so
// only in a version in which the node is not acting.

// Handshake is the handshake between node and controller about a kind, from one node object.
type Handshake struct {
	UpgradeReport accel.UpgradeReport
	Grant         accel.Grant
	RepairReport  accel.RepairReport
	RepairPermit  accel.RepairPermit
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
		if kind, ok := strings.CutPrefix(key, accel.RepairAnnotation); ok {
			x := out[kind]
			x.RepairReport = accel.ParseRepairReport(value)
			out[kind] = x
		}
		if kind, ok := strings.CutPrefix(key, accel.AllowRepairAnnotation); ok {
			x := out[kind]
			x.RepairPermit = accel.ParseRepairPermit(value)
			out[kind] = x
		}
	}
	return out
}

// handshake returns what the node object has about a kind; nothing without credentials.
func (l *Loop) handshake(k *kind) Handshake {
	if l.o.KubeSync == nil {
		return Handshake{}
	}
	return l.o.KubeSync().Handshakes[k.def.Kind]
}

// observeMaintenance sets who else works on the node. Without credentials, when sync is nil, nobody says so.
func observeMaintenance(f *accel.Facts, sync func() Sync) {
	f.Maintenance, f.MaintenanceUnknown = nil, false
	if sync != nil {
		y := sync()
		f.Maintenance, f.MaintenanceUnknown = y.Maintenance, y.MaintenanceUnknown
	}
}

// hindrance says why the driver of def, if it works, is not replaced now: somebody else works on the node; nil if
// nobody does.
func hindrance(f accel.Facts, def *accel.Definition) *accel.Problem {
	if f.MaintenanceUnknown {
		return accel.Problemf(accel.UnderMaintenance, "it is not known yet whether somebody else works on the node")
	}
	if m := accel.Hinders(f.Maintenance, accel.UpgradeWork, def.IgnoreConditions); m != nil {
		return accel.Problemf(accel.UnderMaintenance, "%s", m)
	}
	return nil
}

// observeServed sets what a policy asked when it was last met, or leaves what was seen last. The driver has just been
// looked at with the definition that is in force: what the last look found may have been about an earlier one.
func (l *Loop) observeServed(k *kind) {
	switch u := k.def.Driver.Upgrade; {
	case l.want.PoliciesUnknown:
	case u.By == "":
		k.have.ServedDigest = accel.Known("")
	case k.have.Driver.Serves && k.have.Driver.Upgrade == nil:
		k.have.ServedDigest = accel.Known(u.Digest)
	}
}

// observeReport sets the node's report about a kind's upgrade, or leaves it unknown.
func (l *Loop) observeReport(k *kind) {
	written := l.handshake(k).UpgradeReport
	shown := &k.have.UpgradeReport
	switch f := k.have.Failure; {
	case l.want.PoliciesUnknown:
		*shown = accel.Answer[accel.UpgradeReport]{}
	case k.def.Driver.Upgrade.By == "" || accel.CountPresent(k.have.Accelerators) == 0:
		*shown = accel.Known(accel.UpgradeReport{})
	case k.up != nil && k.up.report != accel.UpgradeReport{}:
		*shown, k.report = accel.Known(k.up.report), k.up.report
	case k.have.Driver.Serves && k.running != accel.StepUpgrade: // no report, not even while a driver is prepared
		*shown, k.report = accel.Known(accel.UpgradeReport{}), accel.UpgradeReport{}
	case k.report.Phase == accel.ReportFailed:
		*shown = accel.Known(k.report) // neither driver works
	case k.replaced:
		*shown = accel.Known(accel.UpgradeReport{}) // a device that is not bound is no outcome of it
	case f != nil && f.Step == accel.StepDriver && f.Reason.Doc().Permanent && written.Phase == accel.ReportUpgrading:
		*shown = accel.Known(failedReport(written.Version, f.Reason))
	default: // an earlier agent, which ended midway, reported last, and the driver is not back yet
		*shown = accel.Answer[accel.UpgradeReport]{}
	}
}

// reportRepair sets the node's report about devices whose repair a policy limits, and whether the node may begin.
// Until it is known what is done about each device, the last report stays: it may be of an earlier agent, which had
// begun.
func (k *kind) reportRepair(x Handshake, unknown bool) {
	r := accel.RepairReport{Phase: accel.RepairPhaseIll, Devices: accel.CountPresent(k.have.Accelerators)}
	for _, a := range k.have.Accelerators {
		switch {
		case !k.def.NeedsRepair(a):
		case a.Repair == nil:
			unknown = true
		case a.Repair.Asks:
			r.Ill, r.Phase = r.Ill+1, accel.RepairPhaseWaiting
		case a.Repair.State != accel.RepairGivenUp || a.Repair.Common:
			r.Ill++
		}
	}
	shown := &k.have.RepairReport
	k.have.RepairAllowed = false
	switch {
	case unknown:
		*shown = accel.Answer[accel.RepairReport]{}
	case k.def.Repair == nil || k.def.Repair.By == "" || r.Ill == 0:
		*shown = accel.Known(accel.RepairReport{})
	case x.RepairPermit.Given && r.Phase == accel.RepairPhaseWaiting:
		k.have.RepairAllowed = x.RepairReport.Phase == accel.RepairPhaseActing
		r.Phase = accel.RepairPhaseActing
		*shown = accel.Known(r)
	default:
		*shown = accel.Known(r)
	}
}
