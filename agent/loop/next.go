package loop

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
)

// Next derives the verdict about one kind from a machine. It is pure: the same machine gives the same status. The
// caller, which knows the clock, fills in Since and Took.
func Next(m accel.Machine, kind string) accel.Status {
	have := m.Have[kind]
	var at row
	for _, r := range table() {
		at = r
		if r.on(m) && !r.passed(m, have) {
			break
		}
	}
	s := accel.Status{State: at.state, Next: at.step}
	if at.state == accel.Absent && have.Runtime.Spec == "" {
		s.Next = accel.StepNone // nothing is published, so there is nothing to withdraw
	}
	if f := have.Failure; f != nil && f.Step == at.step && at.step != accel.StepNone {
		s.Blocked = f
	}
	idle := at.step == accel.StepNone || at.step == accel.StepMonitor || at.step == accel.StepAwait || s.Blocked != nil
	if at.state != accel.Absent && idle && upgradeDue(have, m.Taken) {
		s.Next = accel.StepUpgrade // steps that bring the old driver to ready go first, unless blocked
	}
	s.Published = phases(m, have, at, s.Blocked != nil)
	if def := m.Want.Kinds[kind]; def != nil {
		addOwn(s.Published, def.States, have, s.Blocked != nil)
	}
	s.Sentence = sentence(m, have, at, s)
	return s
}

// upgradeDue reports whether another driver is desired and the upgrade can continue now.
func upgradeDue(have accel.Have, now time.Time) bool {
	u := have.Driver.Upgrade
	return u != nil && due(u.Failure, now)
}

// due reports whether what failed may be tried now.
func due(f *accel.Failure, now time.Time) bool {
	return f == nil || !f.RetryAt.IsZero() && !now.Before(f.RetryAt)
}

// phases returns the phases of the published states for a kind in row at.
func phases(m accel.Machine, have accel.Have, at row, blocked bool) map[accel.Published]accel.Phase {
	if at.state == accel.Absent {
		return nil // no device, no labels
	}
	out := map[accel.Published]accel.Phase{}
	passed := true
	for _, r := range table() {
		if r.state == at.state {
			passed = false
		}
		if !r.on(m) {
			continue
		}
		for _, p := range r.shows {
			switch {
			case passed, r.state == at.state && r.reached(m, have):
				out[p] = accel.PhaseReady
			case r.state == at.state && blocked:
				out[p] = accel.PhaseFailed
			case out[p] != accel.PhaseFailed:
				out[p] = accel.PhasePending
			}
		}
	}
	if out[accel.DriverContainer] == accel.PhaseReady && have.Driver.Unchecked {
		out[accel.DriverContainer] = accel.PhaseUnchecked
	}
	return out
}

// addOwn adds the phases of a definition's own states. One is worked on when the published state before it is reached.
func addOwn(out map[accel.Published]accel.Phase, states []accel.OwnState, have accel.Have, blocked bool) {
	for _, s := range states {
		after, applies := out[s.After]
		left := slices.Contains(have.StatesLeft[s.After], s.Published())
		switch {
		case !applies:
		case after.Reached() && !left:
			out[s.Published()] = accel.PhaseReady
		case after.Reached() && blocked && have.StatesLeft[s.After][0] == s.Published():
			out[s.Published()] = accel.PhaseFailed
		default:
			out[s.Published()] = accel.PhasePending
		}
	}
}

// sentence describes a kind's state and what happens next, for people.
func sentence(m accel.Machine, have accel.Have, at row, s accel.Status) string {
	present := accel.CountPresent(have.Accelerators)
	var b strings.Builder
	switch at.state {
	case accel.Ready:
		b.WriteString(accel.UsableText(have.Accelerators))
		if bad := troubled(have.Accelerators); bad != "" {
			b.WriteString("; " + bad)
		}
	case accel.Absent:
		b.WriteString("no device of this kind is on the host")
		if n := len(have.Accelerators); n > 0 {
			fmt.Fprintf(&b, "; %d vanished", n)
		}
	case accel.Unwatched:
		b.WriteString(at.means)
		if m.Want.Labels && !have.Monitoring.Labelled && have.Monitoring.LabelProblem != "" {
			b.WriteString("; labels wait: " + have.Monitoring.LabelProblem)
		}
	default:
		means := at.means
		if at.reached(m, have) {
			means = fmt.Sprintf("%s is reached; the definition's own states after it are not yet", at.shows[0])
		}
		fmt.Fprintf(&b, "%s (%s)", means, devices(present))
	}
	if f := s.Blocked; f != nil {
		fmt.Fprintf(&b, "; blocked: %s", failed(f, m.Taken))
	}
	for _, w := range have.Warnings() {
		b.WriteString("; " + w.Message)
	}
	for _, p := range have.Work {
		b.WriteString("; " + p.Report(m.Taken))
	}
	if u := have.Driver.Upgrade; u != nil {
		fmt.Fprintf(&b, "; upgrade from %s to %s: %s", u.From, u.To, upgradeWords(u, m.Taken))
	}
	return b.String()
}

// failed says what failed and when it is tried again.
func failed(f *accel.Failure, now time.Time) string {
	s := fmt.Sprintf("%s (%s)", f.Message, f.Reason)
	switch {
	case f.RetryAt.IsZero():
		return s + "; tried again when the machine or the configuration changes"
	case !f.RetryAt.After(now):
		return s + "; being tried again"
	}
	return s + "; tried again at " + f.RetryAt.Format("15:04:05")
}

// upgradeWords describes the progress of an upgrade.
func upgradeWords(u *accel.Upgrade, now time.Time) string {
	words := map[accel.UpgradePhase]string{
		accel.UpgradePending:   "the old driver serves",
		accel.UpgradePreparing: "preparing the new driver, the old one serves",
		accel.UpgradeWaiting:   "the new driver is ready, the old one serves",
		accel.UpgradeDraining:  "waits until nobody uses the old driver, devices are given to nobody",
		accel.UpgradeReplacing: "in progress",
	}[u.Phase]
	if u.Failure != nil {
		words += "; " + failed(u.Failure, now)
	}
	return words
}

// devices returns "1 device", "2 devices" and so on.
func devices(n int) string {
	if n == 1 {
		return "1 device"
	}
	return fmt.Sprintf("%d devices", n)
}

// troubled names the devices that are unhealthy or withheld.
func troubled(accs []accel.Accelerator) string {
	var bad []string
	for _, a := range accs {
		if a.WithheldAlone() {
			bad = append(bad, fmt.Sprintf("%s is withheld (%s)", a.ID, a.Withheld.Message))
		}
		if a.Health.State != accel.Healthy {
			bad = append(bad, fmt.Sprintf("%s is %s (%s)", a.ID, a.Health.State, a.Health.Message))
		}
	}
	return strings.Join(bad, ", ")
}
