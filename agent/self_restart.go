package agent

import (
	"context"
	"log/slog"
	"slices"

	"github.com/acceld/acceld/accel"
)

// SelfRestart is the task that ends the agent when only a restart helps: when something waits for a directory that
// was created after the agent started ([accel.ViewOutdated]). The next agent does not get the same failure, because
// the directory is older than that agent.
type SelfRestart struct {
	follow func() (m accel.Machine, replaced <-chan struct{})
	end    func()
	log    *slog.Logger
	ready  chan struct{}
}

// NewSelfRestart returns the task. follow is [loop.Loop.Follow]; end ends the agent like a stop of its service. Pass
// a nil end if nothing would start the agent again: an operator must then act on the reason.
func NewSelfRestart(follow func() (accel.Machine, <-chan struct{}), end func(), log *slog.Logger) *SelfRestart {
	return &SelfRestart{follow: follow, end: end, log: log, ready: make(chan struct{})}
}

// String names the task.
func (r *SelfRestart) String() string { return "self-restart" }

// Ready is closed at once.
func (r *SelfRestart) Ready() <-chan struct{} { return r.ready }

// Run checks each new machine until ctx ends. It calls end at most once.
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

// outdated returns a failure that a restart fixes, and its kind; nil if there is none.
func outdated(m accel.Machine) (kind string, f *accel.Failure) {
	for kind, have := range m.Have {
		if f := have.Failure; f != nil && f.Reason == accel.ViewOutdated {
			return kind, f
		}
	}
	return "", nil
}

// replacing reports whether a driver is being built, loaded or replaced. A new agent would complete that too, but
// start over.
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
