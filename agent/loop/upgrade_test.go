package loop

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// upgrades is the part of a world that concerns driver upgrades.
type upgrades struct {
	policy     accel.UpgradePolicy
	live       string // the version that is loaded; "1" when empty
	wanted     string // none when empty
	holders    []accel.Holder
	silent     *accel.Problem // the source of further holders does not answer
	free       chan struct{}  // closed when the last holder ends
	notReady   *accel.Problem
	fails      *accel.Problem // answer of the next upgrade
	refused    *accel.Problem // answer of the next eviction
	evicted    int
	handshakes map[string]Handshake
	unsure     bool
	// maintenance says who else works on the node; unasked is true while that is not known, and marked is true when the
	// controller has begun to drain the node.
	maintenance     []accel.Maintenance
	unasked, marked bool
	calls           []string // prepare, upgrade, with what the kubelet was offered
}

func (u *upgrades) version() string {
	if u.live == "" {
		return "1"
	}
	return u.live
}

func (w *world) prepare(context.Context, *accel.Definition, accel.Facts) (accel.DriverRef, *accel.Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, "prepare")
	return accel.DriverRef{Version: w.wanted, Key: "k"}, w.notReady
}

func (w *world) upgrade(_ context.Context, _ *accel.Definition, _ accel.Facts, _ []accel.Accelerator,
	to accel.DriverRef,
) (accel.DriverHave, *accel.Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, "upgrade")
	if to != (accel.DriverRef{Version: w.wanted, Key: "k"}) {
		w.calls = append(w.calls, "not the driver that was prepared")
	}
	if n := accel.CountOffered(w.offered); n > 0 {
		w.calls = append(w.calls, "devices were still offered")
	}
	if w.counted > 0 {
		w.calls = append(w.calls, "the kubelet still gave devices out")
	}
	if len(w.holders) > 0 {
		w.calls = append(w.calls, "a pod had a device")
	}
	have := accel.DriverHave{Serves: true, Modules: []accel.LoadedModule{{Name: "m", BuildID: w.version()}}}
	if w.fails != nil {
		have.Upgrade = &accel.Upgrade{
			To: accel.DriverRef{Version: w.wanted}, Wish: w.wanted,
			Phase: accel.UpgradePending,
		}
		return have, w.fails
	}
	w.live = w.wanted
	have.Modules[0].BuildID = w.live
	return have, nil
}

func (w *world) look(context.Context, *accel.Definition, []accel.Accelerator) ([]accel.Holder, *accel.Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.holders), w.silent
}

func (w *world) await(ctx context.Context, _ []accel.Holder) error {
	select {
	case <-w.free:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *world) evict(_ context.Context, look func() []accel.Holder) *accel.Problem {
	holders := look()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(holders) == 0 {
		return nil
	}
	w.evicted++
	return w.refused
}

// want requests another version; release ends the holders.
func (w *world) want(l *Loop, version string) {
	w.set(func() { w.wanted, w.states = version, nil })
	l.Wake(false)
	time.Sleep(time.Second)
	synctest.Wait()
}

func (w *world) release() {
	w.set(func() { w.holders = nil; close(w.free) })
	time.Sleep(time.Second)
	synctest.Wait()
}

func (w *world) count(call string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, c := range w.calls {
		if c == call {
			n++
		}
	}
	return n
}

func served(policy accel.UpgradePolicy) *world {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, kubelet: true, labelled: true}
	w.policy = policy
	return w
}

var holder = accel.Holder{PID: 42, Comm: "python3"}

func pendingUpgrade(t *testing.T, l *Loop) *accel.Upgrade {
	t.Helper()
	u := l.Machine().Have["k-x"].Driver.Upgrade
	if u == nil {
		t.Fatal("no upgrade is shown")
	}
	return u
}

