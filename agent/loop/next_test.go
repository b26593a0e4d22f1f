package loop

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

var at = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// climb returns machines. In each, one more gate is passed than in the previous one.
func climb(kubernetes, labels bool) []accel.Machine {
	m := accel.Machine{Want: accel.Want{Kubernetes: kubernetes, Labels: labels}}
	h := accel.Have{}
	var out []accel.Machine
	add := func() { m.Have = map[string]accel.Have{"k-x": h}; out = append(out, m) }
	add()
	h.Accelerators = []accel.Accelerator{{ID: "0000:01:00.0", Health: accel.Health{State: accel.Healthy}}}
	add()
	h.Driver.Serves = true
	add()
	h.Driver.Proven = at
	add()
	h.Runtime = accel.RuntimeHave{Applied: true, Devices: []string{"x"}}
	add()
	if kubernetes {
		h.Plugin.Registered = true
		add()
		h.Plugin.Allocatable = accel.Known(1)
		add()
	}
	h.Monitoring = accel.Monitoring{Collected: at, Labelled: labels}
	add()
	return out
}

func TestNextWalksEveryState(t *testing.T) {
	all := []accel.State{
		accel.Absent, accel.DriverMissing, accel.DriverUnproven, accel.RuntimeMissing,
		accel.PluginMissing, accel.KubeletPending, accel.Unwatched, accel.Ready,
	}
	bare := slices.DeleteFunc(slices.Clone(all), func(s accel.State) bool {
		return s == accel.PluginMissing || s == accel.KubeletPending
	})
	for _, c := range []struct {
		name       string
		kubernetes bool
		want       []accel.State
	}{{"kubernetes", true, all}, {"bare metal", false, bare}} {
		t.Run(c.name, func(t *testing.T) {
			var got []accel.State
			machines := climb(c.kubernetes, c.kubernetes)
			for _, m := range machines {
				got = append(got, Next(m, "k-x").State)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
			for i := 1; i < len(got); i++ {
				if !Allowed(machines[i], got[i-1], got[i]) {
					t.Errorf("%s -> %s is not allowed", got[i-1], got[i])
				}
			}
		})
	}
}

// For any two consecutive machines, the recorded transitions are in the table.
func TestRouteTakesAllowedEdgesOnly(t *testing.T) {
	for _, kubernetes := range []bool{true, false} {
		m := climb(kubernetes, false)[0]
		for _, a := range table() {
			for _, b := range table() {
				if a.state == b.state || (b.applies != nil && !b.applies(m)) || (a.applies != nil && !a.applies(m)) {
					continue
				}
				from := a.state
				for _, to := range route(m, a.state, b.state) {
					if !Allowed(m, from, to) {
						t.Errorf("kubernetes=%v: route %s -> %s takes %s -> %s", kubernetes, a.state, b.state, from, to)
					}
					from = to
				}
				if from != b.state {
					t.Errorf("route %s -> %s ends in %s", a.state, b.state, from)
				}
			}
		}
	}
}

func TestPublishedPhases(t *testing.T) {
	machines := climb(true, true)
	blocked := machines[1] // driver-missing
	h := blocked.Have["k-x"]
	h.Failure = &accel.Failure{Step: accel.StepDriver, Problem: *accel.Problemf(accel.BuildFailed, "no")}
	blocked.Have = map[string]accel.Have{"k-x": h}
	stale := machines[3] // runtime-missing, with the failure of an earlier step
	h = stale.Have["k-x"]
	h.Failure = &accel.Failure{Step: accel.StepDriver}
	stale.Have = map[string]accel.Have{"k-x": h}
	for _, c := range []struct {
		name string
		m    accel.Machine
		want map[accel.Published]accel.Phase
	}{
		{"absent", machines[0], nil},
		{"driver missing", machines[1], phasesOf("pending", "pending", "pending", "pending")},
		{"driver failed", blocked, phasesOf("failed", "pending", "pending", "pending")},
		{"driver unproven", machines[2], phasesOf("pending", "pending", "pending", "pending")},
		{"runtime missing", stale, phasesOf("ready", "pending", "pending", "pending")},
		{"plugin missing", machines[4], phasesOf("ready", "ready", "pending", "pending")},
		{"kubelet pending", machines[5], phasesOf("ready", "ready", "pending", "pending")},
		{"unwatched", machines[6], phasesOf("ready", "ready", "ready", "pending")},
		{"ready", machines[7], phasesOf("ready", "ready", "ready", "ready")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Next(c.m, "k-x").Published); diff != "" {
				t.Errorf("published (-want +got):\n%s", diff)
			}
		})
	}
	if got := Next(climb(false, false)[5], "k-x").Published; slices.Contains(slices.Collect(maps.Keys(got)),
		accel.DevicePlugin) {
		t.Errorf("bare metal publishes %v", got)
	}
}

func TestSentenceCountsDevices(t *testing.T) {
	m := climb(true, true)[1] // driver-missing
	h := m.Have["k-x"]
	for n, want := range map[int]string{1: "(1 device)", 2: "(2 devices)"} {
		h.Accelerators = make([]accel.Accelerator, n)
		m.Have = map[string]accel.Have{"k-x": h}
		if got := Next(m, "k-x").Sentence; !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}

func phasesOf(driver, runtime, plugin, rest accel.Phase) map[accel.Published]accel.Phase {
	return map[accel.Published]accel.Phase{
		accel.DriverContainer: driver, accel.RuntimeEnablement: runtime, accel.DevicePlugin: plugin,
		accel.DeviceMonitoring: rest, accel.FeatureDiscovery: rest,
	}
}
