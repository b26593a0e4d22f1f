package cli

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/exporter"
)

var update = flag.Bool("update", false, "write the golden files")

func night() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local) }

// states returns the states of a kind, in order.
func states() []accel.State {
	return []accel.State{
		accel.Absent, accel.DriverMissing, accel.DriverUnproven, accel.RuntimeMissing,
		accel.PluginMissing, accel.KubeletPending, accel.Unwatched, accel.Ready, "",
	}
}

// steps returns the steps that leave them.
func steps() map[accel.State]accel.Step {
	return map[accel.State]accel.Step{
		accel.Absent: accel.StepWithdraw, accel.DriverMissing: accel.StepDriver, accel.DriverUnproven: accel.StepProve,
		accel.RuntimeMissing: accel.StepRuntime,
		accel.PluginMissing:  accel.StepRegister, accel.KubeletPending: accel.StepAwait,
		accel.Unwatched: accel.StepMonitor,
	}
}

// anyCards returns two cards; the second has the given health.
func anyCards(h accel.Health) []accel.Accelerator {
	well := accel.Health{State: accel.Healthy, Since: night().Add(-4 * time.Hour)}
	return []accel.Accelerator{
		{
			ID: "0000:18:00.0", NUMANode: 0, Bound: "npu", Serial: "NPU24A04711", Nodes: []accel.DeviceNode{{Path: "/dev/npu0"}},
			Health: well, Metrics: map[string]float64{"accelerator_temperature_celsius": 41.5},
		},
		{
			ID: "0000:20:00.0", NUMANode: 1, Bound: "npu", Serial: "NPU24A04712", Nodes: []accel.DeviceNode{{Path: "/dev/npu1"}},
			Health: h, Metrics: map[string]float64{"accelerator_temperature_celsius": 88},
		},
	}
}

// used are two cards, the first of which is used by those who may not; of the second it is not known.
func used(cards []accel.Accelerator) []accel.Accelerator {
	cards[0].Unrequested = &accel.UnrequestedHave{Count: 18, Users: []accel.UnrequestedUser{
		{
			Holder:    accel.Holder{PID: 4242, Comm: "python3\x1b", PodUID: "u", Namespace: "ml", Pod: "train-llama-1"},
			Processes: 9, Given: []string{"0000:20:00.0"},
		},
		{Holder: accel.Holder{PID: 17, Comm: "sh"}, Processes: 1, Unit: "session-3.scope"},
	}}
	cards[1].Unrequested = &accel.UnrequestedHave{Unknown: "the kubelet does not answer"}
	return cards
}

// usedBy are two cards of which somebody uses something.
func usedBy(cards []accel.Accelerator) []accel.Accelerator {
	cards[0].Use = &accel.UseHave{Users: []accel.User{
		{
			PodUID: "u", Namespace: "ml", Pod: "train-llama-0", Container: "main", NamedContainer: true, Processes: 2,
			MemoryBytes: accel.Known[int64](31 << 30), Busy: accel.Known(0.62),
			EngineSeconds: map[string]float64{"compute": 7384.2, "copy": 14.25},
		},
		{PodUID: "v", Namespace: "ml", Pod: "chat", Container: "0f1e2d3c4b5a", MemoryBytes: accel.Known[int64](1536)},
		{Unit: "session-3.scope\x1b", EngineSeconds: map[string]float64{"compute": 0}, Busy: accel.Known(0.0)},
	}, LeftOut: 2, Unread: 1}
	cards[1].Use = &accel.UseHave{Unknown: "the last look at the processes of the host has not ended"}
	return cards
}

// readingCards are cards with many readings, with few, and with none; the last one is not well.
func readingCards() []accel.Accelerator {
	well := accel.Health{State: accel.Healthy, Since: night().Add(-4 * time.Hour)}
	cards := append(anyCards(well), anyCards(accel.Health{
		State: accel.Unhealthy, Reason: accel.DeviceFault, Message: "fault 79: fallen off the bus",
		Action: accel.ActionReboot, Since: night().Add(-65 * time.Second),
	})[1])
	cards[0].Metrics = map[string]float64{
		accel.MetricTemperature: 41.5, accel.MetricUtilization: 0.97, accel.MetricMemoryUsed: 31 << 30,
		accel.MetricMemoryTotal: 80 << 30, accel.MetricPower: 388, accel.MetricPowerLimit: 400,
	}
	cards[0].Model, cards[0].UUID = "Example NPU 400", "NPU-7c0e"
	cards[1].Metrics = map[string]float64{
		accel.MetricTemperature: 35, accel.MetricUtilization: 0, accel.MetricMemoryTotal: 80 << 30,
	}
	cards[2].ID, cards[2].Metrics, cards[2].Serial, cards[2].Nodes = "0000:28:00.0", nil, "NPU24A04713", nil
	return cards
}

