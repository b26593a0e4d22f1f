package loop

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// world is a machine in memory: probes read it, effects change it.
type world struct {
	mu       sync.Mutex
	pci      []accel.PCIDevice
	listed   []accel.PCIDevice // as facts last returned them
	loaded   bool
	sick     map[string]string // device to health message
	model    string            // an attribute of every device
	seen     string            // model as it was last read
	unknown  bool              // the probe cannot tell the devices' health
	awaited  bool              // the probe has not said yet how the devices are divided
	reset    bool              // the devices are being reset
	lost     string            // the device that its own reading finds gone
	parts    []string          // names of the halves of the first device
	spec     []string          // devices in the CDI spec
	specOf   string            // its kind
	unread   *accel.Problem    // why the container runtime does not read it
	refuse   *accel.Problem    // answer of the next driver steps
	unbound  bool              // the driver that is loaded refuses a device
	stays    *accel.Problem    // answer of withdrawals
	tried    int
	proofs   []string          // devices proven, in order
	skips    map[string]string // by device, why its check does not take place
	faulty   string            // the device that does not pass its self-test
	testing  time.Duration     // how long the self-tests take
	early    bool              // the plugin starts early
	hangs    bool              // the first collection does not return before hang is closed
	hang     chan struct{}     // created in the bubble
	mute     error             // error of one of two metrics
	offered  []accel.Accelerator
	fewest   int           // least number of devices offered at a time since it was set
	lag      time.Duration // until the kubelet takes over what it is offered
	counted  int           // devices that it gives to pods
	kubelet  bool
	labelled bool
	states   []string
	changed  func()
	upgrades
	redefined *accel.Definition // of the running plugin
	unchecked bool              // the definition has no check
	undriven  bool              // without the driver the devices are not well
	bound     string            // the driver of every device
	log       slog.Handler      // nil for none
	work      []accel.Progress
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) facts() accel.Facts {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := accel.Facts{PCI: slices.Clone(w.pci), Kubelet: accel.Kubelet{Present: w.kubelet}}
	if w.loaded {
		f.Modules = []accel.LoadedModule{{Name: "m", BuildID: w.version()}}
	}
	w.listed = f.PCI
	return f
}

func (w *world) read(*accel.Definition, map[string]bool) { w.set(func() { w.seen = w.model }) }

func (w *world) accelerators(def *accel.Definition, lost map[string]bool) []accel.Accelerator {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []accel.Accelerator
	for _, d := range w.listed {
		if def.Recognises(d) && !lost[d.Address] {
			a := accel.Accelerator{ID: d.Address, Model: w.seen, Health: accel.Health{State: accel.Healthy}}
			a.Bound = w.bound
			if w.undriven && !w.loaded {
				a.Health = accel.Health{State: accel.Unhealthy, Reason: accel.NodeMissing}
			}
			if m := w.sick[d.Address]; m != "" {
				a.Health = accel.Health{State: accel.Unhealthy, Reason: accel.DeviceUnhealthy, Message: m}
			}
			if w.unknown {
				a.Health = accel.Health{}
			}
			if w.awaited {
				a.Withheld = &accel.Withheld{By: accel.ByPartitioning, Reason: accel.ProbeUnanswered}
			}
			if d.Address == w.lost {
				a.Health = accel.Health{State: accel.Gone, Reason: accel.DeviceGone}
			}
			for _, name := range w.parts {
				if len(out) == 0 {
					a.Partitions = append(a.Partitions, accel.Accelerator{
						ID:     accel.PartitionID(a.ID, "half", name),
						Parent: a.ID, Profile: "half",
					})
				}
			}
			out = append(out, a)
		}
	}
	return out
}

func (w *world) resets(string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reset
}

func (w *world) driver(_ *accel.Definition, f accel.Facts, _ []accel.Accelerator) (accel.DriverHave, *accel.Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	have := accel.DriverHave{Serves: len(f.Modules) == 1 && !w.unbound, Modules: f.Modules}
	if w.wanted != "" && len(f.Modules) == 1 && w.wanted != f.Modules[0].BuildID {
		have.Upgrade = &accel.Upgrade{
			To: accel.DriverRef{Version: w.wanted}, Wish: w.wanted,
			Phase: accel.UpgradePending,
		}
	}
	return have, nil
}

