package repair

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
)

const kind = "a"

func definition(r accel.Repair) *accel.Definition { return &accel.Definition{Kind: kind, Repair: &r} }

// ill is a device that needs a reset.
func ill(id string) accel.Accelerator {
	return accel.Accelerator{ID: id, Health: accel.Health{
		State: accel.Unhealthy, Reason: accel.DeviceFault, Action: accel.ActionResetDevice, Message: "79",
	}}
}

func TestDecide(t *testing.T) {
	idle := definition(accel.Repair{Reset: accel.RepairIdle, Attempts: 2})
	dry := definition(accel.Repair{Reset: accel.RepairDryRun})
	reset := ill("x")
	reset.Withheld = &accel.Withheld{By: accel.ByReset}
	for name, c := range map[string]struct {
		Case
		state accel.RepairState
		text  string
	}{
		"idle": {
			Case{Attempts: 1, Ill: 1, Present: 1}, accel.RepairRuns, "it is being reset; reset once before",
		},
		"in use": {
			Case{Users: []string{"pod a/b"}, Ill: 1, Present: 2},
			accel.RepairWaits,
			"waits until nobody has it: pod a/b",
		},
		"no driver":   {Case{Ill: 1, Present: 1}, accel.RepairWaits, "waits until the driver works"},
		"by somebody": {Case{Device: reset, Ill: 1, Present: 1}, accel.RepairWaits, "waits until somebody else has reset it"},
		"too often": {
			Case{Attempts: 2, Users: []string{"x"}},
			accel.RepairGivenUp,
			"given up: it was reset 2 times within 24h0m0s, or that failed; reset 2 times before",
		},
		"forbidden":  {Case{Against: accel.Problemf(accel.CannotReset, "no")}, accel.RepairGivenUp, "given up: no"},
		"one of two": {Case{Ill: 1, Present: 2}, accel.RepairRuns, ""},
		"both": {
			Case{Ill: 2, Present: 2},
			accel.RepairGivenUp,
			"given up: 2 of 2 devices need a reset at once: look for what they have in common",
		},
		"half of them": {Case{Ill: 4, Present: 8}, accel.RepairRuns, ""},
		"most of them": {Case{Ill: 5, Present: 8}, accel.RepairGivenUp, ""},
		"dry run": {
			Case{Def: dry, Ill: 1, Present: 1},
			accel.RepairWaits,
			"waits for a person: with `repair: {reset: idle}` it would be reset now",
		},
		"dry run, not idle": {Case{Def: dry, Users: []string{"x"}}, accel.RepairWaits, "waits until nobody has it: x"},
	} {
		t.Run(name, func(t *testing.T) {
			c.Serves = name != "no driver"
			if c.Def == nil {
				c.Def = idle
			}
			if c.Device.ID == "" {
				c.Device = ill("x")
			}
			got := Decide(c.Case)
			if got.Would != (name == "dry run") {
				t.Errorf("would be reset: %t", got.Would)
			}
			if got.State != c.state || c.text != "" && got.String() != c.text {
				t.Errorf("%s: %s", got.State, got)
			}
		})
	}
}

// machine is one whose devices a repairer repairs.
type machine struct {
	mu       sync.Mutex
	m        accel.Machine
	replaced chan struct{}
	users    map[string][]string
	resets   []string
	attempts int
	refuse   *accel.Problem
	unread   bool
	evicted  []string
	during   func() // while a device is reset
}

func newMachine(r accel.Repair, all ...accel.Accelerator) *machine {
	x := &machine{replaced: make(chan struct{}), users: map[string][]string{}}
	x.m.Want.Kinds = map[string]*accel.Definition{kind: definition(r)}
	x.m.Have = map[string]accel.Have{kind: {Accelerators: all, Driver: accel.DriverHave{Serves: true}}}
	return x
}

// set changes the machine.
func (x *machine) set(do func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	do()
	close(x.replaced)
	x.replaced = make(chan struct{})
}

