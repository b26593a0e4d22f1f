package probe

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/pace"
)

const (
	one = "0000:01:00.0"
	two = "0000:02:00.0"
	// soon is how long to wait for a program; the test machine is busy.
	soon = 20 * time.Second
)

// bench is a supervisor whose programs are shell scripts.
type bench struct {
	*testing.T
	k    *Supervisor
	def  *accel.Definition
	dir  string
	news chan struct{}
	stop func()

	mu     sync.Mutex
	faults []accel.ProbeFault
	log    strings.Builder
}

// Write implements io.Writer for the log.
func (b *bench) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

// newBench starts a supervisor whose program runs the lines of a script.
func newBench(t *testing.T, script string) *bench {
	t.Helper()
	b := &bench{T: t, dir: t.TempDir(), news: make(chan struct{}, 1)}
	b.def = &accel.Definition{
		Kind: "example-npu", Driver: accel.DriverDefinition{Binds: "npu"},
		Probe: &accel.Probe{Argv: []string{b.script(script)}, Silence: "2s"},
	}
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

// start starts another agent.
func (b *bench) start() {
	b.Helper()
	h, err := host.New("/")
	if err != nil {
		b.Fatal(err)
	}
	b.k = New(Options{
		Host: h, Beside: b.dir, Dir: b.dir, Metrics: []string{"accelerator_temperature_celsius"},
		Log: slog.New(slog.NewTextHandler(b, nil)),
		Changed: func() {
			select {
			case b.news <- struct{}{}:
			default:
			}
		},
		Fault: func(_ *accel.Definition, f accel.ProbeFault) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.faults = append(b.faults, f)
		},
		Backoff: pace.Backoff{First: 20 * time.Millisecond, Max: 20 * time.Millisecond},
	})
	ctx, end := context.WithCancel(context.Background()) // the test's own context ends before its cleanups
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.k.Run(ctx)
	}()
	b.stop = func() { end(); <-done }
}

// script writes a program and returns its path.
func (b *bench) script(text string) string {
	b.Helper()
	name := filepath.Join(b.dir, fmt.Sprintf("program-%d", time.Now().UnixNano()))
	if err := os.WriteFile(name, []byte("#!/bin/sh\ncd "+b.dir+"\necho $$ >> pids\n"+text), 0o755); err != nil {
		b.Fatal(err)
	}
	return name
}

// starts returns how often a program was started.
func (b *bench) starts() int {
	data, _ := os.ReadFile(filepath.Join(b.dir, "pids"))
	return strings.Count(string(data), "\n")
}

// look returns what the agent sees of two devices.
func (b *bench) look() []accel.Accelerator {
	return b.k.Enrich(b.def, []accel.Accelerator{
		{ID: one, Bound: "npu", NUMANode: -1, Health: accel.Health{State: accel.Healthy}},
		{ID: two, Bound: "npu", NUMANode: 1, Health: accel.Health{State: accel.Healthy}},
	})
}

func (b *bench) until(what string, ok func([]accel.Accelerator) bool) []accel.Accelerator {
	b.Helper()
	for began := time.Now(); ; {
		accs := b.look()
		if ok(accs) {
			return accs
		}
		select {
		case <-b.news:
		case <-time.After(50 * time.Millisecond):
		}
		if time.Since(began) > soon {
			b.Fatalf("%s: not within %s; %+v, program %+v, log %s", what, soon, accs, b.k.State(b.def.Kind),
				b.log.String())
		}
	}
}

const (
	hello = `echo '{"hello":{"protocol":1,"program":"watcher 7"}}'` + "\n"
	both  = `echo '{"snapshot":{"devices":[{"id":"0000:01:00.0","model":"NPU 9","serial":"77","uuid":"u-1","numaNode":3},{"id":"0000:02:00.0","model":"NPU 9"}]}}'` + "\n"
	stays = "while sleep 0.2; do echo '{}'; done\n"
)

func model(accs []accel.Accelerator) bool { return accs[0].Model == "NPU 9" }