// stood returns a machine with one kind.
func stood(st accel.Status, have accel.Have) shown {
	st.Since = night().Add(-4 * time.Minute)
	return shown{now: night(), Machine: accel.Machine{
		Taken: night(), Agent: accel.Agent{
			Version: "1.2.3", Started: night().Add(-2 * time.Hour),
			Node: "gpu-17.example.com",
		}, Facts: accel.Facts{Kernel: accel.Kernel{Release: "6.1.0-47-amd64"}},
		Want: accel.Want{Kubernetes: true, Kinds: map[string]*accel.Definition{"example-npu": {
			Kind:     "example-npu",
			Resource: "example.com/npu",
		}}},
		Have:   map[string]accel.Have{"example-npu": have},
		Status: map[string]accel.Status{"example-npu": st},
	}, holders: map[string][]exporter.Holder{"0000:18:00.0": {{
		Namespace: "ml", Pod: "train-llama-0",
		Container: "main",
	}, {Namespace: "ml", Pod: "train-llama-0", Container: "side"}}}}
}

// message is a sentence like those of steps, for a reason.
const message = `cannot load module "npu" from "/var/lib/acceld/kmod/6.1.0-47-amd64/npu/0f1e2d3c4b5a/npu.ko": the kernel's own words`

// every calls visit with a machine for every state, for every reason that blocks a kind or explains an unhealthy
// device, and for every phase of an upgrade.
func every(visit func(title string, m shown)) {
	well := accel.Health{State: accel.Healthy, Since: night().Add(-4 * time.Hour)}
	for _, s := range states() {
		st := accel.Status{
			State: s, Next: steps()[s], Sentence: "what is the case now (2 devices)",
			Published: map[accel.Published]accel.Phase{
				accel.DriverContainer: accel.PhaseReady,
				accel.DevicePlugin:    accel.PhasePending,
			},
		}
		have := accel.Have{Accelerators: anyCards(well)}
		if s == accel.Ready {
			have.Driver = accel.DriverHave{
				Serves: true, Source: "store",
				Modules: []accel.LoadedModule{{Name: "npu", Version: "1.0.0"}},
				Proof:   "10! computed by the device's engine (2 devices)",
			}
			have.Runtime = accel.RuntimeHave{
				Applied: true, Spec: "/var/run/cdi/acceld-example-npu.json",
				Hook: "/usr/share/containers/oci/hooks.d/acceld.json",
			}
			have.Plugin = accel.PluginHave{Registered: true, Allocatable: accel.Known(2)}
		}
		visit(fmt.Sprintf("state %q", s), stood(st, have))
	}
	visit("a driver without a check", stood(accel.Status{
		State: accel.Ready, Published: map[accel.Published]accel.Phase{
			accel.DriverContainer: accel.PhaseUnchecked, accel.DevicePlugin: accel.PhaseReady,
		},
	}, accel.Have{Accelerators: anyCards(well), Driver: accel.DriverHave{
		Serves: true, Source: "installed", Unchecked: true,
		Modules: []accel.LoadedModule{{Name: "npu", Version: "1.0.0"}},
	}}))
	set := anyCards(well)
	set[0].Settings = []accel.SettingHave{
		{Name: "persistence", Want: "on", Value: "on", State: accel.SettingApplied},
		{Name: "powerLimitWatts", Want: "250", Value: "250", State: accel.SettingApplied, Drifts: 2},
		{Name: "computeMode", Want: "exclusive", Value: "default", State: accel.SettingWaits, Message: "until nobody has the device: ml/train-llama-0"},
	}
	set[1].Settings = []accel.SettingHave{{
		Name: "powerLimitWatts", Want: "250", Value: "300", State: accel.SettingRefused,
		Message: "250 is below 275, the least that this device allows",
	}}
	visit("settings", stood(accel.Status{State: accel.Ready}, accel.Have{Accelerators: set}))
	visit("a container runtime that does not read the spec", stood(accel.Status{State: accel.Ready},
		accel.Have{Accelerators: anyCards(well), Runtime: accel.RuntimeHave{
			Applied: true, Spec: "/var/run/cdi/acceld-example-npu.json",
			NotHonored: accel.Problemf(accel.RuntimeMissingCDI,
				`docker does not read CDI specs in "/var/run/cdi"`),
		}}))
	visit("readings", stood(accel.Status{State: accel.Ready, Took: map[accel.State]time.Duration{
		accel.DriverMissing: 820 * time.Millisecond, accel.DriverUnproven: 41 * time.Millisecond,
	}}, accel.Have{Accelerators: readingCards()}))
	visit("a library is missing", stood(accel.Status{State: accel.Ready},
		accel.Have{Accelerators: anyCards(well), Runtime: accel.RuntimeHave{
			Applied: true, Spec: "/var/run/cdi/acceld-example-npu.json",
			LibraryMissing: accel.Problemf(accel.LibraryMissing,
				`the driver of "example-npu" is loaded, and the host lacks what every container needs: "libnpu.so.1"`),
		}}))
	hanging := stood(accel.Status{State: accel.DriverMissing, Next: accel.StepDriver},
		accel.Have{Accelerators: anyCards(well)})
	hanging.atWork = []accel.Progress{{
		Kind: "example-npu", Stage: accel.StagePull, What: "registry.example.com/drivers/npu:1.0.0-6.1.0-47-amd64",
		Done: 45e6, Total: 100e6, Since: night().Add(-time.Minute), Moved: night().Add(-12 * time.Second),
	}}
	visit("a pull that hangs", hanging)
	visit("use without a request", stood(accel.Status{State: accel.Ready}, accel.Have{Accelerators: used(anyCards(well))}))
	m := stood(accel.Status{State: accel.Ready}, accel.Have{Accelerators: usedBy(anyCards(well))})
	m.uses = true
	visit("what is used", m)
	m = stood(accel.Status{State: accel.Ready}, accel.Have{Accelerators: anyCards(well)})
	m.Facts.Maintenance = accel.ParseMaintenance([]accel.RawCondition{
		{Type: "MaintenanceInProgress", Status: "True", Reason: "FanReplacement", Message: "rack 7", Since: night()},
		{Type: "Drained", Status: "True", Reason: "KubectlDrainCompleted"},
	})
	visit("somebody else's work on the node", m)
	for i, r := range accel.Reasons() {
		f := accel.Failure{
			Step: accel.StepDriver, Problem: accel.Problem{Reason: r.Reason, Message: message},
			Since: night().Add(-30 * time.Hour), Attempts: 1 + i%3,
		}
		if !r.Permanent {
			f.RetryAt = night().Add(time.Minute)
			f.Tried = []string{
				"store: no driver 1.0.0 for kernel 6.1.0-47-amd64",
				`installed: no module "npu" below /lib/modules/6.1.0-47-amd64`,
			}
		}
		visit("blocked by "+string(r.Reason), stood(accel.Status{
			State: accel.DriverMissing, Next: accel.StepDriver,
			Blocked: &f,
		}, accel.Have{}))
		h := accel.Health{
			State: accel.HealthStates()[1+i%3], Reason: r.Reason, Message: message,
			Since: night().Add(-65 * time.Second),
		}
		if i%4 > 0 {
			h.Action, h.Evidence = accel.Actions()[i%4], "npu 0000:20:00.0: fault 79, pid 4242, name python3"
		}
		visit("a device that is not well for "+string(r.Reason),
			stood(accel.Status{State: accel.Ready, Sentence: "1 of 2 devices usable; and more"},
				accel.Have{Accelerators: anyCards(h)[1:]}))
	}
	for _, p := range []accel.UpgradePhase{
		accel.UpgradePending, accel.UpgradePreparing, accel.UpgradeWaiting,
		accel.UpgradeDraining, accel.UpgradeReplacing,
	} {
		u := &accel.Upgrade{
			From: accel.DriverRef{Version: "1.0.0"}, To: accel.DriverRef{Version: "2.0.0"}, Phase: p,
			Since: night().Add(-time.Hour), Holders: []accel.Holder{{
				PID: 4242, Comm: "python3", Namespace: "ml",
				Pod: "train-llama-0",
			}},
		}
		if p == accel.UpgradeWaiting {
			u.Failure = &accel.Failure{Problem: accel.Problem{
				Reason:  accel.InUse,
				Message: `the driver of "example-npu" is in use by python3 (pid 4242, pod ml/train-llama-0)`,
			}}
		}
		visit("upgrade "+string(p), stood(accel.Status{State: accel.Ready}, accel.Have{
			Accelerators: anyCards(well),
			Driver:       accel.DriverHave{Upgrade: u},
		}))
	}
}

