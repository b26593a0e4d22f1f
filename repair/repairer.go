package repair

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/pace"
)

// Options of a [Repairer].
type Options struct {
	Log *slog.Logger
	// Follow returns the last snapshot, and a channel that is closed when there is another.
	Follow func() (m accel.Machine, replaced <-chan struct{})
	// Users names who has a device, and whoever has to be asked and does not answer.
	Users func(ctx context.Context, def *accel.Definition, a accel.Accelerator) []string
	// Evictor returns what asks the cluster to evict the pods that have a device; it may be called several times.
	Evictor func(def *accel.Definition, a accel.Accelerator) func(context.Context) *accel.Problem
	// Against returns what forbids the reset of a device, whoever has it.
	Against func(def *accel.Definition, a accel.Accelerator) *accel.Problem
	// Attempts returns how often a device was reset since a moment. Known is false while that is not known.
	Attempts func(kind string, a accel.Accelerator, since time.Time) (times int, known bool)
	// Attempt writes down that a device is about to be reset, and why. Over is called when the reset has ended.
	Attempt func(kind string, a accel.Accelerator, why string) (over func(), problem *accel.Problem)
	// Reset resets a device that nobody has, and lets it pass its self-test.
	Reset func(ctx context.Context, def *accel.Definition, a accel.Accelerator) *accel.Problem
	// Changed notifies the loop of news.
	Changed func()
}

// Repairer resets devices. It is safe for concurrent use.
type Repairer struct {
	o Options

	mu      sync.Mutex
	devices map[string]accel.RepairHave // those that need a reset, by address
	// refused are the devices whose reset was refused or failed.
	refused map[string]*refusal

	// ended is when the last reset of a device ended. Only Run uses it.
	ended map[string]time.Time
	// evictors are for the devices whose pods are evicted, by address. Only Run uses them.
	evictors map[string]func(context.Context) *accel.Problem
}

// refusal is why a device was not reset, and when it is tried again.
type refusal struct {
	problem *accel.Problem
	times   int
	retry   time.Time
}

// look is how soon devices that wait are looked at again: that somebody closes one is no event.
const look = 10 * time.Second

// again is when a reset is tried again that was refused, or has failed.
func again() pace.Backoff { return pace.Backoff{First: 10 * time.Second, Max: 10 * time.Minute} }

// New returns a repairer that does nothing until it runs.
func New(o Options) *Repairer {
	return &Repairer{
		o: o, devices: map[string]accel.RepairHave{}, refused: map[string]*refusal{}, ended: map[string]time.Time{},
		evictors: map[string]func(context.Context) *accel.Problem{},
	}
}

