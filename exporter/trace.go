package exporter

import (
	"math"
	"time"

	"github.com/acceld/acceld/accel"
)

// A trace is a reading of a device over the last hour, for the line on the status page. It is kept in memory alone and
// begins with the agent.
const (
	tracePoints = 120
	traceEvery  = 30 * time.Second
	// maxTraces bounds the memory: 512 devices and partitions take 250 kB.
	maxTraces = 512
)

// trace has the points of one device, a NaN for each time at which nothing was known.
type trace struct {
	name   string // of the reading
	points [tracePoints]float32
	next   int // the index of the next point; the oldest one is there
	last   time.Time
}

// traced is a trace as the page shows it.
type traced struct {
	name   string
	points []float64 // oldest first; NaN where nothing is known
}

// traces are the traces by the device's ID.
type traces map[string]*trace

// traceable are the readings that a line may show. The first one that is known of a device is shown.
func traceable() []string {
	return []string{accel.MetricUtilization, inheritedUtilization, accel.MetricPower, accel.MetricTemperature}
}

// see records the readings of a machine, each at most once every traceEvery, and forgets devices that are not listed
// any more.
func (t traces) see(m accel.Machine) {
	listed := map[string]bool{}
	for kind := range m.Have {
		for _, a := range accel.Flat(m.Have[kind].Accelerators) {
			listed[a.ID] = true
			t.add(a, m.Taken)
		}
	}
	for id := range t {
		if !listed[id] {
			delete(t, id)
		}
	}
}

func (t traces) add(a accel.Accelerator, now time.Time) {
	name, value := "", math.NaN()
	for _, metric := range traceable() {
		if n, ok := a.Metrics[metric]; ok && a.Present() && !math.IsInf(n, 0) {
			name, value = metric, n
			break
		}
	}
	line := t[a.ID]
	switch {
	case line == nil && (name == "" || len(t) >= maxTraces):
		return
	case line == nil || name != "" && name != line.name:
		line = newTrace(name)
		t[a.ID] = line
	}
	line.add(value, now)
}

func newTrace(name string) *trace {
	t := &trace{name: name}
	for i := range t.points {
		t.points[i] = float32(math.NaN())
	}
	return t
}

// add adds a point for now, and gaps for the time since the last one.
func (t *trace) add(value float64, now time.Time) {
	steps := tracePoints
	if !t.last.IsZero() {
		if steps = int(now.Sub(t.last) / traceEvery); steps <= 0 {
			return
		}
	}
	for range min(steps-1, tracePoints) {
		t.put(math.NaN())
	}
	t.put(value)
	t.last = now
}

func (t *trace) put(value float64) {
	t.points[t.next] = float32(value)
	t.next = (t.next + 1) % tracePoints
}

// copied returns the traces for a page.
func (e *Exporter) copied() map[string]traced {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make(map[string]traced, len(e.traces))
	for id, line := range e.traces {
		points := make([]float64, 0, tracePoints)
		for i := range tracePoints {
			points = append(points, float64(line.points[(line.next+i)%tracePoints]))
		}
		all[id] = traced{line.name, points}
	}
	return all
}