func TestUpgradeOfAnIdleDriver(t *testing.T) {
	w := served(accel.UpgradePolicy{})
	run(t, w, func(l *Loop) {
		w.want(l, "2")
		if diff := cmp.Diff([]string{"prepare", "upgrade"}, w.calls); diff != "" {
			t.Error(diff)
		}
		if state(l) != accel.Ready || l.Machine().Have["k-x"].Driver.Upgrade != nil || w.offers() != 1 {
			t.Errorf("%+v, offered %+v", l.Machine().Status["k-x"], w.offered)
		}
		for _, s := range w.states {
			if strings.Contains(s, string(accel.DriverMissing)) || strings.Contains(s, string(accel.DriverUnproven)) {
				t.Errorf("it lost readiness: %v", w.states)
			}
		}
	})
}

// TestUpgradeThatReplacesNothing: the sources have the driver that serves, so no device is tested again. A device that
// has failed its self-test stays withheld.
func TestUpgradeThatReplacesNothing(t *testing.T) {
	w := served(accel.UpgradePolicy{})
	w.faulty = "0000:01:00.0"
	run(t, w, func(l *Loop) {
		if s := l.Machine().Status["k-x"]; s.State != accel.DriverUnproven || s.Blocked == nil {
			t.Fatalf("%+v", s)
		}
		l.o.Effects.Upgrade = func(context.Context, *accel.Definition, accel.Facts, []accel.Accelerator,
			accel.DriverRef,
		) (accel.DriverHave, *accel.Problem) {
			w.set(func() { w.calls, w.wanted = append(w.calls, "upgrade"), "" })
			return accel.DriverHave{Serves: true, Modules: []accel.LoadedModule{{Name: "m", BuildID: "1"}}}, nil
		}
		w.want(l, "2")
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := l.Machine().Status["k-x"]; s.State != accel.DriverUnproven || w.count("upgrade") != 1 ||
			w.offers() != 0 {
			t.Errorf("after %v, %d devices are offered: %+v", w.calls, w.offers(), s)
		}
	})
}

// Under every policy, the new driver is ready, the driver in use stays, and its holders are shown.
func TestUpgradeInUse(t *testing.T) {
	for _, c := range []struct {
		policy  accel.Holders
		phase   accel.UpgradePhase
		offered int
	}{
		{"", accel.UpgradeWaiting, 1},
		{accel.HoldersRefuse, accel.UpgradeWaiting, 1},
		{accel.HoldersWait, accel.UpgradeDraining, 0},
	} {
		t.Run(string(c.policy), func(t *testing.T) {
			w := served(accel.UpgradePolicy{Holders: c.policy})
			w.holders = []accel.Holder{holder}
			run(t, w, func(l *Loop) {
				w.want(l, "2")
				u, s := pendingUpgrade(t, l), l.Machine().Status["k-x"]
				if u.Phase != c.phase || u.Failure == nil || u.Failure.Reason != accel.InUse ||
					!strings.Contains(u.Failure.Message, "python3 (pid 42)") || len(u.Holders) != 1 {
					t.Errorf("%+v %+v", u, u.Failure)
				}
				if s.State != accel.Ready || s.Published[accel.DriverContainer] != accel.PhaseReady ||
					s.Published[accel.DevicePlugin] != accel.PhaseReady || s.Blocked != nil {
					t.Errorf("%+v", s)
				}
				if !strings.Contains(s.Sentence, "python3") {
					t.Error(s.Sentence)
				}
				if n := w.offers(); n != c.offered {
					t.Errorf("%d devices are offered, want %d", n, c.offered)
				}
				if w.count("upgrade") != 0 {
					t.Fatal("a driver in use was replaced")
				}
				w.release() // an event, not the clock
				if w.count("upgrade") != 1 || state(l) != accel.Ready || w.offers() != 1 ||
					w.count("devices were still offered") != 0 {
					t.Errorf("calls %v, state %s, offered %+v", w.calls, state(l), w.offered)
				}
			})
		})
	}
}

