package settings

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/ledger"
	"github.com/acceld/acceld/pace"
)

// Options of a [Keeper].
type Options struct {
	Host   *host.Host
	Ledger *ledger.Ledger
	Log    *slog.Logger
	// Follow returns the last snapshot, and a channel that is closed when there is another.
	Follow func() (m accel.Machine, replaced <-chan struct{})
	// Users names who has a device, and whoever has to be asked and does not answer.
	Users func(ctx context.Context, def *accel.Definition, a accel.Accelerator) []string
	// FunctionUsers names who has a virtual function of a device, or the device if it is divided into them, and whoever
	// has to be asked and does not answer.
	FunctionUsers func(ctx context.Context, def *accel.Definition, a accel.Accelerator) []string
	// Told returns what the probe program of a kind reports about the settings of a device. Known is false while it has
	// not reported; why says why it does not, if that is known.
	Told func(kind, device string) (all map[string]accel.ProbeSetting, known bool, why string)
	// Set asks the program to set something, and returns its answer.
	Set func(ctx context.Context, kind string, r accel.ProbeSet) accel.ProbeSet
	// Changed notifies the loop of news.
	Changed func()
	// Every is how often it is looked whether something else has changed a setting.
	Every time.Duration
	// Write writes a text to an attribute; nil is the host's.
	Write func(name, text string) error
}

const (
	// early is how long after the binding of its driver a device may lack an attribute, or a report, and is withheld.
	early = 30 * time.Second
	// slow is how long a device may take before people see that it does not answer.
	slow = 5 * time.Second
	// calm is how long a device must have been withheld before a setting is written that needs an idle device, so that
	// the kubelet knows about it; busy is how often it is looked whether it is idle.
	calm, busy = 3 * time.Second, 5 * time.Second
	// rest is how many times as long as a look has taken the next one is later: with many virtual functions it takes a
	// second to find out who has them.
	rest = 3
	// soonest is how soon a device is looked at again whose driver was bound only just now.
	soonest = 250 * time.Millisecond
	// leave is how long the end of the keeper waits for devices that do not answer.
	leave = 2 * time.Second
)

// again is when a setting is tried again that could not be written.
func again() pace.Backoff { return pace.Backoff{First: 5 * time.Second, Max: 10 * time.Minute} }

// Keeper keeps settings. It is safe for concurrent use.
type Keeper struct {
	o      Options
	book   book
	poked  chan struct{}
	looked chan struct{} // a look at a device has ended

	mu      sync.Mutex
	devices map[string]*device // by address
	unread  string             // why what is on record cannot be read
}

// device is what is known of the settings of one device.
type device struct {
	binding uint64
	since   time.Time // when this binding was first seen
	wish    string    // what was configured, and what was reported, at the last look
	begun   time.Time // when the look in progress began; zero if none is
	waiting time.Time // when it began to wait for the device; zero while it asks others who has it
	next    time.Time // when it is looked at again without news
	done    bool      // it was looked at in this binding
	held    time.Time // since when it is withheld for a setting that needs an idle device
	hold    *accel.Withheld
	have    []accel.SettingHave
	states  map[string]*state // by setting; only the look in progress uses them
}

// state is what is remembered of one setting.
type state struct {
	value    accel.SettingValue
	binding  uint64
	tried    Try
	drifts   []time.Time // the recent ones
	total    int         // since the agent started
	drifting bool
	stopped  bool
	said     string // the last message that was logged
}

// New returns a keeper that writes nothing until it runs.
func New(o Options) *Keeper {
	if o.Write == nil {
		o.Write = o.Host.WriteAttribute
	}
	return &Keeper{
		o: o, book: book{ledger: o.Ledger}, poked: make(chan struct{}, 1), looked: make(chan struct{}, 1),
		devices: map[string]*device{},
	}
}

// eligible reports whether something can be set on a device now.
func eligible(def *accel.Definition, a accel.Accelerator) bool {
	return a.Present() && def.Serves(a.Bound)
}

// pending is why a device is withheld that was not looked at yet.
func pending() *accel.Withheld {
	return &accel.Withheld{
		By: accel.BySettings, Reason: accel.SettingPending, Message: "what is configured about it is being set",
	}
}

// Enrich adds to the devices of a kind how far they are set as configured. A device whose settings were not tried yet
// in this binding of its driver is withheld. The result is accs.
func (k *Keeper) Enrich(def *accel.Definition, accs []accel.Accelerator) []accel.Accelerator {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range accs {
		a := &accs[i]
		if !eligible(def, *a) || !def.Sets() && k.devices[a.ID] == nil {
			continue
		}
		d := k.of(a.ID, now)
		a.Settings = slices.Clone(d.have)
		hold := d.hold
		if !d.done && def.Sets() && now.Sub(d.since) < early {
			hold = pending()
		}
		if d.stuck(now) {
			a.Settings = unanswered(def, d)
		}
		if hold == nil || hold.Reason != accel.FunctionsInUse || def.Partitions != nil {
			withhold(a, hold) // otherwise it is not divided into its functions, and only they are withheld
		}
	}
	return k.withFunctions(accs)
}

// stuck reports whether the look in progress waits for the device, and has for long. The keeper is locked.
func (d *device) stuck(now time.Time) bool {
	return !d.waiting.IsZero() && now.Sub(d.waiting) > slow
}

// unanswered is what people see of the settings of a device that does not answer.
func unanswered(def *accel.Definition, d *device) (all []accel.SettingHave) {
	for _, s := range def.AllSettings() {
		if s.Value != "" {
			all = append(all, accel.SettingHave{
				Name: s.Name, Want: string(s.Value), State: accel.SettingRefused,
				Message: "the device has not answered since " + d.waiting.Format(time.TimeOnly),
			})
		}
	}
	return all
}

