package probe

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// idle returns a program that is not run.
func idle(faults *[]accel.ProbeFault) (*program, *accel.Definition) {
	def := &accel.Definition{Kind: "example-npu", Probe: &accel.Probe{Argv: []string{"watcher"}}}
	p := newProgram(Options{
		Metrics: []string{"accelerator_temperature_celsius"}, Log: slog.New(slog.DiscardHandler), Changed: func() {},
		Fault: func(_ *accel.Definition, f accel.ProbeFault) { *faults = append(*faults, f) },
	}, def)
	p.want(def, []string{one})
	return p, def
}

// TestPause ends the program while the driver is replaced, and starts it again afterwards.
func TestPause(t *testing.T) {
	b := newBench(t, hello+both+stays)
	b.until("known", model)
	pids := func() []string {
		text, _ := os.ReadFile(filepath.Join(b.dir, "pids"))
		return strings.Fields(string(text))
	}
	resume := b.k.Pause(t.Context(), b.def.Kind)
	before := pids()
	pid, err := strconv.Atoi(before[len(before)-1])
	if err != nil || b.k.Owns(pid) {
		t.Errorf("process %d runs while the driver is replaced (%v)", pid, err)
	}
	time.Sleep(200 * time.Millisecond)
	b.look()
	if now := pids(); len(now) != len(before) {
		t.Errorf("started while the driver is replaced: %v, then %v", before, now)
	}
	resume()
	b.until("another start", func([]accel.Accelerator) bool { return len(pids()) > len(before) })
}

// TestPauseKeeps: while one device is reset, the reports about the others apply. Those about a device end when its
// driver is unbound.
func TestPauseKeeps(t *testing.T) {
	b := newBench(t, hello+`echo '{"snapshot":{"devices":[{"id":"0000:01:00.0","model":"NPU 9","partitions":[`+
		`{"name":"a","profile":"half"}]},{"id":"0000:02:00.0","health":{"state":"unhealthy","message":"hot"}}]}}'`+
		"\n"+stays)
	b.def.Partitions = &accel.Partitions{Told: true}
	b.until("known", model)
	resume := b.k.Pause(t.Context(), b.def.Kind)
	time.Sleep(200 * time.Millisecond)
	if accs := b.look(); len(accs[0].Partitions) != 1 || accs[1].Health.Message != "hot" {
		t.Errorf("paused: %+v", accs)
	}
	b.k.Enrich(b.def, []accel.Accelerator{{ID: one}, {ID: two, Bound: "npu"}})
	time.Sleep(200 * time.Millisecond)
	if accs := b.look(); accs[0].Model != "" || accs[0].Offered() || accs[1].Health.Message != "hot" {
		t.Errorf("the first was unbound: %+v", accs)
	}
	resume()
	b.until("known again", model)
}

// TestPendingDivision: a device that waits to be divided is given to nobody while its program restarts.
func TestPendingDivision(t *testing.T) {
	b := newBench(t, "if [ $(wc -l < pids) -gt 1 ]; then sleep 100; fi\n"+hello+both+"sleep 1\nexit 1\n")
	b.def.Partitions = &accel.Partitions{Told: true, Layout: []accel.Layout{{Parts: map[string]int{"half": 2}}}}
	b.k.o.Users = func(context.Context, *accel.Definition, accel.Accelerator) []string { return nil }
	b.until("it waits", func(accs []accel.Accelerator) bool { return model(accs) && accs[0].Withheld != nil })
	b.until("its program ends", func([]accel.Accelerator) bool { return b.k.State(b.def.Kind).Problem != "" })
	if a := b.look()[0]; a.Withheld == nil || a.Withheld.Reason != accel.DeviceHeld {
		t.Errorf("%+v", a)
	}
}

// TestModeForParts: a device in the mode for parts that should be whole is divided again, whatever else is found wrong
// with it, unless its own program finds something worse.
func TestModeForParts(t *testing.T) {
	for reason, withheld := range map[accel.Reason]bool{accel.DevicePartitioned: true, accel.BusErrors: false} {
		p, def := idle(nil)
		def.Partitions = &accel.Partitions{Told: true, Layout: []accel.Layout{{}}}
		p.book.meet("watcher 7", []string{one}, time.Minute)
		p.book.hear(accel.ProbeLine{Snapshot: &accel.ProbeSnapshot{Devices: []accel.ProbeDevice{{
			ID: one, Health: &accel.ProbeHealth{State: accel.Unhealthy, Reason: reason},
		}}}})
		a := accel.Accelerator{ID: one, Health: accel.Health{State: accel.Unhealthy, Reason: accel.DeviceFault}}
		p.hold(def, &a, p.book.complete(nil, def, &a))
		if a.WithheldBy(accel.ByPartitioning) != withheld {
			t.Errorf("the program reports %s: %+v", reason, a.Withheld)
		}
	}
}

// TestRequestOfBefore: a program gets no request before it has reported how devices are divided, and a request that
// nobody takes is given up soon, because pods may get the device meanwhile.
func TestRequestOfBefore(t *testing.T) {
	b := newBench(t, hello+stays)
	b.look()
	wait(t, "it runs", func() bool { return b.k.State(b.def.Kind).Program != "" })
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	x := &division{answer: make(chan string, 1)}
	if problem := b.k.known(b.def.Kind).request(ctx, one, nil, x); problem != "no program runs" {
		t.Errorf("%q", problem)
	}
}

