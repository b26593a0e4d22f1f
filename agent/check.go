package agent

import (
	"context"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
)

// checks are the self-tests that claims ask for.
type checks struct{ *Agent }

// all lets devices pass their self-test, all at once, and returns why some did not.
func (a checks) all(ctx context.Context, def *accel.Definition, devices []accel.Accelerator) *accel.Problem {
	problems := make([]*accel.Problem, len(devices))
	var group guard.Group
	for i, x := range devices {
		group.Go(func() { problems[i] = a.one(ctx, def, x) })
	}
	group.Wait()
	var worst *accel.Problem
	var messages []string
	for _, p := range problems {
		if p == nil {
			continue
		}
		messages = append(messages, p.Message)
		if worst == nil || p.Reason == accel.CheckFailed {
			worst = p
		}
	}
	if worst == nil {
		return nil
	}
	return accel.Problemf(worst.Reason, "%s", strings.Join(messages, "; "))
}

// one lets a device, or a partition, pass its self-test. That it fails is part of the device's health from then on.
func (a checks) one(ctx context.Context, def *accel.Definition, x accel.Accelerator) *accel.Problem {
	target := x
	if x.Parent != "" {
		if def.Check.Program == nil || !def.Check.Program.ByUUID() {
			return accel.Problemf(accel.CheckNotRun, "the self-test of kind %q cannot test partition %q alone", def.Kind,
				x.ID)
		}
		target = accel.Accelerator{ID: x.Parent, Partitions: []accel.Accelerator{x}}
	}
	proof, problem := a.driver.Prove(ctx, def, []accel.Accelerator{target})
	why := proof.Skipped[target.ID]
	switch {
	case ctx.Err() != nil:
		return accel.Problemf(accel.CheckNotRun, "the self-test of device %q did not end in time", x.ID)
	case problem != nil && problem.Reason == accel.CheckFailed:
		a.health.CheckFailed(target.ID, problem.Message)
		return problem
	case problem == nil && why != "":
		return accel.Problemf(accel.CheckNotRun, "device %q was not tested: %s", x.ID, why)
	}
	return problem
}
