package probe

import (
	"cmp"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
)

// Limits of what is accepted from one program.
const (
	maxDevices    = 1024
	maxPartitions = 64
	maxLabels     = 256
	maxText       = 200
)

// book holds what a program has reported.
type book struct {
	changed func()
	metrics map[string]bool // allowed names of readings

	mu sync.Mutex
	reports
}

// reports are what is known of a program and from it. The zero reports are those about nothing.
type reports struct {
	program  string
	bound    []string      // the devices that the current program was started for
	fresh    bool          // the current program has reported a snapshot or a problem
	tried    bool          // one has ended, so there may never be an answer
	heard    time.Time     // when the following was last confirmed; zero: nothing is known
	limit    time.Duration // how long that is valid
	devices  map[string]accel.ProbeDevice
	labels   map[string]string
	readings map[string]map[string]float64
	// processes are those that use each device. The slices are never modified.
	processes map[string][]accel.ProbeProcess
	problem   *accel.Problem
	quiet     string // why no program runs; empty if one runs or none is wanted
	stuck     string // why none can run
}

// forget clears everything, for when nothing is known and that is not an error.
func (b *book) forget() {
	b.mu.Lock()
	news := !b.heard.IsZero() || b.problem != nil || b.quiet != "" || b.stuck != ""
	b.reports = reports{}
	b.mu.Unlock()
	if news {
		b.changed()
	}
}

// pause keeps the reports about the devices that stay bound while the program is paused. What was reported about the
// others ends with their binding: the next driver may divide them differently.
func (b *book) pause(bound []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fresh, b.tried = false, false
	maps.DeleteFunc(b.devices, func(id string, _ accel.ProbeDevice) bool { return !slices.Contains(bound, id) })
}

// meet starts listening to a program. The previous program's reports stay valid until this one has reported.
func (b *book) meet(program string, bound []string, limit time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.program, b.bound, b.limit, b.fresh, b.quiet, b.stuck = program, bound, limit, false, "", ""
}

// alive handles a line that only shows that the program is alive.
func (b *book) alive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fresh {
		b.heard = time.Now()
	}
}

// hear processes a line and reports whether it changed anything.
func (b *book) hear(line accel.ProbeLine) bool {
	b.mu.Lock()
	before := b.saying()
	switch {
	case line.Snapshot != nil:
		b.devices, b.labels = devices(line.Snapshot), labels(line.Snapshot.Labels)
		b.problem, b.fresh = nil, true
	case line.Problem != nil:
		p := *line.Problem
		p.Reason, p.Message, p.Tried = known(p.Reason), clean(p.Message), nil
		b.problem, b.fresh = &p, true
	case line.Readings != nil:
		b.numbers(line.Readings)
	case line.Processes != nil:
		b.users(line.Processes)
	}
	if b.fresh {
		b.heard = time.Now()
	}
	news := !reflect.DeepEqual(before, b.saying())
	b.mu.Unlock()
	if news {
		b.changed()
	}
	return news
}

// saying returns everything that complete depends on. The caller holds b.mu.
func (b *book) saying() []any {
	return []any{b.devices, b.labels, b.problem, b.fresh, b.stale(), b.stuck}
}

// ended records that a program exited without being told to.
func (b *book) ended(why string, limit time.Duration) {
	b.mu.Lock()
	b.quiet, b.limit, b.fresh, b.tried, b.stuck = clean(why), limit, false, true, ""
	b.mu.Unlock()
	b.changed()
}

// hangs records that a program cannot be killed.
func (b *book) hangs(why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stuck = why
}

// stale reports whether the reports have expired. The caller holds b.mu.
func (b *book) stale() bool {
	return b.stuck != "" || !b.heard.IsZero() && time.Since(b.heard) >= cmp.Or(b.limit, usual)
}

// left returns how long the reports are still valid.
func (b *book) left(limit time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.heard.IsZero() {
		return math.MaxInt64
	}
	return max(0, time.Until(b.heard.Add(limit)))
}

// readingsOf returns a device's readings; the caller must not change them.
func (b *book) readingsOf(id string) map[string]float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stale() {
		return nil
	}
	return b.readings[id]
}

func (b *book) state() *accel.ProbeHave {
	b.mu.Lock()
	defer b.mu.Unlock()
	// The labels are never modified: the next snapshot brings a new map. They stay when the program falls silent,
	// because what a device is does not change then.
	s := &accel.ProbeHave{Program: b.program, Problem: cmp.Or(b.stuck, b.quiet), Labels: b.labels}
	if b.problem != nil {
		s.Problem = cmp.Or(s.Problem, b.problem.Message)
	}
	return s
}

// devices returns the devices of a snapshot, cleaned and bounded.
func devices(s *accel.ProbeSnapshot) map[string]accel.ProbeDevice {
	out := map[string]accel.ProbeDevice{}
	for _, d := range s.Devices {
		if len(out) == maxDevices {
			break
		}
		d.UUID, d.Serial, d.Model, d.Fabric = clean(d.UUID), clean(d.Serial), clean(d.Model), clean(d.Fabric)
		d.Health, d.Settings = health(d.Health), settings(d.Settings)
		if len(d.Partitions) > maxPartitions {
			d.Partitions = d.Partitions[:maxPartitions]
		}
		out[d.ID] = d
	}
	return out
}

// health returns a device's reported health in known terms; nil if there is nothing wrong.
func health(h *accel.ProbeHealth) *accel.ProbeHealth {
	if h == nil || h.State == "" || h.State == accel.Healthy {
		return nil
	}
	out := *h
	if out.State != accel.Unhealthy {
		out.State = accel.Degraded // a program cannot tell that a device is gone
	}
	if !slices.Contains(accel.Actions(), out.Action) {
		out.Action = ""
	}
	out.Reason, out.Message = known(out.Reason), clean(out.Message)
	return &out
}

// known returns r if it is a defined reason, and otherwise DeviceUnhealthy.
func known(r accel.Reason) accel.Reason {
	if r != accel.InternalError && r.Doc().Reason == r {
		return r
	}
	return accel.DeviceUnhealthy
}

func labels(all map[string]string) map[string]string {
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if len(out) == maxLabels {
			break
		}
		out[key] = clean(all[key])
	}
	return out
}

// numbers stores the readings that have allowed names. The caller holds b.mu.
func (b *book) numbers(all map[string]map[string]float64) {
	if b.readings == nil {
		b.readings = map[string]map[string]float64{}
	}
	for id, metrics := range all {
		if _, there := b.readings[id]; !there && len(b.readings) == maxDevices {
			continue
		}
		of := map[string]float64{}
		for name, v := range metrics {
			if b.metrics[name] && !math.IsNaN(v) && !math.IsInf(v, 0) {
				of[name] = v
			}
		}
		b.readings[id] = of // a new map: someone may still hold the previous one
	}
}

// clean makes a program's text fit into a sentence.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return strings.TrimSpace(s)
}