// TestStatusOfEverything compares the pages of every state and every reason at three widths with golden files. It
// also checks that each page fits, that no table is broken, and that nothing required is missing.
func TestStatusOfEverything(t *testing.T) {
	for _, width := range []int{60, 80, 120} {
		var all strings.Builder
		every(func(title string, m shown) {
			s := &tableWriter{width: width}
			printMachine(s, m)
			fmt.Fprintf(&all, "==== %s\n%s\n", title, s)
			fits(t, title, s.String(), width)
			said(t, title, s.String(), m)
		})
		file := fmt.Sprintf("testdata/status-%d.txt", width)
		if *update {
			if err := os.WriteFile(file, []byte(all.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), all.String()); diff != "" {
			t.Errorf("%s (go test ./cmd/acceld/cli -run StatusOfEverything -update writes it; -want +got):\n%s", file,
				diff)
		}
	}
}

// fits: no line is wider than the tableWriter, except a single word, and continuation lines are indented.
func fits(t *testing.T, title, text string, width int) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if visible(line) > width && len(strings.Fields(line)) > 2 {
			t.Errorf("%s at %d: %d columns: %q", title, width, visible(line), line)
		}
		if strings.HasSuffix(line, " ") {
			t.Errorf("%s at %d: spaces at the end of %q", title, width, line)
		}
	}
}