// TestUpgradeBesideASlowKubelet: a kubelet gives devices to pods until it has taken over that none is free. The
// upgrade waits for a pod that comes in between like for any other, whatever the first look at the holders found.
func TestUpgradeBesideASlowKubelet(t *testing.T) {
	w := served(accel.UpgradePolicy{Holders: accel.HoldersWait})
	run(t, w, func(l *Loop) {
		w.set(func() { w.lag = 5 * time.Second })
		w.want(l, "2") // no pod has a device
		if w.count("upgrade") == 0 && w.State().Allocatable.Is(1) {
			w.set(func() { w.holders = []accel.Holder{holder} })
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]string{"prepare"}, w.calls); diff != "" {
			t.Fatalf("while a pod has a device: %s", diff)
		}
		if u := pendingUpgrade(t, l); u.Phase != accel.UpgradeDraining || u.Failure == nil ||
			u.Failure.Reason != accel.InUse || w.offers() != 0 {
			t.Errorf("%+v, offered %+v", u, w.offered)
		}
		w.release()
		if diff := cmp.Diff([]string{"prepare", "upgrade"}, w.calls); diff != "" {
			t.Errorf("when it has ended: %s", diff)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if state(l) != accel.Ready || w.offers() != 1 {
			t.Errorf("state %s, offered %+v", state(l), w.offered)
		}
	})
}