// heal makes a device healthy.
func (x *machine) heal(id string) {
	x.set(func() {
		all := append([]accel.Accelerator{}, x.m.Have[kind].Accelerators...)
		for i := range all {
			if all[i].ID == id {
				all[i].Health = accel.Health{State: accel.Healthy}
			}
		}
		x.m.Have = map[string]accel.Have{kind: {Accelerators: all, Driver: accel.DriverHave{Serves: true}}}
	})
}

func (x *machine) repairer() *Repairer {
	return New(Options{
		Log: slog.New(slog.DiscardHandler),
		Follow: func() (accel.Machine, <-chan struct{}) {
			x.mu.Lock()
			defer x.mu.Unlock()
			m := x.m
			m.Taken = time.Now()
			return m, x.replaced
		},
		Users: func(_ context.Context, _ *accel.Definition, a accel.Accelerator) []string {
			x.mu.Lock()
			defer x.mu.Unlock()
			return x.users[a.ID]
		},
		Evictor: func(_ *accel.Definition, a accel.Accelerator) func(context.Context) *accel.Problem {
			x.evicted = append(x.evicted, a.ID)
			return func(context.Context) *accel.Problem {
				x.evicted = append(x.evicted, "pods of "+a.ID)
				return x.refuse
			}
		},
		Against:  func(*accel.Definition, accel.Accelerator) *accel.Problem { return nil },
		Attempts: func(string, accel.Accelerator, time.Time) (int, bool) { return x.attempts, !x.unread },
		Attempt: func(_ string, _ accel.Accelerator, why string) (func(), *accel.Problem) {
			if why != "DeviceFault 79" {
				return func() {}, accel.ProblemOf(errors.New(why), "why")
			}
			x.attempts++
			return func() {}, nil
		},
		Reset: func(_ context.Context, _ *accel.Definition, a accel.Accelerator) *accel.Problem {
			x.resets = append(x.resets, a.ID)
			if x.during != nil {
				x.during()
			}
			if x.refuse == nil {
				x.heal(a.ID)
			}
			return x.refuse
		},
		Changed: func() {},
	})
}

// states returns what is done about the devices.
func (x *machine) states(r *Repairer) (all []string) {
	m, _ := r.o.Follow()
	for _, a := range r.Enrich(m.Want.Kinds[kind], append([]accel.Accelerator{}, m.Have[kind].Accelerators...)) {
		text := a.ID
		if a.Repair != nil {
			text += " " + a.Repair.String()
		}
		all = append(all, text)
	}
	return all
}

// TestRepairer: devices that nobody has are reset one after the other, and what is done is shown meanwhile.
func TestRepairer(t *testing.T) {
	x := newMachine(accel.Repair{Reset: accel.RepairIdle}, ill("1"), ill("2"), ill("3"), ill("4"), ill("5"), ill("6"))
	r := x.repairer()
	pass := func(want bool, states string) {
		t.Helper()
		m, _ := r.o.Follow()
		if more := r.pass(t.Context(), m); more != want || strings.Join(x.states(r), " | ") != states {
			t.Errorf("more %t: %q", more, strings.Join(x.states(r), " | "))
		}
	}
	most := "given up: 6 of 6 devices need a reset at once: look for what they have in common"
	pass(false, "1 "+most+" | 2 "+most+" | 3 "+most+" | 4 "+most+" | 5 "+most+" | 6 "+most)
	for _, id := range []string{"3", "4", "5", "6"} {
		x.heal(id)
	}
	x.users["1"] = []string{"pod a/b"}
	x.during = func() {
		if got := x.states(r); got[1] != "2 it is being reset" {
			t.Errorf("%q", got)
		}
	}
	pass(true, "1 waits until nobody has it: pod a/b | 2 it is being reset | 3 | 4 | 5 | 6")
	pass(true, "1 waits until nobody has it: pod a/b; reset once before | 2 | 3 | 4 | 5 | 6")
	x.during, x.users["1"] = nil, nil
	x.refuse = accel.Problemf(accel.ResetFailed, "it hangs")
	pass(true, "1 it is being reset; reset once before | 2 | 3 | 4 | 5 | 6")
	pass(true, "1 waits to be tried again: it hangs; reset 2 times before | 2 | 3 | 4 | 5 | 6")
	x.attempts = 3
	pass(false, "1 given up: it was reset 3 times within 24h0m0s, or that failed; reset 3 times before | 2 | 3 | 4 | 5 | 6")
	if got := strings.Join(x.resets, " "); got != "2 1" || len(x.evicted) > 0 {
		t.Errorf("resets of %s, evictions %q", got, x.evicted)
	}
}