func (w *world) ensure(context.Context, *accel.Definition, accel.Facts, []accel.Accelerator) (accel.DriverHave,
	*accel.Problem,
) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tried++
	if w.refuse != nil {
		return accel.DriverHave{}, w.refuse
	}
	w.loaded = true
	return accel.DriverHave{Serves: true, Source: "store"}, nil
}

func (w *world) prove(_ context.Context, _ *accel.Definition, accs []accel.Accelerator) (accel.Proof, *accel.Problem) {
	time.Sleep(w.testing)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range accs {
		if a.ID == w.faulty {
			return accel.Proof{}, accel.Problemf(accel.CheckFailed, "it gave %q", "0")
		}
	}
	proof := accel.Proof{Skipped: map[string]string{}}
	for _, a := range accs {
		w.proofs = append(w.proofs, a.ID)
		if why := w.skips[a.ID]; why != "" {
			proof.Skipped[a.ID] = why
		} else {
			proof.Sentence = "computed"
		}
	}
	return proof, nil
}

func (w *world) runtime(def *accel.Definition, accs []accel.Accelerator, _ accel.Want) (accel.RuntimeHave,
	*accel.Problem,
) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wanted := ids(accel.Flat(accs))
	have := accel.RuntimeHave{Applied: slices.Equal(w.spec, wanted), Devices: wanted, NotHonored: w.unread}
	if len(wanted) > 0 || len(w.spec) > 0 && w.specOf == def.Kind {
		have.Spec = "/var/run/cdi/k-x.json"
	}
	if !have.Applied {
		have.AppliedTo = w.spec
	}
	return have, w.unread
}

func (w *world) apply(def *accel.Definition, accs []accel.Accelerator, want accel.Want) (accel.RuntimeHave,
	*accel.Problem,
) {
	w.set(func() { w.spec, w.specOf = ids(accel.Flat(accs)), def.Kind })
	return w.runtime(def, accs, want)
}

func (w *world) withdraw(*accel.Definition) (problem *accel.Problem) {
	w.set(func() {
		if problem = w.stays; problem == nil {
			w.spec = nil
		}
	})
	return problem
}

func (w *world) collect(*accel.Definition, accel.Accelerator) (map[string]float64, error) {
	w.mu.Lock()
	hang, mute := w.hang, w.mute
	w.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if mute != nil {
		return map[string]float64{"accelerator_temperature_celsius": 41}, mute
	}
	return map[string]float64{"accelerator_temperature_celsius": 40, "accelerator_power_usage_watts": 75}, nil
}

// offers returns how many devices the plugin may give out after its last update.
func (w *world) offers() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return accel.CountOffered(w.offered)
}

// got returns what the plugin was given last; nil if nothing.
func (w *world) got() []accel.Accelerator {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.offered
}

// Update, State and Problem make the world a device plugin. Its kubelet agrees with it at once, or after lag.
func (w *world) Update(accs []accel.Accelerator) {
	w.mu.Lock()
	usable := accel.CountOffered(accs)
	news, lag := usable != accel.CountOffered(w.offered), w.lag
	w.offered, w.fewest = accs, min(w.fewest, usable)
	if lag == 0 {
		w.counted = usable
	}
	w.mu.Unlock()
	switch {
	case news && lag > 0:
		time.AfterFunc(lag, func() {
			w.set(func() { w.counted = usable })
			w.changed()
		})
	case news:
		w.changed()
	}
}

func (w *world) State() accel.PluginHave {
	w.mu.Lock()
	defer w.mu.Unlock()
	return accel.PluginHave{Registered: true, Allocatable: accel.Known(w.counted)}
}

func (w *world) Problem() *accel.Problem { return nil }

func (w *world) Observe(_ string, from, to accel.State, _ time.Duration) {
	w.set(func() { w.states = append(w.states, string(from)+">"+string(to)) })
}

func (w *world) ObserveFailure(string, accel.Step, accel.Reason) {}

func ids(accs []accel.Accelerator) []string {
	var out []string
	for _, a := range accs {
		if a.Present() {
			out = append(out, a.ID)
		}
	}
	return out
}

func device(address string) accel.PCIDevice {
	return accel.PCIDevice{Address: address, Vendor: "f00d", Device: "0001"}
}

