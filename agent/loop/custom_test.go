package loop

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// runKinds is like run, with the given definitions. It records their own steps in w.own.
func runKinds(t *testing.T, w *world, steps func(kind, at string) *accel.Problem, defs []*accel.Definition,
	check func(*Loop),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		kinds := map[string]*accel.Definition{}
		for _, def := range defs {
			kinds[def.Kind] = def
		}
		l := New(Options{
			Agent:  accel.Agent{Started: time.Now()},
			Want:   accel.Want{Kubernetes: w.kubelet, Labels: w.kubelet, Kinds: kinds},
			Probes: w.probes(),
			Effects: Effects{
				Ensure: w.ensure, Prove: w.prove, Apply: w.apply, Withdraw: w.withdraw,
				Plugin: func(context.Context, *accel.Definition) Plugin { return w },
				Steps: func(_ context.Context, def *accel.Definition, _ accel.Facts, _ []accel.Accelerator,
					p accel.Published, m accel.Moment,
				) *accel.Problem {
					return steps(def.Kind, string(m)+" "+string(p))
				},
			},
			Observer: w, Log: slog.New(slog.DiscardHandler), SampleEvery: 15 * time.Second, Resync: 5 * time.Minute,
			KubeSync: func() Sync { w.mu.Lock(); defer w.mu.Unlock(); return Sync{Labelled: w.labelled} },
		})
		w.changed = l.Changed
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		synctest.Wait()
		check(l)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// everyStep returns a definition with an own step at every moment of every state.
func everyStep() *accel.Definition {
	def := &accel.Definition{
		Kind: "k-x", Match: []accel.Match{{Vendor: "f00d", Device: "0001"}},
		Check: &accel.Check{File: "result", Want: "1"}, Steps: map[accel.Published]accel.StateSteps{},
	}
	one := []accel.CustomStep{{Name: "one"}}
	for _, p := range []accel.Published{
		accel.DriverContainer, accel.RuntimeEnablement, accel.DevicePlugin,
		accel.DeviceMonitoring, accel.FeatureDiscovery,
	} {
		def.Steps[p] = accel.StateSteps{Before: one, After: one}
	}
	return def
}

// TestOwnStepsInOrder walks to ready through every own step of a definition: each runs once and in its place.
func TestOwnStepsInOrder(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, kubelet: true, labelled: true}
	var ran []string
	runKinds(t, w, func(_, at string) *accel.Problem {
		ran = append(ran, at)
		return nil
	}, []*accel.Definition{everyStep()}, func(l *Loop) {
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := state(l); got != accel.Ready {
			t.Fatalf("state %q: %s", got, l.Machine().Status["k-x"].Sentence)
		}
	})
	want := []string{
		"before driver-container", "after driver-container", "before runtime-enablement", "after runtime-enablement",
		"before device-plugin", "after device-plugin",
		"before device-monitoring", "before device-feature-discovery", "after device-monitoring",
		"after device-feature-discovery",
	}
	if diff := cmp.Diff(want, ran); diff != "" {
		t.Errorf("steps (-want +got)\n%s", diff)
	}
}

// TestOwnStepIsAGate fails each step in turn. The kind stops before the step's gate with StepFailed, nothing after it
// has happened, and the kind continues when the step succeeds.
func TestOwnStepIsAGate(t *testing.T) {
	for at, stands := range map[string]accel.State{
		"before driver-container": accel.DriverMissing, "after driver-container": accel.DriverUnproven,
		"before runtime-enablement": accel.RuntimeMissing, "after runtime-enablement": accel.RuntimeMissing,
		"before device-plugin": accel.PluginMissing, "after device-plugin": accel.KubeletPending,
		"before device-monitoring": accel.Unwatched, "after device-feature-discovery": accel.Unwatched,
	} {
		w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, kubelet: true, labelled: true}
		var mended atomic.Bool
		var tried atomic.Int32
		steps := func(_, now string) *accel.Problem {
			if now != at {
				return nil
			}
			if tried.Add(1); !mended.Load() {
				return accel.Problemf(accel.StepFailed, "not yet")
			}
			return nil
		}
		runKinds(t, w, steps, []*accel.Definition{everyStep()}, func(l *Loop) {
			time.Sleep(20 * time.Second)
			synctest.Wait()
			s := l.Machine().Status["k-x"]
			if s.State != stands || s.Blocked == nil || s.Blocked.Reason != accel.StepFailed {
				t.Errorf("%s: state %q, blocked %+v", at, s.State, s.Blocked)
			}
			if n := tried.Load(); n < 2 || n > 22 {
				t.Errorf("%s: tried %d times in 20 s", at, n)
			}
			mended.Store(true)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if s := l.Machine().Status["k-x"]; s.State != accel.Ready || s.Blocked != nil {
				t.Errorf("%s: afterwards state %q, blocked %+v", at, s.State, s.Blocked)
			}
		})
	}
}

