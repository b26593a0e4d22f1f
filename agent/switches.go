package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/dra"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/pace"
)

// switches gives devices to claims that ask for another use than with the driver of their kind (VFIO), and back to
// that driver when the claim is over. Whose a device is, its journal says (accel.Switched); that the claim is over, the
// absence of its record (dra.Prepared). Nothing else is remembered, so a new agent goes on from there.
type switches struct {
	*Agent
	poked chan struct{}

	mu sync.Mutex
	// problems say, by PCI address, why a device could not be given back.
	problems map[string]*accel.Problem
}

func newSwitches(a *Agent) *switches {
	return &switches{Agent: a, poked: make(chan struct{}, 1), problems: map[string]*accel.Problem{}}
}

// poke says that claims may be over.
func (s *switches) poke() {
	select {
	case s.poked <- struct{}{}:
	default:
	}
}

// give gives a device with VFIO to a claim, whose record is on the disk; see dra.Config.
func (s *switches) give(ctx context.Context, def *accel.Definition, x accel.Accelerator, claim, name string) (
	accel.Accelerator, *accel.Problem,
) {
	if x.ServesClaim(claim) {
		return x, nil
	}
	if x.Partitioned() {
		return x, accel.Problemf(accel.SwitchRefused, "device %q is divided, and only whole devices are given out with %s",
			x.ID, accel.UseVFIO)
	}
	if def.Handover != nil && !x.InOtherUse() { // what a former tenant left is removed first
		if problem := s.handover.Lend(ctx, claim, x.ID); problem != nil {
			return x, problem
		}
	}
	defer s.programs.Pause(ctx, def.Kind)() // it may have the device open
	defer s.wake(true)
	got, problem := driver.NewSwitches(s.driver).Give(ctx, s.machine().Facts, driver.SwitchRequest{
		Def: def, Device: x, Claim: claim, Name: name, Ready: s.awaitWithheld(x.ID), Known: func(id string) bool {
			return known(s.machine(), id)
		},
	})
	if problem == nil {
		s.Log.Info("device given out otherwise", "kind", def.Kind, "device", x.ID, "use", got.Switched.Use, "claim", name)
	}
	return got, problem
}

// known reports whether a function is a device of some kind.
func known(m accel.Machine, id string) bool {
	for _, have := range m.Have {
		if slices.ContainsFunc(have.Accelerators, func(x accel.Accelerator) bool { return x.ID == id && x.Present() }) {
			return true
		}
	}
	return false
}

// awaitWithheld returns a function that waits until nobody else is given a device: the journal is read, and the device
// is withheld.
func (s *switches) awaitWithheld(id string) func(context.Context) *accel.Problem {
	return func(ctx context.Context) *accel.Problem {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		s.wake(false)
		for {
			m, next := s.loop.Follow()
			for _, have := range m.Have {
				if slices.ContainsFunc(have.Accelerators, func(x accel.Accelerator) bool {
					return x.ID == id && x.WithheldBy(accel.BySwitch)
				}) {
					return nil
				}
			}
			select {
			case <-next:
			case <-ctx.Done():
				return accel.Problemf(accel.SwitchFailed, "device %q was not withheld in time", id)
			}
		}
	}
}

// enrich says of devices that could not be given back why. The result is accs.
func (s *switches) enrich(accs []accel.Accelerator) []accel.Accelerator {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range accs {
		if p := s.problems[accs[i].ID]; p != nil && accs[i].WithheldBy(accel.BySwitch) {
			accs[i].Withheld = &accel.Withheld{By: accel.BySwitch, Reason: p.Reason, Message: p.Message}
		}
	}
	return accs
}

// run gives devices back whose claims are over, until ctx ends.
func (s *switches) run(ctx context.Context) error {
	wait := pace.Backoff{First: time.Second, Max: time.Minute}
	failures := 0
	for {
		_, replaced := s.loop.Follow()
		again := time.Hour
		if s.pass(ctx) {
			failures++
			again, replaced = wait.After(failures), nil // the loop has news all the time
		} else {
			failures = 0
		}
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-replaced:
		case <-s.poked:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// pass gives back what can be given back, and reports whether something could not.
func (s *switches) pass(ctx context.Context) (left bool) {
	all, err := s.Host.Devices().Switched()
	if err != nil {
		s.Log.Debug("devices in another use", "error", err) // the facts have it as a problem
	}
	over := func(j accel.Switched) bool { return !dra.Prepared(s.Host, s.Config.StateDir, j.Kind, j.Claim) }
	problems := map[string]*accel.Problem{}
	for _, id := range sorted(all) {
		if !over(all[id]) {
			continue
		}
		if problem := driver.NewSwitches(s.driver).Return(ctx, id, over); problem != nil {
			problems[id] = problem
		}
		s.wake(true) // its kind may have to bind and prove it
	}
	s.note(problems)
	return len(problems) > 0
}

// note replaces the problems, and logs those that are new.
func (s *switches) note(problems map[string]*accel.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, p := range problems {
		if old := s.problems[id]; old == nil || old.Message != p.Message {
			s.Log.Warn("a device is given back later", "device", id, "reason", p.Reason, "message", p.Message)
		}
	}
	s.problems = problems
}
