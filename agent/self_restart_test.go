package agent

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/acceld/acceld/accel"
)

// TestSelfRestart: the agent ends only for an outdated view, once, and not while a driver is being replaced.
func TestSelfRestart(t *testing.T) {
	failed := func(r accel.Reason) *accel.Failure {
		return &accel.Failure{Step: accel.StepRuntime, Problem: accel.Problem{Reason: r}}
	}
	of := func(f *accel.Failure, other accel.Status, up *accel.Upgrade) accel.Machine {
		return accel.Machine{
			Have: map[string]accel.Have{"a": {Failure: f}, "b": {Driver: accel.DriverHave{Upgrade: up}}},
			Status: map[string]accel.Status{
				"a": {State: accel.RuntimeMissing, Next: accel.StepRuntime, Blocked: f},
				"b": other,
			},
		}
	}
	view := failed(accel.ViewOutdated)
	building := accel.Status{State: accel.DriverMissing, Next: accel.StepDriver}
	for what, c := range map[string]struct {
		m    accel.Machine
		ends int
	}{
		"nothing":          {of(nil, accel.Status{}, nil), 0},
		"read-only to all": {of(failed(accel.ReadOnly), accel.Status{}, nil), 0},
		"outdated":         {of(view, accel.Status{}, nil), 1},
		"beside a build":   {of(view, building, nil), 0},
		"beside a driver that fails": {of(view, accel.Status{
			Next:    accel.StepDriver,
			Blocked: failed(accel.BuildFailed),
		}, nil), 1},
		"beside a driver got ready": {of(view, accel.Status{}, &accel.Upgrade{Phase: accel.UpgradePreparing}), 0},
		"beside one being replaced": {of(view, accel.Status{}, &accel.Upgrade{Phase: accel.UpgradeReplacing}), 0},
		"beside one that waits":     {of(view, accel.Status{}, &accel.Upgrade{Phase: accel.UpgradeDraining}), 1},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				machines, replaced, ends := []accel.Machine{{}, c.m, c.m}, make(chan struct{}), 0
				follow := func() (accel.Machine, <-chan struct{}) {
					m := machines[0]
					if len(machines) == 1 {
						return m, nil
					}
					machines = machines[1:]
					return m, replaced
				}
				go func() {
					err := selfRestart(ctx, follow, func() { ends++ }, slog.New(slog.DiscardHandler))
					if err != nil {
						t.Error(err)
					}
				}()
				replaced <- struct{}{}
				replaced <- struct{}{}
				synctest.Wait()
				cancel()
				synctest.Wait()
				if ends != c.ends {
					t.Errorf("ended %d times, want %d", ends, c.ends)
				}
			})
		})
	}
	t.Run("nobody to start it again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			follow := func() (accel.Machine, <-chan struct{}) { return of(view, accel.Status{}, nil), nil }
			done := make(chan error, 1)
			go func() { done <- selfRestart(ctx, follow, nil, slog.New(slog.DiscardHandler)) }()
			synctest.Wait()
			select {
			case err := <-done:
				t.Errorf("it ended: %v", err)
			default:
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	})
}