// TestOwnState: a state of the definition's own begins once the published state before it is reached, which is ready
// meanwhile. The next published state waits for it. A kind whose devices are not offered yet does not reach it.
func TestOwnState(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, kubelet: true, labelled: true}
	def := everyStep()
	def.Steps = nil
	def.States = []accel.OwnState{
		{Name: "late", After: accel.DevicePlugin, Steps: []accel.CustomStep{{Name: "one"}}},
		{Name: "fabric", After: accel.DriverContainer, Steps: []accel.CustomStep{{Name: "one"}}},
		{Name: "links", After: accel.DriverContainer, Steps: []accel.CustomStep{{Name: "one"}}},
	}
	var mended atomic.Bool
	var ran []string
	steps := func(_, now string) *accel.Problem {
		if now == "after state-fabric" && !mended.Load() {
			return accel.Problemf(accel.StepFailed, "not yet")
		}
		if strings.Contains(now, "after state-") {
			ran = append(ran, now)
		}
		return nil
	}
	runKinds(t, w, steps, []*accel.Definition{def}, func(l *Loop) {
		check := func(want map[accel.Published]accel.Phase) {
			t.Helper()
			s := l.Machine().Status["k-x"]
			if diff := cmp.Diff(want, s.Published); diff != "" {
				t.Errorf("%s (-want +got)\n%s", s.Sentence, diff)
			}
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		check(map[accel.Published]accel.Phase{
			accel.DriverContainer: "ready", "state-fabric": "failed", "state-links": "pending",
			accel.RuntimeEnablement: "pending", accel.DevicePlugin: "pending", "state-late": "pending",
			accel.DeviceMonitoring: "pending", accel.FeatureDiscovery: "pending",
		})
		if s := l.Machine().Status["k-x"].Sentence; !strings.Contains(s, "driver-container is reached") {
			t.Error(s)
		}
		mended.Store(true)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		check(map[accel.Published]accel.Phase{
			accel.DriverContainer: "ready", "state-fabric": "ready", "state-links": "ready",
			accel.RuntimeEnablement: "ready", accel.DevicePlugin: "ready", "state-late": "ready",
			accel.DeviceMonitoring: "ready", accel.FeatureDiscovery: "ready",
		})
	})
	if diff := cmp.Diff([]string{"after state-fabric", "after state-links", "after state-late"}, ran); diff != "" {
		t.Errorf("steps (-want +got)\n%s", diff)
	}
}

// TestKindsInOrder: a kind's driver is not touched until the kind that it comes after works.
func TestKindsInOrder(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, refuse: accel.Problemf(accel.NoSpace, "full")}
	match := []accel.Match{{Vendor: "f00d", Device: "0001"}}
	first, second := &accel.Definition{Kind: "k-x", Match: match}, &accel.Definition{
		Kind: "k-y", Match: match,
		After: []string{"k-x"},
	}
	lost := &accel.Definition{Kind: "k-z", Match: match, After: []string{"k-nobody"}}
	none := func(string, string) *accel.Problem { return nil }
	runKinds(t, w, none, []*accel.Definition{second, first, lost}, func(l *Loop) {
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for kind, want := range map[string]string{
			"k-y": `kind "k-y" comes after "k-x", whose driver does not work yet`,
			"k-z": `kind "k-z" comes after "k-nobody", which is not in force`,
		} {
			b := l.Machine().Status[kind].Blocked
			if b == nil || b.Reason != accel.PrerequisitePending || b.Message != want {
				t.Errorf("%s: blocked %+v", kind, b)
			}
		}
		if b := l.Machine().Status["k-x"].Blocked; b == nil || w.tried != b.Attempts {
			t.Errorf("the driver was asked for %d times, %+v", w.tried, b)
		}
		w.set(func() { w.refuse = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := l.Machine().Status["k-y"]; s.Blocked != nil ||
			!slices.Contains([]accel.State{accel.Ready, accel.Unwatched}, s.State) {
			t.Errorf("afterwards %q, blocked %+v", s.State, s.Blocked)
		}
	})
}
