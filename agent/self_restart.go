package agent

import (
	"context"
	"log/slog"

	"github.com/acceld/acceld/accel"
)

// selfRestart ends the agent when only a restart helps: when something waits for a directory that was created after
// the agent started ([accel.ViewOutdated]). The next agent does not get the same failure, because the directory is
// older than that agent. selfRestart checks each new machine until ctx ends, and calls end at most once. End is nil if
// nothing would start the agent again: an operator must then act on the reason.
func selfRestart(ctx context.Context, follow func() (m accel.Machine, replaced <-chan struct{}), end func(),
	log *slog.Logger,
) error {
	for {
		m, replaced := follow()
		if kind, f := outdated(m); f != nil && end != nil && !replacing(m) {
			log.Info("the agent ends, to be started again with a view of the host as it is now", "kind", kind,
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
		if up != nil && (up.Phase == accel.UpgradePreparing || up.Phase == accel.UpgradeReplacing) {
			return true
		}
	}
	return false
}