// probes read w.
func (w *world) probes() Probes {
	return Probes{
		Facts: w.facts, Read: w.read, Accelerators: w.accelerators, Collect: w.collect, Driver: w.driver,
		Runtime: w.runtime, Reset: w.resets, Program: func(string) *accel.ProbeHave { return nil },
		Enrich: func(_ *accel.Definition, accs []accel.Accelerator) []accel.Accelerator { return accs },
		Judge: func(_ *accel.Definition, _ []accel.PCIDevice, accs []accel.Accelerator) []accel.Accelerator {
			return accs
		},
	}
}

// effects change w.
func (w *world) effects() Effects {
	return Effects{
		Ensure: w.ensure, Prove: w.prove, Apply: w.apply,
		Prepare: w.prepare, Upgrade: w.upgrade, Holders: w.look, AwaitHolder: w.await,
		Evictor:  func() func(context.Context, func() []accel.Holder) *accel.Problem { return w.evict },
		Withdraw: w.withdraw,
		Plugin:   func(context.Context, *accel.Definition) Plugin { return w },
		Early:    func(*accel.Definition) bool { return w.early },
		Redefine: func(def *accel.Definition) { w.set(func() { w.redefined = def }) },
		Steps: func(context.Context, *accel.Definition, accel.Facts, []accel.Accelerator, accel.Published,
			accel.Moment,
		) *accel.Problem {
			return nil
		},
	}
}

// run starts a loop over w inside a synctest bubble and stops it when the test function ends.
func run(t *testing.T, w *world, check func(*Loop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		def := &accel.Definition{Kind: "k-x", Match: []accel.Match{{Vendor: "f00d", Device: "0001"}}}
		def.Driver.Upgrade = w.policy
		if !w.unchecked {
			def.Check = &accel.Check{File: "result", Want: "1"}
		}
		w.free = make(chan struct{}) // of the bubble
		if w.log == nil {
			w.log = slog.DiscardHandler
		}
		l := New(Options{
			Agent: accel.Agent{Started: time.Now()},
			Want: accel.Want{
				Kubernetes: w.kubelet, Labels: w.kubelet, PoliciesUnknown: w.unsure,
				Kinds: map[string]*accel.Definition{"k-x": def},
			},
			Probes:   w.probes(),
			Effects:  w.effects(),
			Observer: w, Log: slog.New(w.log), SampleEvery: 15 * time.Second, Resync: 5 * time.Minute,
			Work: func() []accel.Progress {
				w.mu.Lock()
				defer w.mu.Unlock()
				return slices.Clone(w.work)
			},
			KubeSync: func() Sync {
				w.mu.Lock()
				defer w.mu.Unlock()
				return Sync{
					Labelled: w.labelled, Handshakes: w.handshakes, Maintenance: w.maintenance,
					MaintenanceUnknown: w.unasked, Drained: w.marked,
				}
			},
		})
		w.changed = l.Changed
		if w.hangs {
			w.hang = make(chan struct{})
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		synctest.Wait()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		check(l)
	})
}

func state(l *Loop) accel.State { return l.Machine().Status["k-x"].State }

func TestLoopReachesReady(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, kubelet: true, labelled: true}
	run(t, w, func(l *Loop) {
		if got := state(l); got != accel.Ready {
			t.Fatalf("state %q: %s", got, l.Machine().Status["k-x"].Sentence)
		}
		want := []string{
			"absent>driver-missing", "driver-missing>driver-unproven", "driver-unproven>runtime-missing",
			"runtime-missing>plugin-missing", "plugin-missing>kubelet-pending", "kubelet-pending>unwatched",
			"unwatched>ready",
		}
		if diff := cmp.Diff(want, w.states); diff != "" {
			t.Errorf("transitions (-want +got):\n%s", diff)
		}
	})
}

func TestLoopIsIdleWithoutADevice(t *testing.T) {
	w := &world{kubelet: true}
	run(t, w, func(l *Loop) {
		time.Sleep(time.Hour) // of the bubble
		if got := l.Machine().Status["k-x"]; got.State != accel.Absent || got.Next != accel.StepNone || w.tried != 0 {
			t.Errorf("got %+v after %d driver steps", got, w.tried)
		}
	})
}

