package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// readings is how many complete readings of the machine the agent may take to act on an event, after those who only
// listen have heard of it. It reads the machine once for all events that come together, and a device that appears
// computes before it is offered.
const readings = 2

// event is something that happens to the machine.
type event struct {
	name string
	do   func(t *testing.T)
	// heard is the line of a plain listener, and acted the one of what the agent makes of it.
	heard, acted string
}

// TestAtOnce: what documents call "at once" is so by the events themselves. No clock is asked that a busy machine makes
// wrong: a witness in the same guest hears the same events, as udev's own listeners do, and sees when the agent has
// acted on them; that difference is held against how long `acceld detect` takes there to read the machine once. The
// agent's timers are set to an hour, so that none of them helps. Medians of three rounds count.
func TestAtOnce(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2, NoKubernetes: true})
	g := n.Guest
	const slow = "sampleEvery: 1h\nresync: 1h\n"
	stage.Check(t, s.Units(t.Context(), g, slow))
	stage.Check(t, s.Store(t.Context(), g, stage.Version))
	stage.Check(t, s.Enable(t.Context(), g))
	reaches(t, g, accel.Ready, 5*time.Minute)
	stage.Check(t, s.Witness(stage.Within(t, 2*soon), g, "/run/cdi", "/etc/acceld"))
	w := &witnessed{g: g}
	w.await(t, regexp.MustCompile(`^agent usable=2 `))
	script := func(text string, args ...string) func(*testing.T) {
		return func(t *testing.T) { sh(t, g, text, args...) }
	}
	config := func(more string) func(*testing.T) {
		return func(t *testing.T) {
			stage.Check(t, g.WriteFile(stage.Within(t, soon), "/etc/acceld/config.yaml", []byte(slow+more), 0o644))
		}
	}
	const first, second = "0000:01:00.0", "0000:02:00.0"
	const spec = "/run/cdi/qemu.org-edu.json"
	events := []event{
		{"a device is pulled", func(t *testing.T) {
			stage.Check(t, n.Unplug(stage.Within(t, soon), 1))
		}, "udev remove pci .*/" + second, "agent usable=1 .*"},
		{"a device is put in, has its driver and computes", func(t *testing.T) {
			stage.Check(t, n.Plug(stage.Within(t, soon), 1))
		}, "udev bind pci .*/" + second, "agent usable=2 .*"},
		{
			"a device says that it is ill", script(`echo fail > /sys/bus/pci/devices/$1/inject_error`, first),
			"udev change pci .*/" + first, "agent usable=1 .*",
		},
		{
			"it is well again", script(`echo none > /sys/bus/pci/devices/$1/inject_error`, first),
			"udev change pci .*/" + first, "agent usable=2 .*",
		},
		{"somebody removes the CDI spec", script(`rm ` + spec), "file -" + spec, "file " + spec},
		{
			"the configuration is edited", config("kinds: {qemu-edu: {sharing: {replicas: 2}}}\n"),
			"file /etc/acceld/config.yaml", "agent .* replicas=2",
		},
		{"and edited again", config(""), "file /etc/acceld/config.yaml", "agent .* replicas=0"},
	}
	const rounds = 3
	lags, took := make([][]float64, len(events)), []float64{}
	for range rounds {
		took = append(took, w.reading(t))
		for i, e := range events {
			lags[i] = append(lags[i], w.lag(t, e))
		}
		took = append(took, w.reading(t))
	}
	reading := median(took)
	t.Logf("one reading of the machine by acceld detect takes %.3f s: %.3f", reading, took)
	for i, e := range events {
		lag := median(lags[i])
		t.Logf("%-50s %6.3f s after the listener, %.2f readings: %.3f", e.name, lag, lag/reading, lags[i])
		if lag > readings*reading {
			t.Errorf("%s: the agent acts %.3f s after who only listens, more than %d readings of the machine", e.name,
				lag, readings)
		}
	}
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// witnessed is a guest with a witness; seen is how many of its lines are of what was before.
type witnessed struct {
	g    *bed.Guest
	seen int
}

// await waits until there are lines that match, in this order, and returns their times. Lines before the last are of
// the past then.
func (w *witnessed) await(t *testing.T, want ...*regexp.Regexp) []float64 {
	t.Helper()
	for ctx := stage.Within(t, soon); ; time.Sleep(300 * time.Millisecond) {
		lines := strings.Split(strings.TrimSpace(sh(t, w.g, "cat "+stage.WitnessLog)), "\n")
		var at []float64
		for i := w.seen; i < len(lines) && len(at) < len(want); i++ {
			moment, what, _ := strings.Cut(lines[i], " ")
			if !want[len(at)].MatchString(what) {
				continue
			}
			seconds, err := strconv.ParseFloat(moment, 64)
			stage.Check(t, err)
			at = append(at, seconds)
		}
		if len(at) == len(want) {
			w.seen = len(lines)
			return at
		}
		if ctx.Err() != nil {
			t.Fatalf("the witness has no %q in\n%s", want, strings.Join(lines[w.seen:], "\n"))
		}
	}
}

// lag makes an event and returns how much later than the listener's line the agent's is, in seconds; less than nothing
// where it is earlier.
func (w *witnessed) lag(t *testing.T, e event) float64 {
	t.Helper()
	time.Sleep(2 * time.Second) // what the event before has brought about is over
	w.seen = len(strings.Split(strings.TrimSpace(sh(t, w.g, "cat "+stage.WitnessLog)), "\n"))
	from := w.seen
	e.do(t)
	heard := w.await(t, regexp.MustCompile("^"+e.heard+"$"))
	w.seen = from // the agent may have been the quicker one
	acted := w.await(t, regexp.MustCompile("^"+e.acted+"$"))
	return acted[0] - heard[0]
}

// reading is how long a program of its own takes to read the machine once, in seconds.
func (w *witnessed) reading(t *testing.T) float64 {
	t.Helper()
	took := sh(t, w.g, `begin=$(date +%s%N); acceld detect > /dev/null; end=$(date +%s%N); echo $((end - begin))`)
	n, err := strconv.ParseFloat(took, 64)
	if err != nil {
		t.Fatal(fmt.Errorf("%q: %w", took, err))
	}
	return n / 1e9
}
