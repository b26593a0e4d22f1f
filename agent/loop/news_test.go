package loop

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
)

// TestStartIsOneLine: a start is one line for each kind, with the devices that are not well then, and afterwards each
// change is one line.
func TestStartIsOneLine(t *testing.T) {
	var out bytes.Buffer
	w := &world{
		pci:     []accel.PCIDevice{device("0000:01:00.0"), device("0000:02:00.0"), device("0000:03:00.0")},
		kubelet: true, labelled: true, undriven: true, sick: map[string]string{"0000:03:00.0": "it burns"},
		log: slog.NewTextHandler(&out, nil),
	}
	run(t, w, func(l *Loop) {
		lines := func(what string, want ...string) {
			t.Helper()
			time.Sleep(20 * time.Second)
			synctest.Wait()
			got := strings.Split(strings.TrimSpace(out.String()), "\n")
			if out.Len() == 0 {
				got = nil
			}
			out.Reset()
			if len(got) != len(want) {
				t.Fatalf("%s: %d lines, want %d:\n%s", what, len(got), len(want), strings.Join(got, "\n"))
			}
			for i, text := range want {
				if !strings.Contains(got[i], text) {
					t.Errorf("%s: %q, want %q", what, got[i], text)
				}
			}
		}
		lines("the start", `msg="accelerators found" kind=k-x state=ready devices="2 offered, 1 sick"`,
			`msg="health changed" kind=k-x device=0000:03:00.0 from="" to=unhealthy reason=DeviceUnhealthy message="it burns"`)
		w.set(func() { delete(w.sick, "0000:03:00.0") })
		l.Changed()
		time.Sleep(time.Minute)
		synctest.Wait()
		if text := out.String(); strings.Count(text, "health changed") != 1 || !strings.Contains(text, "from=unhealthy to=healthy") {
			t.Errorf("a device is well again:\n%s", text)
		}
		out.Reset()
		lines("nothing")
		w.set(func() { w.pci = nil })
		l.Wake(false)
		lines("the devices leave", "from=ready to=absent", "to=gone", "to=gone", "to=gone")
	})
}

// TestSlowStart: what takes long at the start, or is blocked, says where it is, once.
func TestSlowStart(t *testing.T) {
	var out bytes.Buffer
	w := &world{
		pci: []accel.PCIDevice{device("0000:01:00.0")}, log: slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}),
		refuse: accel.Problemf(accel.HeadersMissing, "no headers"),
	}
	run(t, w, func(*Loop) {
		time.Sleep(time.Second)
		synctest.Wait()
		if n := strings.Count(out.String(), `msg="accelerators found" kind=k-x state=driver-missing`); n != 1 ||
			!strings.Contains(out.String(), "reason=HeadersMissing") {
			t.Errorf("%d lines about the kind:\n%s", n, out.String())
		}
	})
}

// TestReadingsOfAnotherDriver: what a device measured with its own driver is not shown once it has another one.
func TestReadingsOfAnotherDriver(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}, bound: "npu"}
	run(t, w, func(l *Loop) {
		time.Sleep(20 * time.Second)
		read := func() float64 {
			synctest.Wait()
			return l.Machine().Have["k-x"].Accelerators[0].Metrics["accelerator_temperature_celsius"]
		}
		if read() != 40 {
			t.Fatal("no reading with its own driver")
		}
		w.set(func() { w.bound = "vfio-pci" })
		l.Wake(false)
		time.Sleep(time.Second)
		if got := read(); got != 0 {
			t.Errorf("with another driver it is still at %v", got)
		}
	})
}

// TestWorkInProgress: the machine has the work of each kind, and the sentence says it without what changes by the
// second.
func TestWorkInProgress(t *testing.T) {
	w := &world{pci: []accel.PCIDevice{device("0000:01:00.0")}}
	run(t, w, func(l *Loop) {
		time.Sleep(time.Minute)
		w.set(func() {
			w.work = []accel.Progress{
				{Kind: "k-x", Stage: accel.StagePull, What: "registry.example/x", Since: time.Now().Add(-9 * time.Second)},
				{Kind: "other", Stage: accel.StageBuild, Since: time.Now()},
			}
		})
		l.Changed()
		synctest.Wait()
		m := l.Machine()
		if work := m.Have["k-x"].Work; len(work) != 1 || work[0].What != "registry.example/x" {
			t.Errorf("work %+v", work)
		}
		if s := m.Status["k-x"].Sentence; !strings.Contains(s, "; pulling registry.example/x since ") ||
			!strings.HasSuffix(s, ", no byte comes") {
			t.Errorf("sentence %q", s)
		}
	})
}

// TestRetryIsAhead: a time of a retry that has come is not told.
func TestRetryIsAhead(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	f := accel.Failure{Problem: accel.Problem{Reason: accel.LoadFailed, Message: "no"}}
	for at, want := range map[time.Time]string{
		{}:                    "no (LoadFailed); tried again when the machine or the configuration changes",
		now.Add(time.Minute):  "no (LoadFailed); tried again at 12:01:00",
		now:                   "no (LoadFailed); being tried again",
		now.Add(-time.Minute): "no (LoadFailed); being tried again",
	} {
		f.RetryAt = at
		if got := failed(&f, now); got != want {
			t.Errorf("%s: %q, want %q", fmt.Sprint(at), got, want)
		}
	}
}