func TestFailedStepIsTriedAgainLater(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, refuse: accel.Problemf(accel.NoSpace, "full")}
	run(t, w, func(l *Loop) {
		s := l.Machine().Status["k-x"]
		if s.Blocked == nil || s.Blocked.Reason != accel.NoSpace || s.Blocked.RetryAt.IsZero() ||
			s.Published[accel.DriverContainer] != accel.PhaseFailed {
			t.Fatalf("blocked: %+v, published %v", s.Blocked, s.Published)
		}
		since := s.Blocked.Since
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if w.tried < 3 || w.tried > 5 {
			t.Errorf("%d attempts in 10 s, want a doubling back-off", w.tried)
		}
		if got := l.Machine().Status["k-x"].Blocked; got.Since != since || got.Attempts != w.tried {
			t.Errorf("since %v, attempts %d; want since %v, %d", got.Since, got.Attempts, since, w.tried)
		}
		w.set(func() { w.refuse = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := l.Machine().Status["k-x"]; s.State != accel.Ready || s.Blocked != nil {
			t.Errorf("state %q, blocked %+v", s.State, s.Blocked)
		}
	})
}

func TestPermanentFailureWaitsForAChange(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, refuse: accel.Problemf(accel.KernelMismatch,
		"other kernel")}
	run(t, w, func(l *Loop) {
		for range 20 {
			l.Wake(false) // for example the uevents of the step's own attempt
			time.Sleep(time.Minute)
		}
		if w.tried != 1 {
			t.Errorf("%d attempts without a change", w.tried)
		}
		l.Wake(true) // a file that the step reads
		synctest.Wait()
		time.Sleep(time.Second)
		w.set(func() { w.pci = append(w.pci, device("0000:02:00.0")) })
		l.Wake(false) // the fingerprint changed
		time.Sleep(time.Second)
		synctest.Wait()
		if w.tried != 3 {
			t.Errorf("%d attempts after two changes, want 3", w.tried)
		}
	})
}

// A device that is being reset keeps its health and is not offered. Afterwards it must pass its self-test again. Its
// illness ends with the reset, even while its health is unknown.
func TestResetDevice(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, kubelet: true, labelled: true}
	run(t, w, func(l *Loop) {
		step := func(change func()) accel.Accelerator {
			w.set(change)
			l.Wake(false)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			return l.Machine().Have["k-x"].Accelerators[0]
		}
		step(func() { w.sick = map[string]string{"0000:01:00.0": "hot"} })
		if a := step(func() { w.unknown = true }); a.Health.Message != "hot" || a.Withheld != nil {
			t.Errorf("while nobody can say: %+v", a)
		}
		if a := step(func() {
			w.reset = true
		}); a.Health.Message != "hot" || !a.WithheldBy(accel.ByReset) || w.offers() != 0 {
			t.Errorf("during the reset: %+v, %d are offered", a, w.offers())
		}
		before := len(w.proofs)
		if a := step(func() {
			w.reset = false
		}); a.Health.State != accel.Healthy || a.Withheld != nil || len(w.proofs) != before+1 || w.offers() != 1 {
			t.Errorf("after the reset: %+v, %d proofs, %d are offered", a, len(w.proofs)-before, w.offers())
		}
	})
}

// TestNewsOfHealthReadsNoDevice: news of a device's health changes the verdict about what was last read. An event on
// the host makes the loop read the devices. So does any news when the reading is from during a reset or older than a
// sample.
func TestNewsOfHealthReadsNoDevice(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, model: "first", hangs: true}
	run(t, w, func(l *Loop) {
		defer close(w.hang) // until then, no sample causes a pass
		for _, c := range []struct {
			event              string
			wait               time.Duration
			notify             func()
			sick, model, shown string
			reset              bool
		}{
			{"news of its health", 0, l.Changed, "hot", "second", "first", false},
			{"an event on the host", 0, func() { l.Wake(false) }, "hot", "second", "second", false},
			{"an event during a reset", 0, func() { l.Wake(false) }, "hot", "third", "second", true},
			{"news after a reset", 0, l.Changed, "hot", "third", "third", false},
			{"more news of its health", 0, l.Changed, "hotter", "fourth", "third", false},
			{"news after a sample's time", 15 * time.Second, l.Changed, "hottest", "fourth", "fourth", false},
		} {
			time.Sleep(c.wait)
			w.set(func() {
				w.sick, w.model, w.reset = map[string]string{"0000:01:00.0": c.sick}, c.model, c.reset
			})
			c.notify()
			time.Sleep(settle)
			synctest.Wait()
			a := l.Machine().Have["k-x"].Accelerators[0]
			if a.Health.Message != c.sick || a.Model != c.shown {
				t.Errorf("%s: %q, model %q, want %q, %q", c.event, a.Health.Message, a.Model, c.sick, c.shown)
			}
		}
	})
}