func TestSnapshot(t *testing.T) {
	b := newBench(t, hello+both+`
echo '{"readings":{"0000:01:00.0":{"accelerator_temperature_celsius":55,"made_up":1},"0000:07:00.0":{}}}'
echo '{"snapshot":{"devices":[{"id":"0000:01:00.0","model":"NPU 9","serial":"77","uuid":"u-1","numaNode":3,"health":{"state":"gone","reason":"Made up","action":"Dance","message":"on fire"}},{"id":"0000:02:00.0"}],"labels":{"example.com/x":"y"}},"unheard":"of"}'
echo '{"fault":{"device":"0000:02:00.0","code":"42"}}'
echo '{"fault":{"device":"0000:03:00.0","code":"42"}}'
`+stays)
	accs := b.until("on fire", func(accs []accel.Accelerator) bool { return accs[0].Health.Message == "on fire" })
	a := accs[0]
	a.Health.Since = time.Time{}
	want := accel.Accelerator{
		ID: one, Bound: "npu", NUMANode: 3, Model: "NPU 9", Serial: "77", UUID: "u-1",
		Health: accel.Health{State: accel.Degraded, Reason: accel.DeviceUnhealthy, Message: "on fire"},
	}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
	if accs[1].Health.State != accel.Healthy || accs[1].NUMANode != 1 {
		t.Errorf("the other one: %+v", accs[1])
	}
	if diff := cmp.Diff(map[string]float64{"accelerator_temperature_celsius": 55},
		b.k.Readings(b.def.Kind, one)); diff != "" {
		t.Errorf("readings (-want +got):\n%s", diff)
	}
	if s := b.k.State(b.def.Kind); s.Program != "watcher 7" || s.Problem != "" || s.Labels["example.com/x"] != "y" {
		t.Errorf("state: %+v", s)
	}
	b.until("one fault", func([]accel.Accelerator) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.faults) == 1 && b.faults[0].Device == two && !b.faults[0].At.IsZero()
	})
}

// TestNonsense: an invalid report ends the program. It is restarted, and its devices keep their state.
func TestNonsense(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"no program":    {"", ""},
		"no JSON":       {hello + "echo nonsense\n" + stays, "a line cannot be read"},
		"another shape": {hello + `echo '{"snapshot":[1]}'` + "\n" + stays, "a line cannot be read"},
		"a long line":   {hello + "head -c 1100000 /dev/zero | tr '\\0' x\n" + stays, "longer than 1048576 bytes"},
		"no hello":      {both + stays, "its first line is no hello"},
		"another tongue": {
			`echo '{"hello":{"protocol":2}}'` + "\n" + stays,
			"it speaks version 2 of the protocol, this agent 1",
		},
		"it ends": {
			hello + "echo the library is upside down >&2\nexit 3\n",
			"exit status 3: the library is upside down",
		},
		"it is silent": {hello + "sleep 100\n", "has said nothing for 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.script)
			if c.want == "" {
				b.def.Probe.Argv, c.want = []string{"not-there"}, "no such file"
			}
			accs := b.until("its end", func([]accel.Accelerator) bool {
				s := b.k.State(b.def.Kind)
				return s != nil && strings.Contains(s.Problem, c.want)
			})
			for _, a := range accs {
				if a.Health.State != accel.Healthy {
					t.Errorf("a device that it never spoke of: %+v", a.Health)
				}
			}
			if c.want != "no such file" {
				b.until("another start", func([]accel.Accelerator) bool { return b.starts() > 1 })
			}
			said := func() int {
				b.mu.Lock()
				defer b.mu.Unlock()
				return strings.Count(b.log.String(), "does not run")
			}
			b.until("a word in the log", func([]accel.Accelerator) bool { return said() > 0 })
			if n := said(); n != 1 {
				t.Errorf("the log says so %d times:\n%s", n, b.log.String())
			}
		})
	}
}