// TestEvict: pods are evicted from a device that nobody else gets meanwhile.
func TestEvict(t *testing.T) {
	weak := ill("2")
	weak.Health.State = accel.Degraded
	x := newMachine(accel.Repair{Reset: accel.RepairEvict}, ill("1"), weak, accel.Accelerator{ID: "3"},
		accel.Accelerator{ID: "4"})
	x.users["1"], x.users["2"] = []string{"pod a/b"}, []string{"pod a/c"}
	r := x.repairer()
	pass := func(states string) {
		t.Helper()
		m, _ := r.o.Follow()
		r.pass(t.Context(), m)
		if got := strings.Join(x.states(r), " | "); got != states {
			t.Errorf("%q", got)
		}
	}
	x.refuse = accel.Problemf(accel.EvictionRefused, "not now")
	pass("1 waits until nobody has it: pod a/b; not now | 2 waits until nobody has it: pod a/c | 3 | 4")
	x.refuse = nil
	pass("1 waits until nobody has it: pod a/b | 2 waits until nobody has it: pod a/c | 3 | 4")
	x.users["1"] = nil
	pass("1 it is being reset | 2 waits until nobody has it: pod a/c | 3 | 4")
	pass("1 | 2 waits until nobody has it: pod a/c; reset once before | 3 | 4")
	if got := strings.Join(x.evicted, ", "); got != "1, pods of 1, pods of 1" || len(r.evictors) > 0 {
		t.Errorf("evicted %s", got)
	}
}

// TestBudget: with a policy that limits repairs, nothing is evicted and nothing reset before it allows it, and no node
// keeps others waiting for a device that it cannot reset now.
func TestBudget(t *testing.T) {
	x := newMachine(accel.Repair{Reset: accel.RepairEvict, By: "fleet"}, ill("1"), ill("2"), accel.Accelerator{ID: "3"},
		accel.Accelerator{ID: "4"})
	x.users["1"] = []string{"pod a/b"}
	r := x.repairer()
	allow := func(yes bool) {
		x.set(func() {
			have := x.m.Have[kind]
			have.RepairAllowed = yes
			x.m.Have = map[string]accel.Have{kind: have}
		})
	}
	pass := func(states string, asks ...string) {
		t.Helper()
		m, _ := r.o.Follow()
		r.pass(t.Context(), m)
		got := strings.Join(x.states(r), " | ")
		var asking []string
		for _, a := range r.Enrich(m.Want.Kinds[kind], append([]accel.Accelerator{}, m.Have[kind].Accelerators...)) {
			if a.Repair != nil && a.Repair.Asks {
				asking = append(asking, a.ID)
			}
		}
		if got != states || strings.Join(asking, " ") != strings.Join(asks, " ") {
			t.Errorf("%q, asks for %q", got, asking)
		}
	}
	x.m.Want.PoliciesUnknown = true
	pass("1 waits until the policies of the cluster are known | 2 waits until the policies of the cluster are known | 3 | 4")
	x.m.Want.PoliciesUnknown = false
	until := `waits until the policy "fleet" lets this node begin`
	pass("1 "+until+" | 2 "+until+" | 3 | 4", "1", "2")
	if len(x.evicted) > 0 || len(x.resets) > 0 {
		t.Errorf("not allowed: evicted %q, reset %q", x.evicted, x.resets)
	}
	allow(true)
	x.refuse = accel.Problemf(accel.ResetFailed, "it hangs")
	pass("1 waits until nobody has it: pod a/b; it hangs | 2 it is being reset | 3 | 4", "1", "2")
	pass("1 waits until nobody has it: pod a/b; it hangs; reset once before | 2 waits to be tried again: it hangs; reset once before | 3 | 4", "1")
	allow(false)
	pass("1 "+until+"; reset once before | 2 waits to be tried again: it hangs; reset once before | 3 | 4", "1")
	if got := strings.Join(x.evicted, ", "); got != "1, pods of 1, pods of 1" {
		t.Errorf("evicted %s", got)
	}
	x.m.Want.Kinds[kind].Repair.Reset = accel.RepairIdle
	pass("1 waits until nobody has it: pod a/b; reset once before | 2 waits to be tried again: it hangs; reset once before | 3 | 4")
	r.refused = map[string]*refusal{}
	pass("1 waits until nobody has it: pod a/b; reset once before | 2 "+until+"; reset once before | 3 | 4", "2")
}