func TestVanishedDeviceIsATombstoneAndComesBack(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0"), device("0000:02:00.0")}, kubelet: true, labelled: true}
	run(t, w, func(l *Loop) {
		w.set(func() { w.pci = w.pci[:1] })
		l.Wake(false)
		time.Sleep(time.Second)
		synctest.Wait()
		accs := l.Machine().Have["k-x"].Accelerators
		if len(accs) != 2 || accs[1].Health.State != accel.Gone || accs[1].Health.Reason != accel.DeviceGone {
			t.Fatalf("accelerators %+v", accs)
		}
		if state(l) != accel.Ready || !strings.Contains(l.Machine().Status["k-x"].Sentence, "0000:02:00.0 is gone") {
			t.Errorf("status %+v", l.Machine().Status["k-x"])
		}
		w.set(func() { w.pci = append(w.pci, device("0000:02:00.0")) })
		l.Wake(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := l.Machine().Have["k-x"].Accelerators[1].Health.State; got != accel.Healthy ||
			state(l) != accel.Ready {
			t.Errorf("health %q, state %q after it came back", got, state(l))
		}
		if diff := cmp.Diff([]string{"0000:01:00.0", "0000:02:00.0", "0000:02:00.0"}, w.proofs); diff != "" {
			t.Errorf("proofs: only the device that came back computes again (-want +got):\n%s", diff)
		}
		w.set(func() { w.pci = w.pci[:1] })
		l.Wake(false)
		time.Sleep(tombstoneFor + time.Minute)
		synctest.Wait()
		if n := len(l.Machine().Have["k-x"].Accelerators); n != 1 {
			t.Errorf("%d accelerators after the tombstone's time", n)
		}
	})
}

// TestLostDeviceIsATombstone: a device that its own reading finds gone stays listed as long as any other.
func TestLostDeviceIsATombstone(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0"), device("0000:02:00.0")}, kubelet: true, labelled: true}
	run(t, w, func(l *Loop) {
		for _, c := range []struct {
			change func()
			after  time.Duration
			want   int
		}{
			{func() { w.lost = "0000:02:00.0" }, time.Second, 2},
			{func() { w.pci = w.pci[:1] }, time.Second, 2},
			{func() {}, tombstoneFor + time.Minute, 1},
		} {
			w.set(c.change)
			l.Wake(false)
			time.Sleep(c.after)
			synctest.Wait()
			if n := len(l.Machine().Have["k-x"].Accelerators); n != c.want {
				t.Errorf("%d accelerators, want %d", n, c.want)
			}
		}
	})
}

// TestFailedWithdrawalIsOver: a withdrawal that failed is forgotten when there is a device again, because its failure
// would hide the plugin's.
func TestFailedWithdrawalIsOver(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, kubelet: true, labelled: true}
	run(t, w, func(l *Loop) {
		for _, c := range []struct {
			change func()
			failed bool
		}{
			{func() { w.pci, w.stays = nil, accel.Problemf(accel.ReadOnly, "read-only file system") }, true},
			{func() { w.pci = []accel.PCIDevice{device("0000:01:00.0")} }, false},
		} {
			w.set(c.change)
			l.Wake(false)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if f := l.Machine().Have["k-x"].Failure; (f != nil) != c.failed {
				t.Errorf("%s: %+v, want a failure: %t", state(l), f, c.failed)
			}
		}
	})
}

