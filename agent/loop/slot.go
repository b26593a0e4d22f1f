package loop

import (
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

// Where a policy of the cluster orders upgrades, the node says how far it is and the cluster's controller says when it
// may go on. The word of the node and the grant are read from one node object: as long as that object has both, the
// controller has not taken the grant back, because it does so only in an object in which the node does not act.

// observeSlot finds whether an upgrade that is prepared may go on, and notes what the node has to say about it.
func (l *Loop) observeSlot(k *kind, now time.Time) {
	u := k.up
	if u == nil || !u.prepared || u.busy || u.acting || u.phase == accel.UpgradeReplacing || !l.ordered(k) {
		return
	}
	if f := u.failure; f != nil && f.Reason != accel.WaitingForSlot && (f.RetryAt.IsZero() || now.Before(f.RetryAt)) {
		return // given up, and said
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
		u.end() // nobody ordered upgrades when it began
	}
	u.phase = accel.UpgradeWaiting
	if f := u.failure; f == nil || f.Reason != problem.Reason || f.Message != problem.Message {
		l.failUpgrade(k, u, problem, now)
	}
	if again := *u.failure; !again.RetryAt.IsZero() { // a change of the node is an event
		again.RetryAt = time.Time{}
		u.failure = &again
	}
}

// ordered reports whether somebody else says when a driver that serves may be replaced.
func (l *Loop) ordered(k *kind) bool { return k.def.Driver.Upgrade.By != "" || l.want.Unsure }

// gaveUp notes that the node does not act any more and could not do what it had its slot for.
func (u *upgrading) gaveUp(to accel.DriverRef, problem *accel.Problem) {
	u.acting, u.word = false, accel.Word{Phase: accel.WordFailed, Version: to.Ticket(), Reason: problem.Reason}
}

// observeWord says what the node has to say about the upgrade of a kind, as far as anybody knows.
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
		k.have.Word = accel.Known(accel.Word{}) // silent also while a driver is got ready
		k.word = accel.Word{}
	case k.word.Phase == accel.WordFailed:
		k.have.Word = accel.Known(k.word) // neither driver serves
	case f != nil && f.Step == accel.StepDriver && f.Reason.Doc().Permanent && said.Phase == accel.WordUpgrading:
		k.have.Word = accel.Known(accel.Word{Phase: accel.WordFailed, Version: said.Version, Reason: f.Reason})
	default: // an agent that ended midway has said it last, and the driver is not back yet
		k.have.Word = accel.Answer[accel.Word]{}
	}
}

// sync is what the API server holds of this node; nothing without one.
func (l *Loop) sync() Sync {
	if l.o.KubeSync == nil {
		return Sync{}
	}
	return l.o.KubeSync()
}

// Exchange is what node and controller say to each other about a kind, in one node object.
type Exchange struct {
	Word  accel.Word
	Grant accel.Grant
}

// Exchanges reads them from the annotations of a node.
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