// TestCrash: reports stay valid until the program has been away for too long.
func TestCrash(t *testing.T) {
	b := newBench(t, "if [ -e broken ]; then exit 1; fi\n"+hello+both+stays)
	b.until("known", model)
	if err := os.WriteFile(filepath.Join(b.dir, "broken"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	pids, _ := os.ReadFile(filepath.Join(b.dir, "pids"))
	kill(t, strings.Fields(string(pids))[0])
	b.until("its end", func(accs []accel.Accelerator) bool {
		return strings.Contains(b.k.State(b.def.Kind).Problem, "exit status 1") || accs[0].Health.State != accel.Healthy
	})
	if a := b.look()[0]; a.Health.State != accel.Healthy || a.Model != "NPU 9" {
		t.Errorf("a moment after its end: %+v", a)
	}
	accs := b.until("old", func(accs []accel.Accelerator) bool { return accs[0].Health.State == accel.Degraded })
	if h := accs[0].Health; h.Reason != accel.ProbeUnanswered || !strings.Contains(h.Message, "exit status 1") ||
		accs[0].Model != "NPU 9" {
		t.Errorf("after its silence: %+v", accs[0])
	}
	if err := os.Remove(filepath.Join(b.dir, "broken")); err != nil {
		t.Fatal(err)
	}
	b.until("well", func(accs []accel.Accelerator) bool { return accs[0].Health.State == accel.Healthy })
}

// kill ends a process.
func kill(t *testing.T, pid string) {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(n)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
}

// TestWish: the program runs for the devices that the driver is bound to, as the definition says, and not at all
// without one.
func TestWish(t *testing.T) {
	b := newBench(t, hello+both+stays)
	b.until("known", model)
	b.k.Enrich(b.def, []accel.Accelerator{{ID: one, Bound: "npu"}, {ID: two, Bound: "other"}})
	b.k.Enrich(b.def, []accel.Accelerator{{ID: one, Bound: "npu"}, {ID: two, Bound: "other"}})
	wait(t, "another start", func() bool { return b.starts() == 2 })
	b.k.Enrich(b.def, []accel.Accelerator{{ID: one}, {ID: two}})
	wait(t, "nothing known", func() bool { return b.k.State(b.def.Kind).Program == "" })
	other := *b.def
	other.Probe = &accel.Probe{Argv: []string{b.script(strings.ReplaceAll(hello, "watcher 7",
		"watcher 8") + both + stays)}, Silence: "2s"}
	b.def = &other
	b.until("another program", func([]accel.Accelerator) bool { return b.k.State(b.def.Kind).Program == "watcher 8" })
	b.k.Keep(map[string]*accel.Definition{})
	if s := b.k.State(b.def.Kind); s != nil {
		t.Errorf("a kind that is not wanted any more: %+v", s)
	}
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > soon {
			t.Fatalf("%s: not within %s", what, soon)
		}
	}
}

// TestMissed: a device that the program was started for and does not name.
func TestMissed(t *testing.T) {
	b := newBench(t, hello+`echo '{"snapshot":{"devices":[{"id":"0000:01:00.0","model":"NPU 9"}]}}'`+"\n"+stays)
	accs := b.until("known", model)
	if h := accs[1].Health; h.State != accel.Unhealthy || h.Reason != accel.DeviceUnhealthy ||
		h.Message != "its driver is bound and watcher 7 does not find it" {
		t.Errorf("the other one: %+v", h)
	}
}

// TestAbsent: a program that has nothing to watch reports nothing about devices, even if it should say how they are
// divided.
func TestAbsent(t *testing.T) {
	b := newBench(t, hello+"sleep 1\n"+`echo '{"absent":"no library here"}'`+"\n")
	b.def.Partitions = &accel.Partitions{Told: true}
	if a := b.look()[0]; a.Offered() || a.Withheld.Reason != accel.ProbeUnanswered {
		t.Errorf("before it has said anything: %+v", a)
	}
	b.until("absent", func([]accel.Accelerator) bool {
		return strings.Contains(b.k.State(b.def.Kind).Problem, "no library here")
	})
	for range 20 { // it is retried meanwhile
		if a := b.look()[0]; !a.Offered() {
			t.Fatalf("with nothing to ask: %+v", a)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if b.starts() < 2 {
		t.Error("it was not tried again")
	}
}

// TestNextAgent: the next agent knows the earlier reports at once, until its own program has reported.
func TestNextAgent(t *testing.T) {
	b := newBench(t, hello+both+stays)
	b.def.Partitions = &accel.Partitions{Told: true}
	b.until("known", model)
	b.stop()
	b.def.Probe.Argv = []string{b.script(hello + "sleep 1\n" + strings.ReplaceAll(both, "NPU 9", "NPU 10") + stays)}
	b.start()
	if a := b.look()[0]; a.Model != "NPU 9" || !a.Offered() {
		t.Errorf("before its program has spoken: %+v", a)
	}
	b.until("spoken", func(accs []accel.Accelerator) bool { return accs[0].Model == "NPU 10" })
	b.k.Enrich(b.def, []accel.Accelerator{{ID: one}, {ID: two}}) // unbound: the next driver may divide differently
	wait(t, "nothing known", func() bool { return b.k.State(b.def.Kind).Program == "" })
	b.stop()
	b.start()
	if a := b.look()[0]; a.Model != "" || a.Offered() {
		t.Errorf("after the driver was away: %+v", a)
	}
}

// TestPartitions: the parts that the program reports, with the nodes that the host has.
func TestPartitions(t *testing.T) {
	h, err := host.New("/")
	if err != nil {
		t.Fatal(err)
	}
	def := &accel.Definition{
		Kind: "example-npu", Resource: "example.com/npu",
		Driver: accel.DriverDefinition{Binds: "npu"}, Probe: &accel.Probe{}, Partitions: &accel.Partitions{
			Told:       true,
			WithDevice: true, Env: []string{"PART={{.Name}}"}, Rename: "example.com/part-{{.Profile}}",
		},
	}
	b := &book{changed: func() {}, metrics: map[string]bool{}}
	b.meet("watcher 7", []string{one}, time.Minute)
	b.hear(accel.ProbeLine{Snapshot: &accel.ProbeSnapshot{Devices: []accel.ProbeDevice{{
		ID: one,
		Partitions: []accel.ProbePartition{
			{
				Name: "b", Profile: "half", Nodes: []string{"/dev/null", "/etc/passwd", "/dev/../etc/passwd"},
				Capacity: map[string]int64{"memory": 5},
			},
			{Name: "a", Profile: "half", Nodes: []string{"/dev/npu-not-there"}},
			{Name: "", Profile: "half"},
		},
	}}}})
	a := accel.Accelerator{
		ID: one, Bound: "npu", Nodes: []accel.DeviceNode{{Path: "/dev/npu0", Major: 9}},
		Health: accel.Health{State: accel.Healthy},
	}
	b.complete(h, def, &a)
	want := []accel.Accelerator{
		{
			ID: one + "-half-a", Parent: one, Profile: "half", Bound: "npu", Env: []string{"PART=a"},
			Nodes: []accel.DeviceNode{{Path: "/dev/npu0", Major: 9}},
			Health: accel.Health{
				State: accel.Unhealthy, Reason: accel.NodeMissing,
				Message: "there is no device node /dev/npu-not-there",
			},
		},
		{
			ID: one + "-half-b", Parent: one, Profile: "half", Bound: "npu", Env: []string{"PART=b"},
			Capacity: map[string]int64{"memory": 5},
			Nodes:    []accel.DeviceNode{{Path: "/dev/null", Major: 1, Minor: 3}, {Path: "/dev/npu0", Major: 9}},
		},
	}
	if diff := cmp.Diff(want, a.Partitions); diff != "" {
		t.Errorf("partitions (-want +got):\n%s", diff)
	}
	if name := def.OfferedAs("half"); name != "example.com/part-half" {
		t.Errorf("offered as %q", name)
	}
}