// TestOldSnapshot: a snapshot from before a reset does not make the device ill again.
func TestOldSnapshot(t *testing.T) {
	x := newMachine(accel.Repair{Reset: accel.RepairIdle}, ill("1"))
	r := x.repairer()
	x.refuse = accel.Problemf(accel.ResetFailed, "no")
	m, _ := r.o.Follow()
	r.pass(t.Context(), m)
	if more := r.pass(t.Context(), m); !more || len(x.resets) != 1 || r.refusal("1") == nil {
		t.Errorf("more %t, resets %q, devices %v", more, x.resets, r.devices)
	}
}

// TestRepairerKnowsNothing: nothing is reset before it is known how often that was done.
func TestRepairerKnowsNothing(t *testing.T) {
	x := newMachine(accel.Repair{Reset: accel.RepairIdle}, ill("1"))
	x.unread = true
	r := x.repairer()
	m, _ := r.o.Follow()
	if more := r.pass(t.Context(), m); !more || len(x.resets) > 0 {
		t.Errorf("more %t, resets %q", more, x.resets)
	}
}

// TestRun: a device is repaired when it becomes ill, without a look in between.
func TestRun(t *testing.T) {
	x := newMachine(accel.Repair{Reset: accel.RepairIdle}, accel.Accelerator{ID: "1"})
	done := make(chan struct{})
	x.during = func() { close(done) }
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- x.repairer().Run(ctx) }()
	x.set(func() {
		x.m.Have = map[string]accel.Have{kind: {
			Accelerators: []accel.Accelerator{ill("1")}, Driver: accel.DriverHave{Serves: true},
		}}
	})
	<-done
	cancel()
	if err := <-over; err != nil {
		t.Fatal(err)
	}
}

// TestWatch: a device that was reset a short time ago is offered to nobody, also by the next agent.
func TestWatch(t *testing.T) {
	well := accel.Accelerator{ID: "1", Health: accel.Health{State: accel.Healthy}}
	asked := time.Duration(0)
	for name, c := range map[string]struct {
		watch    string
		resets   int
		unread   bool
		before   *accel.Withheld
		withheld accel.Withholder
	}{
		"reset":          {watch: "5m", resets: 1, withheld: accel.ByRepair},
		"not reset":      {watch: "5m"},
		"not wanted":     {resets: 1},
		"not known":      {watch: "5m", resets: 1, unread: true},
		"withheld twice": {watch: "5m", resets: 1, before: &accel.Withheld{By: accel.ByHandover}, withheld: accel.ByHandover},
	} {
		r := New(Options{Attempts: func(_ string, _ accel.Accelerator, since time.Time) (int, bool) {
			asked = time.Since(since).Round(time.Minute)
			return c.resets, !c.unread
		}})
		a := well
		a.Withheld = c.before
		def := definition(accel.Repair{Reset: accel.RepairIdle, Watch: c.watch})
		got := r.Enrich(def, []accel.Accelerator{a})[0].Withheld
		if (got == nil) != (c.withheld == "") || got != nil && got.By != c.withheld {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if asked != 5*time.Minute {
		t.Errorf("asked for %s", asked)
	}
}