// said: at any width, the page has the state, the reason, its message, what to do, who acts, and who holds a device.
func said(t *testing.T, title, text string, m shown) {
	t.Helper()
	flat := strings.Join(strings.Fields(text), " ")
	var want []string
	st, have := m.Status["example-npu"], m.Have["example-npu"]
	if f := st.Blocked; f != nil {
		want = append(want, "example-npu driver-missing, blocked", string(f.Reason)+": "+f.Message,
			f.Reason.Doc().Remedy+" ("+string(f.Reason.Doc().Actor)+")", retry(m.now, f))
		want = append(want, f.Tried...)
	}
	if st.Blocked == nil {
		want = append(want, stepWords(st.Next))
	}
	if p := have.Runtime.NotHonored; p != nil {
		want = append(want, string(p.Reason)+": "+p.Message, p.Reason.Doc().Remedy+" ("+string(p.Reason.Doc().Actor)+
			")")
	}
	for _, a := range have.Accelerators {
		if h := a.Health; st.State != "" {
			want = append(want, string(st.State), a.ID, m.held(a), string(h.State))
			if h.State != accel.Healthy {
				want = append(want, string(h.Reason)+": "+h.Message, a.Remedy(), h.Evidence)
			}
		}
	}
	for _, w := range want {
		if !strings.Contains(flat, strings.Join(strings.Fields(w), " ")) {
			t.Errorf("%s: %q is not said in\n%s", title, w, text)
		}
	}
}

// TestTop compares the table of what devices do, and the wide table of the status, with golden files.
func TestTop(t *testing.T) {
	m := stood(accel.Status{State: accel.Ready}, accel.Have{Accelerators: readingCards()})
	m.Facts.PCI = []accel.PCIDevice{{
		Address: "0000:18:00.0", Link: accel.Link{SpeedGTs: 16, MaxSpeedGTs: 32, Width: 8, MaxWidth: 16},
	}, {
		Address: "0000:20:00.0", DeviceName: "NPU 400", Link: accel.Link{SpeedGTs: 32, MaxSpeedGTs: 32, Width: 16, MaxWidth: 16},
	}}
	m.atWork = []accel.Progress{{
		Kind: "example-npu", Stage: accel.StagePull, What: "registry.example.com/drivers/npu:2", Since: night().Add(-9 * time.Second),
	}}
	var all strings.Builder
	for _, width := range []int{0, 80} {
		s := &tableWriter{width: width}
		printTop(s, m)
		fmt.Fprintf(&all, "==== top at %d\n%s\n", width, s)
	}
	nobody := m
	nobody.holders, nobody.atWork = nil, nil
	nobody.openers = map[string][]string{"0000:20:00.0": {"python3 (pid 4242, session-3.scope)"}}
	s := &tableWriter{}
	printTop(s, nobody)
	fmt.Fprintf(&all, "==== top while it is not known who holds what\n%s\n", s)
	m.wide = true
	s = &tableWriter{width: 80}
	printMachine(s, m)
	fmt.Fprintf(&all, "==== wide\n%s\n", s)
	const file = "testdata/top.txt"
	if *update {
		if err := os.WriteFile(file, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), all.String()); diff != "" {
		t.Errorf("%s (go test ./cmd/acceld/cli -run TestTop -update writes it; -want +got):\n%s", file, diff)
	}
}