// Enrich adds to the devices of a kind what is done about them, and withholds those that were reset a short time ago.
// The result is accs.
func (r *Repairer) Enrich(def *accel.Definition, accs []accel.Accelerator) []accel.Accelerator {
	if def.Repair == nil {
		return accs
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range accs {
		if have, ok := r.devices[accs[i].ID]; ok {
			accs[i].Repair = &have
		}
		if accs[i].Withheld == nil && r.watches(def, accs[i]) {
			accs[i].Withheld = &accel.Withheld{
				By: accel.ByRepair, Reason: accel.UnderObservation,
				Message: "it is offered " + def.Repair.Watch + " after its reset began, if it stays healthy",
			}
		}
	}
	return accs
}

// watches reports whether the device was reset a short time ago. Nothing is remembered of that but the record of its
// resets: it outlives the agent.
func (r *Repairer) watches(def *accel.Definition, a accel.Accelerator) bool {
	d := def.Repair.Watches()
	if d == 0 {
		return false
	}
	resets, known := r.o.Attempts(def.Kind, a, time.Now().Add(-d))
	return known && resets > 0
}

// Run repairs devices until ctx ends.
func (r *Repairer) Run(ctx context.Context) error {
	for {
		m, replaced := r.o.Follow()
		var soon <-chan time.Time
		if r.pass(ctx, m) {
			soon = time.After(look)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-replaced:
		case <-soon:
		}
	}
}

// pass looks at all devices and resets at most one. It reports whether it has to look again without news.
func (r *Repairer) pass(ctx context.Context, m accel.Machine) (more bool) {
	found := map[string]accel.RepairHave{}
	var next *Case
	for _, kind := range slices.Sorted(maps.Keys(m.Want.Kinds)) {
		for _, c := range cases(m.Want.Kinds[kind], m.Have[kind]) {
			c.Unknown = m.Want.PoliciesUnknown
			c.Hindrance, c.Begun = hindrance(m.Facts, c.Def), r.evictors[c.Device.ID] != nil
			if m.Taken.Before(r.ended[c.Device.ID]) { // what was seen before a reset says nothing after it
				found[c.Device.ID], more = r.shown(c.Device.ID), true
				continue
			}
			c, known := r.complete(ctx, c)
			if !known {
				more = true
				continue
			}
			decided := r.decide(ctx, c)
			switch {
			case decided.State != accel.RepairRuns:
				more = more || decided.State == accel.RepairWaits
			case next == nil:
				next, more = &c, true
			default:
				decided.State, decided.Message = accel.RepairWaits, "until another device has been reset"
			}
			found[c.Device.ID] = decided
		}
	}
	r.show(found)
	if next != nil {
		r.reset(ctx, next.Def, next.Device)
		r.ended[next.Device.ID] = time.Now()
	}
	return more
}

// cases returns the devices of a kind that need a reset.
func cases(def *accel.Definition, have accel.Have) []Case {
	var all []Case
	for _, a := range have.Accelerators {
		if def.NeedsRepair(a) {
			all = append(all, Case{
				Def: def, Device: a, Serves: have.Driver.Serves && have.Driver.Upgrade == nil,
				Present: accel.CountPresent(have.Accelerators), Allowed: have.RepairAllowed,
			})
		}
	}
	for i := range all {
		all[i].Ill = len(all)
	}
	return all
}

// decide returns what to do about a device, and asks for evictions.
func (r *Repairer) decide(ctx context.Context, c Case) accel.RepairHave {
	decided := Decide(c)
	if problem := r.evict(ctx, c, decided); problem != nil {
		decided.Message += "; " + problem.Message
	}
	decided.Evicts = decided.State == accel.RepairWaits && len(c.Users) > 0 && r.evictors[c.Device.ID] != nil
	return decided
}

// hindrance says why somebody else's work on the node keeps repairs from beginning; empty if nothing does.
func hindrance(f accel.Facts, def *accel.Definition) string {
	if f.MaintenanceUnknown {
		return "it is not known yet who does"
	}
	if m := accel.Hinders(f.Maintenance, accel.RepairWork, def.IgnoreConditions); m != nil {
		return m.String()
	}
	return ""
}

// complete adds to a case what has to be asked for. Known is false if it is not known how often it was reset.
func (r *Repairer) complete(ctx context.Context, c Case) (_ Case, known bool) {
	a := c.Device
	_, window := c.Def.Repair.Times()
	c.Attempts, known = r.o.Attempts(c.Def.Kind, a, time.Now().Add(-window))
	if refused := r.refusal(a.ID); refused != nil {
		c.Refused = refused.problem
	}
	c.Users, c.Against = r.o.Users(ctx, c.Def, a), r.o.Against(c.Def, a)
	return c, known
}

// evict has the pods evicted that keep a device from being reset, if its definition says so.
func (r *Repairer) evict(ctx context.Context, c Case, decided accel.RepairHave) *accel.Problem {
	id := c.Device.ID
	if decided.State != accel.RepairWaits || len(c.Users) == 0 || !c.evicts() || c.Unknown ||
		c.Hindrance != "" && !c.Begun ||
		c.Def.Repair.By != "" && !(decided.Asks && c.Allowed) {
		return nil
	}
	if r.evictors[id] == nil {
		r.evictors[id] = r.o.Evictor(c.Def, c.Device)
	}
	return r.evictors[id](ctx)
}

// refusal returns why a device was not reset, unless it is to be tried again now.
func (r *Repairer) refusal(id string) *refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x := r.refused[id]; x != nil && x.retry.After(time.Now()) {
		return x
	}
	return nil
}

// shown is what was last done about a device.
func (r *Repairer) shown(id string) accel.RepairHave {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.devices[id]
}

// show takes over what is done about the devices, and notifies the loop if that has changed.
func (r *Repairer) show(found map[string]accel.RepairHave) {
	r.mu.Lock()
	defer r.mu.Unlock()
	same := len(found) == len(r.devices)
	for id, have := range found {
		same = same && r.devices[id] == have
		if r.devices[id] != have && have.State == accel.RepairGivenUp {
			r.o.Log.Error("a device is not repaired", "device", id, "message", have.Message)
		}
		if have.Would && !r.devices[id].Would {
			r.o.Log.Info("a device would be reset, if this were no dry run", "device", id, "attempts", have.Attempts)
		}
	}
	maps.DeleteFunc(r.refused, func(id string, _ *refusal) bool { _, ill := found[id]; return !ill })
	maps.DeleteFunc(r.evictors, func(id string, _ func(context.Context) *accel.Problem) bool {
		_, ill := found[id]
		return !ill
	})
	if same {
		return
	}
	r.devices = map[string]accel.RepairHave{}
	for id, have := range found {
		r.devices[id] = have
	}
	r.o.Changed()
}

// reset resets a device.
func (r *Repairer) reset(ctx context.Context, def *accel.Definition, a accel.Accelerator) {
	why := strings.TrimSpace(string(a.Health.Reason) + " " + a.Health.Message)
	begin := time.Now()
	over, problem := r.o.Attempt(def.Kind, a, why)
	defer over()
	if problem == nil {
		r.o.Log.Warn("a device is reset", "kind", def.Kind, "device", a.ID, "why", why)
		problem = r.o.Reset(ctx, def, a)
	}
	if problem == nil {
		r.o.Log.Info("device reset and proven", "kind", def.Kind, "device", a.ID,
			"took", time.Since(begin).Round(time.Millisecond))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x := cmp.Or(r.refused[a.ID], &refusal{})
	r.refused[a.ID] = &refusal{problem, x.times + 1, time.Now().Add(again().After(x.times + 1))}
	r.o.Log.Error("a device was not reset; it is tried again", "device", a.ID, "reason", problem.Reason, "problem",
		problem.Message)
}
