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
	ticket, policy := u.to.Ticket(), k.def.Driver.Upgrade.By
	seen := l.sync().Words[k.def.Kind]
	problem := accel.Problemf(accel.WaitingForSlot,
		"version %s is ready and waits for a slot of the policy %q", ticket, policy)
	switch going := (accel.Word{Phase: accel.WordUpgrading, Version: ticket}); {
	case l.want.Unsure:
		problem.Message = "the policies of the cluster are not known yet"
		u.word = accel.Word{}
	case seen.Grant.Version != ticket:
		u.word = accel.Word{Phase: accel.WordWaiting, Version: ticket}
	case seen.Word != going:
		problem.Message = "the slot is granted; that the node goes on is being written down"
		u.word = going
	default:
		u.word, u.acting, u.failure = going, true, nil
		l.o.Log.Info("driver upgrade has its slot", "kind", k.def.Kind, "version", ticket, "policy", policy)
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
func (l *Loop) ordered(k *kind) bool { return k.def.Driver.Upgrade.By != "" || l.want.Unsure }

// gaveUp records that the node is not acting any more and that the upgrade failed.
func (u *upgrading) gaveUp(to accel.DriverRef, problem *accel.Problem) {
	u.acting, u.word = false, accel.Word{Phase: accel.WordFailed, Version: to.Ticket(), Reason: problem.Reason}
}

// observeWord sets the node's report about a kind's upgrade, or leaves it unknown.
func (l *Loop) observeWord(k *kind) {
	said := l.sync().Words[k.def.Kind].Word
	switch f := k.have.Failure; {
	case l.want.Unsure:
		k.have.Word = accel.Answer[accel.Word]{}
	case k.def.Driver.Upgrade.By == "" || accel.CountPresent(k.have.Accelerators) == 0:
		k.have.Word = accel.Known(accel.Word{})
	case k.up != nil && (k.up.acting || k.up.word != accel.Word{}):
		k.have.Word = accel.Known(k.up.word)
		k.word = k.up.word
	case k.have.Driver.Right && k.running != accel.StepUpgrade:
		k.have.Word = accel.Known(accel.Word{}) // no report, not even while a driver is prepared
		k.word = accel.Word{}
	case k.word.Phase == accel.WordFailed:
		k.have.Word = accel.Known(k.word) // neither driver works
	case f != nil && f.Step == accel.StepDriver && f.Reason.Doc().Permanent && said.Phase == accel.WordUpgrading:
		k.have.Word = accel.Known(accel.Word{Phase: accel.WordFailed, Version: said.Version, Reason: f.Reason})
	default: // an earlier agent, which ended midway, reported last, and the driver is not back yet
		k.have.Word = accel.Answer[accel.Word]{}
	}
}

// sync returns what the API server has about this node; nothing without credentials.
func (l *Loop) sync() Sync {
	if l.o.KubeSync == nil {
		return Sync{}
	}
	return l.o.KubeSync()
}

// Exchange is the handshake between node and controller about a kind, from one node object.
type Exchange struct {
	Word  accel.Word
	Grant accel.Grant
}

// Exchanges reads the handshakes from the annotations of a node, by kind.
func Exchanges(annotations map[string]string) map[string]Exchange {
	out := map[string]Exchange{}
	for key, value := range annotations {
		if kind, ok := strings.CutPrefix(key, accel.WordAnnotation); ok {
			x := out[kind]
			x.Word = accel.ParseWord(value)
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