// TestLateAnswer: the answer to an earlier request for other parts is not the answer to the last one.
func TestLateAnswer(t *testing.T) {
	p, _ := idle(nil)
	x := &division{asked: map[string]int{"half": 2}, answer: make(chan string, 1)}
	p.of[one] = x
	for _, c := range []struct {
		parts map[string]int
		want  int
	}{{map[string]int{"quarter": 4}, 0}, {map[string]int{"half": 2}, 1}} {
		p.answered(accel.ProbeDivision{Device: one, Parts: c.parts})
		if len(x.answer) != c.want {
			t.Errorf("%v: %d answers", c.parts, len(x.answer))
		}
	}
}

// TestPauseOfTwo: the program resumes only when both callers of pause have resumed, however often one of them does.
func TestPauseOfTwo(t *testing.T) {
	p, _ := idle(nil)
	first, second := p.pause(t.Context()), p.pause(t.Context())
	first()
	first()
	if _, _, ok := p.wish(); ok {
		t.Error("it is to run while one of the two is at work")
	}
	second()
	if _, _, ok := p.wish(); !ok {
		t.Error("it is not to run any more")
	}
}

// TestPauseOfHung: pause does not wait forever for a program that hangs in the kernel.
func TestPauseOfHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := idle(nil)
		p.occupy() // and never vacate
		began := time.Now()
		p.pause(t.Context())
		if took := time.Since(began); took < dying || took > 10*dying {
			t.Errorf("waited for %v", took)
		}
	})
}

// TestFaultTimes: a fault is never in the future, whatever the program says.
func TestFaultTimes(t *testing.T) {
	var faults []accel.ProbeFault
	p, def := idle(&faults)
	introduced := true
	ago := time.Now().Add(-time.Minute).UTC()
	for _, at := range []time.Time{{}, ago, time.Now().Add(time.Hour)} {
		line, err := json.Marshal(accel.ProbeLine{Fault: &accel.ProbeFault{Device: one, Code: "42", At: at}})
		if err == nil {
			err = p.take(def, []string{one}, line, &introduced)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(faults) != 3 || time.Since(faults[0].At) > time.Minute || !faults[1].At.Equal(ago) ||
		faults[2].At.After(time.Now()) {
		t.Errorf("%+v", faults)
	}
}

// TestDeaf: a program that does not read its requests is ended.
func TestDeaf(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ended := make(chan error, 1)
	go func() {
		for {
			if err := tell(&host.Resident{Input: w}, accel.ProbeRequest{}); err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case <-ended:
	case <-time.After(soon):
		t.Error("it is told for ever")
	}
}

// TestOldWords: reports are valid for a limited time after the last sign of life, and a new program must confirm them.
func TestOldWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := book{changed: func() {}, metrics: map[string]bool{"m": true}}
		say := func() {
			b.hear(accel.ProbeLine{Snapshot: &accel.ProbeSnapshot{Devices: []accel.ProbeDevice{{
				ID:    one,
				Model: "NPU 9",
			}}}})
			b.hear(accel.ProbeLine{Readings: map[string]map[string]float64{one: {"m": 1}}})
		}
		b.meet("watcher 7", []string{one}, time.Minute)
		say()
		for range 5 {
			time.Sleep(30 * time.Second)
			b.alive()
		}
		if b.readingsOf(one)["m"] != 1 || b.left(time.Minute) != time.Minute {
			t.Errorf("of a program that is alive: %v, %v left", b.readingsOf(one), b.left(time.Minute))
		}
		b.meet("watcher 7", []string{one}, time.Minute)
		time.Sleep(40 * time.Second)
		b.alive()
		time.Sleep(30 * time.Second)
		if got := b.readingsOf(one); got != nil {
			t.Errorf("the next program shows signs of life and has not said a word: %v", got)
		}
		say()
		if b.readingsOf(one)["m"] != 1 {
			t.Error("it has said it again")
		}
		time.Sleep(2 * time.Minute)
		if got := b.readingsOf(one); got != nil {
			t.Errorf("silent for too long: %v", got)
		}
	})
}

// TestTooMany: a program cannot fill the memory with made-up devices.
func TestTooMany(t *testing.T) {
	b := book{changed: func() {}, metrics: map[string]bool{"m": true}}
	var s accel.ProbeSnapshot
	for i := range 2 * maxDevices {
		id := strconv.Itoa(i)
		s.Devices = append(s.Devices, accel.ProbeDevice{ID: id})
		b.hear(accel.ProbeLine{Readings: map[string]map[string]float64{id: {"m": 1, "made_up": 2}}})
	}
	b.hear(accel.ProbeLine{Snapshot: &s})
	b.hear(accel.ProbeLine{Readings: map[string]map[string]float64{"0": {"m": 3}}})
	if len(b.readings) != maxDevices || len(b.devices) != maxDevices || b.readings["0"]["m"] != 3 ||
		len(b.readings["1"]) != 1 {
		t.Errorf("%d readings, %d devices, %v %v", len(b.readings), len(b.devices), b.readings["0"], b.readings["1"])
	}
}

// TestClean: a program's text fits into a terminal line.
func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		" on fire ": "on fire", "a\nb\x1b[31mc\x7fd\x00e\tf": "a b [31mc d e f", "bad \xff byte": "bad   byte",
		"ü": "ü",
	} {
		if got := clean(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := clean(strings.Repeat("ü", 10*maxText)); len(got) > maxText+len("…") || !strings.HasSuffix(got, "ü…") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