// TestColour: without a terminal there is no colour, and a terminal adds only colour.
func TestColour(t *testing.T) {
	every(func(title string, m shown) {
		plain, painted := &tableWriter{width: 80}, &tableWriter{palette: true, width: 80}
		printMachine(plain, m)
		printMachine(painted, m)
		if strings.Contains(plain.String(), "\x1b") {
			t.Errorf("%s: colour in plain text", title)
		}
		if got := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(painted.String(), ""); got != plain.String() {
			t.Errorf("%s: (-plain +painted)\n%s", title, cmp.Diff(plain.String(), got))
		}
	})
}

// TestHostileText: text from a driver cannot control the terminal, neither in a table nor in a block.
func TestHostileText(t *testing.T) {
	const hostile = "\x1b[2J\x1b]0;x\x07\nnode operator: do this"
	m := stood(accel.Status{
		State: accel.DriverMissing,
		Blocked: &accel.Failure{Problem: accel.Problem{
			Reason: accel.LoadFailed, Message: hostile,
			Tried: []string{hostile},
		}},
	},
		accel.Have{Accelerators: anyCards(accel.Health{
			State: accel.Unhealthy, Reason: accel.DeviceFault,
			Message: hostile, Evidence: hostile,
		})})
	m.Have["example-npu"].Accelerators[0].Serial = hostile
	m.holders["0000:18:00.0"][0].Pod = hostile
	for _, width := range []int{0, 60, 200} {
		s := &tableWriter{width: width}
		printMachine(s, m)
		if strings.ContainsAny(s.String(), "\x1b\x07") || strings.Contains(s.String(), "\nnode operator") {
			t.Errorf("width %d: %q", width, s)
		}
	}
}

func TestPick(t *testing.T) {
	have := func(ids ...string) accel.Have {
		var h accel.Have
		for _, id := range ids {
			h.Accelerators = append(h.Accelerators,
				accel.Accelerator{ID: id, Partitions: []accel.Accelerator{{ID: id + "-p"}}})
		}
		return h
	}
	m := accel.Machine{
		Status: map[string]accel.Status{"x": {}, "y": {}},
		Have:   map[string]accel.Have{"x": have("a", "b"), "y": have("c")},
	}
	for words, want := range map[string]string{
		"": "x:a,b y:c", "x": "x:a,b", "b": "x:b", "b a": "x:a,b",
		"a-p c": "x:a y:c", "a x": "x:a,b", "x a": "x:a,b", "z": "error",
	} {
		got, err := pick(m, strings.Fields(words))
		var parts []string
		for _, kind := range sorted(got.Status) {
			var ids []string
			for _, a := range got.Have[kind].Accelerators {
				ids = append(ids, a.ID)
			}
			parts = append(parts, kind+":"+strings.Join(ids, ","))
		}
		text := strings.Join(parts, " ")
		if err != nil {
			text = "error"
		}
		if text != want {
			t.Errorf("%q: %s, want %s", words, text, want)
		}
	}
}

// TestAge: a time slightly ahead of the page's, which has whole seconds, counts as now.
func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-98 * time.Millisecond: "0s", 0: "0s", 911 * time.Millisecond: "911ms", 119 * time.Second: "119s",
		4 * time.Minute: "4m", 47 * time.Hour: "47h", 49 * time.Hour: "2d",
	} {
		if got := age(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestLasted(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 577 * time.Millisecond: "577ms", 1912 * time.Millisecond: "1.9s", 9960 * time.Millisecond: "10s",
		12900 * time.Millisecond: "12s", 4 * time.Minute: "4m",
	} {
		if got := lasted(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// TestModels: devices of one model are counted, and a single device has no count.
func TestModels(t *testing.T) {
	of := func(models ...string) (all []accel.Accelerator) {
		for _, m := range models {
			all = append(all, accel.Accelerator{Model: m})
		}
		return all
	}
	for want, accs := range map[string][]accel.Accelerator{
		"":               of("", ""),
		"H100":           of("H100"),
		"2 × A2, 1 × T4": of("A2", "T4", "A2", ""),
		"1 × a b":        of("a\x1bb", ""),
	} {
		if got := models(accs); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
