package agent

import (
	"context"
	"log/slog"
	"slices"

	"github.com/acceld/acceld/accel"
)

// SelfRestart is the task that ends the agent where only a new start of it helps: when something waits for a directory
// that came into being after the agent ([accel.ViewOutdated]). That is no answer which the next agent comes to again,
// because the directory is older than that one.
type SelfRestart struct {
	follow func() (m accel.Machine, replaced <-chan struct{})
	end    func()
	log    *slog.Logger
	ready  chan struct{}
}

// NewSelfRestart returns the task. follow is [loop.Loop.Follow], end ends the agent as a stop of its service does; nil
// where nobody would start it again: the reason is then for people.
func NewSelfRestart(follow func() (accel.Machine, <-chan struct{}), end func(), log *slog.Logger) *SelfRestart {
	return &SelfRestart{follow: follow, end: end, log: log, ready: make(chan struct{})}
}

// String names the task.
func (r *SelfRestart) String() string { return "self-restart" }

// Ready is closed at once.
func (r *SelfRestart) Ready() <-chan struct{} { return r.ready }

// Run looks at each new machine until ctx ends, which it brings about itself at most once.
func (r *SelfRestart) Run(ctx context.Context) error {
	close(r.ready)
	for end := r.end; ; {
		m, replaced := r.follow()
		if kind, f := outdated(m); f != nil && end != nil && !replacing(m) {
			r.log.Info("the agent ends, to be started again with a view of the host as it is now", "kind", kind,
				"reason", f.Reason, "message", f.Message)
			end()
			end = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-replaced:
		}
	}
}

// outdated returns a failure that a new start cures, and its kind; nil when there is none.
func outdated(m accel.Machine) (kind string, f *accel.Failure) {
	for kind, have := range m.Have {
		if f := have.Failure; f != nil && f.Reason == accel.ViewOutdated {
			return kind, f
		}
	}
	return "", nil
}

// replacing reports whether a driver is being built, loaded or replaced. A new agent would complete that too, from its
// beginning.
func replacing(m accel.Machine) bool {
	for kind, status := range m.Status {
		if status.Next == accel.StepDriver && status.Blocked == nil {
			return true
		}
		up := m.Have[kind].Driver.Upgrade
		if up != nil && slices.Contains([]accel.UpgradePhase{accel.UpgradePreparing, accel.UpgradeReplacing},
			up.Phase) {
			return true
		}
	}
	return false
}