func TestUpgradeGivesUpInTime(t *testing.T) {
	w := served(accel.UpgradePolicy{Holders: accel.HoldersWait, Timeout: "30m"})
	w.holders = []accel.Holder{holder}
	run(t, w, func(l *Loop) {
		w.want(l, "2")
		time.Sleep(29 * time.Minute)
		synctest.Wait()
		if u := pendingUpgrade(t, l); u.Phase != accel.UpgradeDraining || w.offers() != 0 {
			t.Errorf("%+v", u)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		u := pendingUpgrade(t, l)
		if u.Phase != accel.UpgradeWaiting || !strings.Contains(u.Failure.Message, "given up after 30m") ||
			!u.Failure.RetryAt.IsZero() || w.offers() != 1 {
			t.Errorf("%+v %+v, offered %+v", u, u.Failure, w.offered)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if u := pendingUpgrade(t, l); u.Phase != accel.UpgradeWaiting {
			t.Errorf("it drains again: %+v", u)
		}
		w.release()
		if w.count("upgrade") != 1 {
			t.Errorf("%v", w.calls)
		}
	})
}

func TestUpgradeEvicts(t *testing.T) {
	w := served(accel.UpgradePolicy{Holders: accel.HoldersEvict})
	w.holders = []accel.Holder{{PodUID: "u", Namespace: "team", Pod: "train", Device: "0000:01:00.0"}}
	w.refused = accel.Problemf(accel.EvictionRefused, "its disruption budget allows none")
	run(t, w, func(l *Loop) {
		w.want(l, "2")
		if u := pendingUpgrade(t, l); u.Failure == nil || u.Failure.Reason != accel.EvictionRefused ||
			u.Failure.RetryAt.IsZero() {
			t.Fatalf("%+v", u)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.evicted < 4 || w.evicted > 8 {
			t.Errorf("asked %d times in a minute", w.evicted)
		}
		w.set(func() { w.refused, w.holders = nil, nil })
		time.Sleep(lookAgain + time.Second) // a pod without a process ends without an event
		synctest.Wait()
		if w.count("upgrade") != 1 || state(l) != accel.Ready {
			t.Error(w.calls)
		}
	})
}

// evictions returns how often pods were evicted.
func (w *world) evictions() (n int) {
	w.set(func() { n = w.evicted })
	return n
}

// TestUpgradeEvictsLate: no pod is evicted while the kubelet would give the device to the next pod.
func TestUpgradeEvictsLate(t *testing.T) {
	w := served(accel.UpgradePolicy{Holders: accel.HoldersEvict})
	w.holders = []accel.Holder{{PodUID: "u", Namespace: "team", Pod: "train", Device: "0000:01:00.0"}}
	run(t, w, func(l *Loop) {
		w.set(func() { w.lag = 5 * time.Second })
		w.want(l, "2")
		if !w.State().Allocatable.Is(1) || w.evictions() != 0 {
			t.Errorf("%d evictions while the kubelet gives %d devices to pods", w.evictions(),
				w.State().Allocatable.Value)
		}
		time.Sleep(lookAgain)
		synctest.Wait()
		if !w.State().Allocatable.Is(0) || w.evictions() == 0 {
			t.Errorf("%d evictions when the kubelet gives %d devices to pods", w.evictions(),
				w.State().Allocatable.Value)
		}
	})
}

// TestUpgradeChangedWhilePrepared: a driver that was prepared for an outdated request is not mistaken for the desired
// one.
func TestUpgradeChangedWhilePrepared(t *testing.T) {
	w := served(accel.UpgradePolicy{})
	run(t, w, func(l *Loop) {
		ready := map[string]chan struct{}{"2": make(chan struct{}), "3": make(chan struct{})}
		l.o.Effects.Prepare = func(ctx context.Context, def *accel.Definition, f accel.Facts) (accel.DriverRef,
			*accel.Problem,
		) {
			to, problem := w.prepare(ctx, def, f)
			<-ready[to.Version]
			return to, problem
		}
		w.want(l, "2")
		if u := pendingUpgrade(t, l); u.Phase != accel.UpgradePreparing {
			t.Errorf("while 2 is prepared: %+v", u)
		}
		w.want(l, "3")
		close(ready["2"])
		time.Sleep(time.Second)
		synctest.Wait()
		if u := l.Machine().Have["k-x"].Driver.Upgrade; u == nil || u.To.Version != "3" || w.count("upgrade") != 0 {
			t.Errorf("with 2 prepared, while 3 is wanted: %+v, calls %v", u, w.calls)
		}
		close(ready["3"])
		time.Sleep(time.Second)
		synctest.Wait()
		if w.count("upgrade") != 1 || state(l) != accel.Ready {
			t.Errorf("calls %v, state %s", w.calls, state(l))
		}
	})
}

// If a new driver cannot be prepared, or is reverted, the old one stays in use, and the reason is shown.
func TestUpgradeFails(t *testing.T) {
	for _, c := range []struct {
		name          string
		set           func(*world)
		reason        accel.Reason
		retried       bool
		replaced      int
		replacedAgain int
	}{
		{"not to be had", func(w *world) {
			w.notReady = accel.Problemf(accel.RegistryUnreachable, "away")
		}, accel.RegistryUnreachable, true, 0, 1},
		{"rolled back", func(w *world) {
			w.fails = accel.Problemf(accel.RolledBack, "2 failed")
		}, accel.RolledBack, false, 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := served(accel.UpgradePolicy{Holders: accel.HoldersWait})
			c.set(w)
			run(t, w, func(l *Loop) {
				w.want(l, "2")
				time.Sleep(20 * time.Minute)
				synctest.Wait()
				u, s := pendingUpgrade(t, l), l.Machine().Status["k-x"]
				if u.Failure == nil || u.Failure.Reason != c.reason || u.Failure.RetryAt.IsZero() == c.retried ||
					s.State != accel.Ready || w.offers() != 1 {
					t.Errorf("%+v %+v; %+v", u, u.Failure, s)
				}
				if n := w.count("upgrade"); n != c.replaced {
					t.Errorf("replaced %d times", n)
				}
				w.set(func() { w.notReady, w.fails = nil, nil })
				l.Wake(true) // a file that a source reads
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if n := w.count("upgrade"); n != c.replacedAgain || l.Machine().Have["k-x"].Driver.Upgrade != nil {
					t.Errorf("replaced %d times, %+v", n, l.Machine().Have["k-x"].Driver.Upgrade)
				}
			})
		})
	}
}

// TestUpgradeWithoutAnAnswer: while the kubelet does not report who has devices, no driver is replaced and devices
// are given out. The kubelet is asked again soon.
func TestUpgradeWithoutAnAnswer(t *testing.T) {
	for _, policy := range []accel.Holders{"", accel.HoldersWait, accel.HoldersEvict} {
		w := served(accel.UpgradePolicy{Holders: policy})
		w.silent = accel.Problemf(accel.ProbeUnanswered, "the kubelet does not answer")
		run(t, w, func(l *Loop) {
			w.want(l, "2")
			u := pendingUpgrade(t, l)
			if u.Phase != accel.UpgradeWaiting || u.Failure == nil || u.Failure.Reason != accel.ProbeUnanswered ||
				w.offers() != 1 {
				t.Fatalf("%q: %+v %+v, %d devices are offered", policy, u, u.Failure, w.offers())
			}
			w.set(func() { w.silent = nil })
			time.Sleep(lookAgain + time.Second)
			synctest.Wait()
			if diff := cmp.Diff([]string{"prepare", "upgrade"}, w.calls); diff != "" || state(l) != accel.Ready {
				t.Errorf("%q: when it answers again: %s", policy, diff)
			}
		})
	}
}

// TestSilenceWhileDraining: if the kubelet stops answering after devices were withheld, the driver is not replaced
// either.
func TestSilenceWhileDraining(t *testing.T) {
	w := served(accel.UpgradePolicy{Holders: accel.HoldersWait, Timeout: "30m"})
	w.holders = []accel.Holder{holder}
	run(t, w, func(l *Loop) {
		w.want(l, "2")
		w.set(func() { w.silent = accel.Problemf(accel.ProbeUnanswered, "the kubelet does not answer") })
		w.release()
		u := pendingUpgrade(t, l)
		if u.Phase != accel.UpgradeDraining || u.Failure == nil || u.Failure.Reason != accel.ProbeUnanswered ||
			w.offers() != 0 {
			t.Errorf("%+v %+v, %d devices are offered", u, u.Failure, w.offers())
		}
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		u = pendingUpgrade(t, l)
		if u.Phase != accel.UpgradeWaiting || !strings.Contains(u.Failure.Message, "given up after 30m") ||
			w.offers() != 1 {
			t.Errorf("%+v %+v, %d devices are offered", u, u.Failure, w.offers())
		}
		if w.count("upgrade") != 0 {
			t.Error("a driver was replaced of which nobody knows who uses it")
		}
	})
}

// Withdrawing the request ends the wait.
func TestUpgradeIsCalledOff(t *testing.T) {
	w := served(accel.UpgradePolicy{Holders: accel.HoldersWait})
	w.holders = []accel.Holder{holder}
	run(t, w, func(l *Loop) {
		w.want(l, "2")
		w.want(l, "1")
		if l.Machine().Have["k-x"].Driver.Upgrade != nil || w.offers() != 1 || w.count("upgrade") != 0 {
			t.Errorf("%+v, offered %+v", l.Machine().Have["k-x"].Driver.Upgrade, w.offered)
		}
	})
}

func TestNextUpgrades(t *testing.T) {
	blocked := &accel.Failure{Step: accel.StepProve, Problem: accel.Problem{Reason: accel.CheckFailed}}
	later := &accel.Failure{RetryAt: at.Add(time.Minute)}
	for _, c := range []struct {
		name    string
		gates   int // gates passed, from climb
		blocked *accel.Failure
		upgrade *accel.Failure
		want    accel.Step
	}{
		{"ready", 7, nil, nil, accel.StepUpgrade},
		{"ready, not due", 7, nil, later, accel.StepNone},
		{"ready, over", 7, nil, &accel.Failure{RetryAt: at}, accel.StepUpgrade},
		{"ready, only a change helps", 7, nil, &accel.Failure{}, accel.StepNone},
		{"the way to ready goes first", 3, nil, nil, accel.StepRuntime},
		{"the plugin has not started", 4, nil, nil, accel.StepRegister},
		{"no kubelet for the plugin", 4, &accel.Failure{Step: accel.StepRegister}, nil, accel.StepUpgrade},
		{"waiting for the kubelet", 5, nil, nil, accel.StepUpgrade},
		{"unproven", 2, nil, nil, accel.StepProve},
		{"unproven and stuck", 2, blocked, nil, accel.StepUpgrade},
		{"unproven and stuck, not due", 2, blocked, later, accel.StepProve},
		{"no device", 0, nil, nil, accel.StepNone},
	} {
		m := climb(true, true)[c.gates]
		m.Taken = at
		h := m.Have["k-x"]
		h.Failure = c.blocked
		h.Driver.Upgrade = &accel.Upgrade{Failure: c.upgrade}
		m.Have["k-x"] = h
		if got := Next(m, "k-x"); got.Next != c.want {
			t.Errorf("%s: in %s next is %q, want %q", c.name, got.State, got.Next, c.want)
		}
	}
}

func TestConfigure(t *testing.T) {
	w := served(accel.UpgradePolicy{})
	run(t, w, func(l *Loop) {
		want := l.Machine().Want
		other := *want.Kinds["k-x"]
		other.Kind, other.Match = "k-y", []accel.Match{{Vendor: "beef"}}
		changed := *want.Kinds["k-x"]
		changed.Driver.Version = "2"
		want.Kinds = map[string]*accel.Definition{"k-x": &changed, "k-y": &other}
		l.Configure(want)
		time.Sleep(time.Second)
		synctest.Wait()
		if m := l.Machine(); m.Status["k-y"].State != accel.Absent || m.Status["k-x"].State != accel.Ready ||
			m.Want.Kinds["k-x"].Driver.Version != "2" {
			t.Errorf("%+v", m.Status)
		}
		want.Kinds = map[string]*accel.Definition{"k-y": &other}
		l.Configure(want)
		time.Sleep(time.Second)
		synctest.Wait()
		if _, there := l.Machine().Status["k-x"]; there || len(w.spec) != 0 {
			t.Errorf("a kind that is not wanted is served: %+v, spec %v", l.Machine().Status, w.spec)
		}
	})
}

// TestOtherAllocation: when the allocation changes, the running plugin ends and one of the other type starts.
func TestOtherAllocation(t *testing.T) {
	w := served(accel.UpgradePolicy{})
	run(t, w, func(l *Loop) {
		var started []accel.Allocation
		var ended int
		plugin := l.o.Effects.Plugin
		l.o.Effects.Plugin = func(ctx context.Context, def *accel.Definition) Plugin {
			started = append(started, def.AllocatedBy())
			context.AfterFunc(ctx, func() { ended++ })
			return plugin(ctx, def)
		}
		want := l.Machine().Want
		for _, way := range []accel.Allocation{accel.AllocateByDRA, accel.AllocateByDRA, accel.AllocateByPlugin} {
			changed := *want.Kinds["k-x"]
			changed.Allocation = way
			want.Kinds = map[string]*accel.Definition{"k-x": &changed}
			l.Configure(want)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if m := l.Machine(); m.Status["k-x"].State != accel.Ready {
				t.Errorf("%s: %+v", way, m.Status)
			}
		}
		if !slices.Equal(started, []accel.Allocation{accel.AllocateByDRA, accel.AllocateByPlugin}) || ended != 1 {
			t.Errorf("started %v, %d of them ended", started, ended)
		}
	})
}

// TestEarly: claims are unprepared on a host whose driver does not load. Nothing is offered there.
func TestEarly(t *testing.T) {
	w := served(accel.UpgradePolicy{})
	w.refuse, w.loaded = accel.Problemf(accel.LoadFailed, "no"), false
	run(t, w, func(l *Loop) {
		started := 0
		plugin := l.o.Effects.Plugin
		l.o.Effects.Plugin = func(ctx context.Context, def *accel.Definition) Plugin {
			started++
			return plugin(ctx, def)
		}
		look := func(wanted int) {
			t.Helper()
			l.Wake(false)
			time.Sleep(time.Second)
			synctest.Wait()
			if state(l) != accel.DriverMissing || started != wanted || w.offers() != 0 {
				t.Errorf("in %s %d were started, %d devices are offered", state(l), started, w.offers())
			}
		}
		look(0)
		l.o.Effects.Early = func(*accel.Definition) bool { return true }
		look(1)
	})
}

// TestEarlyOffer: what the previous agent offered stays published until the self-tests end, whatever their result.
func TestEarlyOffer(t *testing.T) {
	for _, tc := range []struct {
		faulty string
		want   int
	}{{"", 1}, {"0000:01:00.0", 0}} {
		w := served(accel.UpgradePolicy{})
		w.loaded, w.early, w.testing, w.faulty = true, true, 20*time.Second, tc.faulty
		run(t, w, func(l *Loop) {
			l.Wake(false)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := w.got(); state(l) != accel.DriverUnproven || got != nil {
				t.Errorf("in %s the plugin was given %+v", state(l), got)
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if got := w.got(); len(got) != 1 || w.offers() != tc.want {
				t.Errorf("in %s the plugin was given %+v", state(l), got)
			}
		})
	}
}