// withhold withholds a device and its partitions, unless something else does.
func withhold(a *accel.Accelerator, why *accel.Withheld) {
	a.Withheld = cmp.Or(a.Withheld, why)
	for i := range a.Partitions {
		a.Partitions[i].Withheld = cmp.Or(a.Partitions[i].Withheld, why)
	}
}

// of returns what is known of a device in the present binding of its driver. The keeper is locked.
func (k *Keeper) of(id string, now time.Time) *device {
	d := k.devices[id]
	if d == nil {
		d = &device{states: map[string]*state{}}
		k.devices[id] = d
	}
	if b := Binding(k.o.Host, id); d.since.IsZero() || b != d.binding && d.begun.IsZero() {
		d.binding, d.since, d.done, d.hold, d.held, d.wish = b, now, false, nil, time.Time{}, ""
	}
	return d
}

// Run keeps settings until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		k.load()
		m, replaced := k.o.Follow()
		wait := time.NewTimer(k.pass(ctx, m))
		select {
		case <-ctx.Done():
			wait.Stop()
			k.leave()
			return nil
		case <-replaced:
		case <-k.poked:
		case <-k.looked:
		case <-wait.C:
		}
		wait.Stop()
	}
}

// load reads what is on record. Until it can be read, nothing is written.
func (k *Keeper) load() {
	bad, err := k.book.load()
	why := ""
	if err != nil {
		why = "what was there before acceld cannot be read: " + err.Error()
	}
	k.mu.Lock()
	said := k.unread == why
	k.unread = why
	k.mu.Unlock()
	if !said && why != "" {
		k.o.Log.Error("settings of devices are not written", "error", err)
	}
	for _, b := range bad {
		k.o.Log.Warn("the record of a setting cannot be read", "record", b)
	}
}

// leave waits a little for the looks in progress.
func (k *Keeper) leave() {
	late := time.NewTimer(leave)
	defer late.Stop()
	for k.inProgress() {
		select {
		case <-k.looked:
		case <-late.C:
			return // it hangs in the kernel: what it writes is on record
		}
	}
}

func (k *Keeper) inProgress() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.devices {
		if !d.begun.IsZero() {
			return true
		}
	}
	return false
}

// pass begins to look at the devices that are due, and returns when to pass again without news.
func (k *Keeper) pass(ctx context.Context, m accel.Machine) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	next := now.Add(max(k.o.Every, time.Second))
	for kind, have := range m.Have {
		def := m.Want.Kinds[kind]
		if def == nil || have.Driver.Upgrade != nil && have.Driver.Upgrade.Phase == accel.UpgradeReplacing {
			continue
		}
		for _, a := range have.Accelerators {
			if !eligible(def, a) || a.WithheldBy(accel.ByReset) {
				continue
			}
			if due := k.consider(ctx, def, a, now); due.Before(next) {
				next = due
			}
		}
	}
	return max(time.Until(next), 10*time.Millisecond)
}

// consider begins to look at a device if it is due, and returns when it is due next. The keeper is locked.
func (k *Keeper) consider(ctx context.Context, def *accel.Definition, a accel.Accelerator, now time.Time) time.Time {
	far := now.Add(time.Hour)
	d := k.devices[a.ID]
	if d == nil && !def.Sets() && len(k.book.about(def.Kind, a)) == 0 {
		return far
	}
	d = k.of(a.ID, now)
	switch wish := k.wish(def, a); {
	case d.binding == 0:
		return far
	case !d.begun.IsZero():
		return now.Add(slow) // people are to see that it does not answer
	case d.done && d.wish == wish && now.Before(d.next):
		return d.next
	default:
		d.wish, d.begun, d.waiting = wish, now, now
	}
	l := look{Keeper: k, def: def, a: a, device: d, binding: d.binding, early: now.Sub(d.since) < early, held: d.held}
	guard.Go(func() {
		defer k.end(a.ID, &l)
		l.run(ctx)
	})
	return now.Add(slow + time.Millisecond)
}

// wish is the same text as long as there is no news of what is to be set on a device, and of what its program says.
func (k *Keeper) wish(def *accel.Definition, a accel.Accelerator) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\x00%s\x00", k.unread, a.UUID+a.Serial)
	for _, s := range def.AllSettings() {
		fmt.Fprintf(&b, "%+v\x00", s)
	}
	if def.Probe != nil {
		all, known, why := k.o.Told(def.Kind, a.ID)
		fmt.Fprintf(&b, "%v %v %s", all, known, why)
	}
	return b.String()
}

// end takes over what a look has found.
func (k *Keeper) end(id string, l *look) {
	k.mu.Lock()
	d := k.devices[id]
	now := time.Now()
	late := now.Sub(d.begun) > slow
	news := late || !d.done || !reflect.DeepEqual(d.hold, l.hold) || !slices.Equal(d.have, l.have)
	d.next = now.Add(k.o.Every)
	if !l.next.IsZero() && l.next.Before(d.next) {
		d.next = l.next
	}
	if rested := now.Add(rest * now.Sub(d.begun)); d.next.Before(rested) {
		d.next = rested
	}
	d.begun, d.waiting = time.Time{}, time.Time{}
	d.done, d.have, d.hold = true, l.have, l.hold
	switch {
	case l.hold == nil:
		d.held = time.Time{}
	case d.held.IsZero():
		d.held = now
	}
	if len(d.have) == 0 && !l.def.Sets() && len(k.book.about(l.def.Kind, l.a)) == 0 {
		delete(k.devices, id) // nothing is set on it any more
	}
	k.mu.Unlock()
	select {
	case k.looked <- struct{}{}:
	default:
	}
	if news {
		k.o.Changed()
	}
}