// TestHotPlugLeavesOthersAlone: while one device comes or goes, the kubelet may give out the others.
func TestHotPlugLeavesOthersAlone(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0"), device("0000:02:00.0")}, kubelet: true, labelled: true}
	run(t, w, func(l *Loop) {
		for _, devices := range [][]accel.PCIDevice{
			{device("0000:01:00.0"), device("0000:02:00.0"), device("0000:03:00.0")},
			{device("0000:01:00.0"), device("0000:02:00.0")},
		} {
			w.set(func() { w.pci, w.fewest = devices, 3 })
			l.Wake(false)
			time.Sleep(time.Second)
			synctest.Wait()
			if n := w.offers(); n != len(devices) || w.fewest < 2 {
				t.Errorf("%d of %d devices are offered, and %d were at a time", n, len(devices), w.fewest)
			}
		}
	})
}

// A device is divided and made whole again while the loop runs. Its partitions are offered instead of it, with its
// health, and stay listed as gone for a while when they are no more.
func TestPartitionsFollowTheirDevice(t *testing.T) {
	w := &world{
		pci: []accel.PCIDevice{device("0000:01:00.0"), device("0000:02:00.0")}, kubelet: true, labelled: true,
		sick: map[string]string{},
	}
	run(t, w, func(l *Loop) {
		step := func(what string, change func(), wait time.Duration, usable int, want ...string) {
			t.Helper()
			w.set(change)
			l.Wake(false)
			time.Sleep(wait)
			synctest.Wait()
			var got []string
			for _, device := range l.Machine().Have["k-x"].Accelerators {
				for _, a := range append([]accel.Accelerator{device}, device.Partitions...) {
					got = append(got, strings.TrimPrefix(a.ID, "0000:")+" "+string(a.Health.State))
					if a.Health.Since.IsZero() {
						t.Errorf("%s: nobody knows since when %s is %s", what, a.ID, a.Health.State)
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" || w.offers() != usable || state(l) != accel.Ready {
				t.Errorf("%s: state %q, %d offered, want %d (-want +got):\n%s", what, state(l), w.offers(), usable,
					diff)
			}
		}
		step("divided", func() {
			w.parts = []string{"p0", "p1"}
		}, 2*time.Second, 3, "01:00.0 healthy", "01:00.0-half-p0 healthy", "01:00.0-half-p1 healthy", "02:00.0 healthy")
		if u := w.offered[0]; !u.WithheldBy(accel.ByPartitions) {
			t.Errorf("the whole is offered: %+v", u)
		}
		step("sick", func() {
			w.sick["0000:01:00.0"] = "too hot"
		}, 2*time.Second, 1, "01:00.0 unhealthy", "01:00.0-half-p0 unhealthy", "01:00.0-half-p1 unhealthy",
			"02:00.0 healthy")
		step("well", func() {
			delete(w.sick, "0000:01:00.0")
		}, 2*time.Second, 3, "01:00.0 healthy", "01:00.0-half-p0 healthy", "01:00.0-half-p1 healthy", "02:00.0 healthy")
		step("whole again", func() {
			w.parts = nil
		}, 2*time.Second, 2, "01:00.0 healthy", "01:00.0-half-p0 gone", "01:00.0-half-p1 gone", "02:00.0 healthy")
		step("later", func() {}, tombstoneFor+time.Minute, 2, "01:00.0 healthy", "02:00.0 healthy")
		w.set(func() { w.parts = []string{"p0"} })
		l.Wake(false)
		time.Sleep(2 * time.Second)
		step("unplugged", func() {
			w.pci = w.pci[1:]
			w.parts = nil
		}, 2*time.Second, 1, "01:00.0 gone", "01:00.0-half-p0 gone", "02:00.0 healthy")
	})
}

func TestSickDeviceIsWithheldAloneAndMustComputeAgain(t *testing.T) {
	w := &world{
		pci: []accel.PCIDevice{device("0000:01:00.0"), device("0000:02:00.0")}, kubelet: true, labelled: true,
		sick: map[string]string{},
	}
	run(t, w, func(l *Loop) {
		w.set(func() { w.sick["0000:01:00.0"] = "too hot" })
		l.Wake(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if w.offers() != 1 || state(l) != accel.Ready {
			t.Errorf("offered %+v in state %q", w.offered, state(l))
		}
		w.set(func() { delete(w.sick, "0000:01:00.0") })
		l.Wake(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if w.offers() != 2 || len(w.proofs) != 3 {
			t.Errorf("offered %+v after proofs %v", w.offered, w.proofs)
		}
	})
}

func TestHangingDeviceDoesNotStopTheLoop(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, kubelet: true, labelled: true, hangs: true}
	run(t, w, func(l *Loop) {
		time.Sleep(time.Minute)
		if age := time.Since(l.Beat()); age > pulse {
			t.Errorf("the loop's last beat is %v old", age)
		}
		if got := state(l); got != accel.Unwatched {
			t.Errorf("state %q while the first collection hangs", got)
		}
		close(w.hang)
	})
}

// TestPartOfACollection: what could be read is new, what could not is missing, and the collection was not complete.
func TestPartOfACollection(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, kubelet: true, labelled: true}
	run(t, w, func(l *Loop) {
		have := func() (map[string]float64, time.Time) {
			time.Sleep(16 * time.Second)
			synctest.Wait()
			h := l.Machine().Have["k-x"]
			return h.Accelerators[0].Metrics, h.Monitoring.Collected
		}
		metrics, complete := have()
		if len(metrics) != 2 {
			t.Fatalf("read: %v", metrics)
		}
		w.set(func() { w.mute = accel.Problemf(accel.CollectFailed, "power: input/output error") })
		metrics, collected := have()
		if diff := cmp.Diff(map[string]float64{"accelerator_temperature_celsius": 41}, metrics); diff != "" {
			t.Error(diff)
		}
		if collected != complete || state(l) != accel.Ready {
			t.Errorf("collected %v, before %v; state %s", collected, complete, state(l))
		}
		w.set(func() { w.mute = nil })
		if metrics, collected = have(); len(metrics) != 2 || !collected.After(complete) {
			t.Errorf("and again: %v, collected %v", metrics, collected)
		}
	})
}

func TestDriftIsRepaired(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, kubelet: true, labelled: true}
	run(t, w, func(l *Loop) {
		for name, drift := range map[string]func(){
			"module removed": func() { w.loaded = false },
			"spec deleted":   func() { w.spec = nil },
		} {
			w.set(func() { drift(); w.states = nil })
			l.Wake(false)
			time.Sleep(time.Second)
			synctest.Wait()
			if state(l) != accel.Ready || len(w.states) < 2 {
				t.Errorf("%s: state %q after %v", name, state(l), w.states)
			}
		}
	})
}

// A runtime that ignores the specs keeps pods from their devices. A host without a kubelet may use another runtime,
// or none.
func TestRuntimeThatDoesNotRead(t *testing.T) {
	unread := accel.Problemf(accel.RuntimeRestartNeeded, "x.service must be restarted")
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, kubelet: true, labelled: true, unread: unread}
	run(t, w, func(l *Loop) {
		for _, c := range []struct {
			unread *accel.Problem
			state  accel.State
			offers int
		}{
			{unread, accel.RuntimeMissing, 0},
			{nil, accel.Ready, 1},
			{unread, accel.RuntimeMissing, 0},
			{nil, accel.Ready, 1},
		} {
			w.set(func() { w.unread = c.unread })
			l.Wake(false)
			time.Sleep(time.Second)
			synctest.Wait()
			s := l.Machine().Status["k-x"]
			if s.State != c.state || w.offers() != c.offers || (s.Blocked == nil) != (c.unread == nil) {
				t.Errorf("%v: state %q, blocked %+v, %d offered", c.unread, s.State, s.Blocked, w.offers())
			}
			if s.Blocked != nil && s.Blocked.Reason != unread.Reason {
				t.Errorf("blocked by %+v", s.Blocked)
			}
			for _, a := range w.offered { // none before the kubelet knows the resource
				if c.unread != nil && (a.Withheld == nil || a.Withheld.Message != unread.Message) {
					t.Errorf("offered as %+v", a.Withheld)
				}
			}
		}
	})
	w = &world{pci: w.pci, unread: unread}
	run(t, w, func(l *Loop) {
		if m := l.Machine(); m.Status["k-x"].State != accel.Ready || m.Status["k-x"].Blocked != nil ||
			m.Have["k-x"].Runtime.NotHonored == nil {
			t.Errorf("without a kubelet: %+v, %+v", m.Status["k-x"], m.Have["k-x"].Runtime)
		}
	})
}
