package agent

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/dra"
	"github.com/acceld/acceld/driver"
)

// switches gives devices to claims that ask for another use than with the driver of their kind (VFIO), and back to
// that driver when the claim is over. Whose a device is, its journal says (accel.Switched); that the claim is over, the
// absence of its record (dra.Prepared). For devices that are set aside, the configuration takes the place of a claim.
// Nothing else is remembered, so a new agent goes on from there.
type switches struct {
	*Agent
	poked chan struct{}

	mu sync.Mutex
	// lending has the devices that are set aside at this moment.
	lending map[string]bool
	// problems say, by PCI address, why a device could not be given back.
	problems map[string]*accel.Problem
}

func newSwitches(a *Agent) *switches {
	return &switches{
		Agent: a, poked: make(chan struct{}, 1), lending: map[string]bool{}, problems: map[string]*accel.Problem{},
	}
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
	if !x.ServesClaim(claim) {
		got, problem := s.lend(ctx, def, x, claim, name, s.awaitWithheld(x.ID))
		if problem != nil {
			return got, problem
		}
		ctx, cancel := context.WithTimeout(ctx, awaitGiven)
		defer cancel()
		if !s.until(ctx, func(m accel.Machine) (serves bool) {
			x, serves = unit(m, def.Kind, x.ID)
			return serves && x.ServesClaim(claim)
		}) {
			return got, accel.Problemf(accel.SwitchFailed, "device %q has driver %q, and was not ready with it in time", x.ID,
				got.Bound)
		}
	}
	s.gate.open(s.machine)
	return x, nil
}

// awaitGiven is how long the agent may take to see a device with its other driver.
const awaitGiven = 20 * time.Second

// lend switches a device for whom claim stands. Ready returns when nobody else has it or is given it any more.
func (s *switches) lend(ctx context.Context, def *accel.Definition, x accel.Accelerator, claim, name string,
	ready func(context.Context) *accel.Problem,
) (accel.Accelerator, *accel.Problem) {
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
		Def: def, Device: x, Claim: claim, Name: name, Ready: ready, Known: func(id string) bool {
			return known(s.machine(), id)
		},
	})
	if problem == nil {
		s.Log.Info("device given out otherwise", "kind", def.Kind, "device", x.ID, "use", got.Switched.Use, "for",
			got.Switched.For())
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
		if !s.until(ctx, func(m accel.Machine) bool {
			for _, have := range m.Have {
				if slices.ContainsFunc(have.Accelerators, func(x accel.Accelerator) bool {
					return x.ID == id && x.WithheldBy(accel.BySwitch)
				}) {
					return true
				}
			}
			return false
		}) {
			return accel.Problemf(accel.SwitchFailed, "device %q was not withheld in time", id)
		}
		return nil
	}
}

// enrich says what is offered of devices that are set aside, and why devices could not be set aside or given back. The
// result is accs.
func (s *switches) enrich(def *accel.Definition, accs []accel.Accelerator) []accel.Accelerator {
	accs = accel.SetAside(def, accs)
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
	return again(ctx, s.loop, s.poked, s.pass)
}

// pass gives back what can be given back, and reports whether something could not.
func (s *switches) pass(ctx context.Context) (left bool) {
	all, err := s.Host.Devices().Switched()
	if err != nil {
		s.Log.Debug("devices in another use", "error", err) // the facts have it as a problem
	}
	problems := map[string]*accel.Problem{}
	for _, id := range sorted(all) {
		over := func(j accel.Switched) bool { return !dra.Prepared(s.Host, s.Config.StateDir, j.Kind, j.Claim) }
		if all[id].SetAside() {
			over = func(j accel.Switched) bool { return !staysAside(s.machine(), id, j) }
		}
		if !over(all[id]) {
			continue
		}
		if problem := s.held(ctx, id, all[id]); problem != nil {
			problems[id] = problem
			continue
		}
		if problem := driver.NewSwitches(s.driver).Return(ctx, id, over); problem != nil {
			problems[id] = problem
		}
		s.wake(true) // its kind may have to bind and prove it
	}
	for _, x := range dueAside(s.machine()) {
		if problem := s.setAside(ctx, x.def, x.device); problem != nil {
			problems[x.device.ID] = problem
		}
	}
	s.note(problems)
	return len(problems) > 0
}

// staysAside reports whether a device that was switched because it was set aside still is.
func staysAside(m accel.Machine, id string, j accel.Switched) bool {
	def := m.Want.Kinds[j.Kind]
	return def != nil && def.SetsAside(id)
}

// dueAside returns the devices that are to be set aside and still have their own driver.
func dueAside(m accel.Machine) (all []functionDevice) {
	for _, kind := range sorted(m.Have) {
		def := m.Want.Kinds[kind]
		for _, x := range m.Have[kind].Accelerators {
			if def != nil && m.Want.Kubernetes && x.Present() && !x.InOtherUse() && def.SetsAside(x.ID) {
				all = append(all, functionDevice{def, x})
			}
		}
	}
	return all
}

// setAside gives the driver for VFIO to a device that nobody has.
func (s *switches) setAside(ctx context.Context, def *accel.Definition, x accel.Accelerator) *accel.Problem {
	unused := func(ctx context.Context) *accel.Problem {
		if names := (repairs{s.Agent}).usersOf(ctx, def, x); len(names) > 0 {
			return accel.Problemf(accel.InUse, "it is set aside for vfio, and gets the driver for that when nobody has it; now %s",
				strings.Join(names, ", "))
		}
		return nil
	}
	if problem := unused(ctx); problem != nil {
		return problem
	}
	s.lends(x.ID, true)
	defer s.lends(x.ID, false)
	_, problem := s.lend(ctx, def, x, accel.AsideClaim(x.ID), "", func(ctx context.Context) *accel.Problem {
		if problem := s.awaitWithheld(x.ID)(ctx); problem != nil {
			return problem
		}
		return unused(ctx) // whoever was given it just before it was withheld is known by now
	})
	return problem
}

// held says who still has a device that is no longer set aside; nil if nobody has. Whoever has the device of a claim is
// known by the claim.
func (s *switches) held(ctx context.Context, id string, j accel.Switched) *accel.Problem {
	m := s.machine()
	def := m.Want.Kinds[j.Kind]
	if !j.SetAside() || def == nil {
		return nil
	}
	x := accel.Accelerator{ID: id}
	for _, y := range m.Have[j.Kind].Accelerators {
		if y.ID == id {
			x = y
		}
	}
	if names := s.users.podsOn(ctx, def, x); len(names) > 0 {
		return accel.Problemf(accel.NotGivenBack, "device %q is no longer set aside for vfio, and may still be had by %s",
			id, strings.Join(names, ", "))
	}
	return nil
}

func (s *switches) lends(id string, now bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lending[id] = now
}

// lent reports whether a device is set aside, or is being.
func (s *switches) lent(id string) bool {
	s.mu.Lock()
	lending := s.lending[id]
	s.mu.Unlock()
	j, err := s.Host.Devices().SwitchedOf(id)
	return lending || err == nil && j != nil && j.SetAside()
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
