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

// Bounds of what is believed of one program.
const (
	maxDevices    = 1024
	maxPartitions = 64
	maxLabels     = 256
	maxText       = 200
)

// book is what a program has said.
type book struct {
	changed func()
	metrics map[string]bool // names that readings may have

	mu       sync.Mutex
	program  string
	bound    map[string]bool // the devices that the program which runs now was started for
	fresh    bool            // it has given a snapshot
	tried    bool            // one has ended, so that none may ever answer
	heard    time.Time       // when what follows was last known to be so; zero: nothing is known
	limit    time.Duration   // how long that counts
	devices  map[string]accel.ProbeDevice
	labels   map[string]string
	readings map[string]map[string]float64
	problem  *accel.Problem
	quiet    string // why no program runs; empty while one does, or none is wanted
	stuck    string // why none can
}

// forget is for when nothing is known, and nothing is amiss with that.
func (b *book) forget() {
	b.mu.Lock()
	news := !b.heard.IsZero() || b.problem != nil || b.quiet != "" || b.stuck != ""
	b.program, b.bound, b.fresh, b.tried, b.heard, b.limit = "", nil, false, false, time.Time{}, 0
	b.devices, b.labels, b.readings, b.problem, b.quiet, b.stuck = nil, nil, nil, nil, "", ""
	b.mu.Unlock()
	if news {
		b.changed()
	}
}

// meet begins to listen to a program. What the one before it said counts until this one has said it again.
func (b *book) meet(program string, bound []string, limit time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.program, b.bound, b.limit, b.fresh, b.quiet, b.stuck = program, map[string]bool{}, limit, false, "", ""
	for _, id := range bound {
		b.bound[id] = true
	}
}

// alive is for a line that says nothing else.
func (b *book) alive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fresh {
		b.heard = time.Now()
	}
}

// hear takes in a line and reports whether it says something new.
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

// saying is what devices are completed by. b.mu is held.
func (b *book) saying() []any {
	return []any{b.devices, b.labels, b.problem, b.fresh, b.stale(), b.stuck}
}

// ended is for a program that ended without being told to.
func (b *book) ended(why string, limit time.Duration) {
	b.mu.Lock()
	b.quiet, b.limit, b.fresh, b.tried, b.stuck = clean(why), limit, false, true, ""
	b.mu.Unlock()
	b.changed()
}

// hangs is for a program that cannot be ended.
func (b *book) hangs(why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stuck = why
}

// stale reports whether what was said counts no more. b.mu is held.
func (b *book) stale() bool {
	return b.stuck != "" || !b.heard.IsZero() && time.Since(b.heard) >= cmp.Or(b.limit, usual)
}

// left is how long until what was said counts no more.
func (b *book) left(limit time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.heard.IsZero() {
		return math.MaxInt64
	}
	return max(0, time.Until(b.heard.Add(limit)))
}

// readingsOf returns a device's numbers; they are not to be changed.
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
	// Nobody changes the labels: the next snapshot brings others. What a device is does not change when its program
	// falls silent.
	s := &accel.ProbeHave{Program: b.program, Problem: cmp.Or(b.stuck, b.quiet), Labels: b.labels}
	if b.problem != nil {
		s.Problem = cmp.Or(s.Problem, b.problem.Message)
	}
	return s
}

// devices are those of a snapshot as far as they can be believed.
func devices(s *accel.ProbeSnapshot) map[string]accel.ProbeDevice {
	out := map[string]accel.ProbeDevice{}
	for _, d := range s.Devices {
		if len(out) == maxDevices {
			break
		}
		d.UUID, d.Serial, d.Model, d.Fabric = clean(d.UUID), clean(d.Serial), clean(d.Model), clean(d.Fabric)
		d.Health = health(d.Health)
		if len(d.Partitions) > maxPartitions {
			d.Partitions = d.Partitions[:maxPartitions]
		}
		out[d.ID] = d
	}
	return out
}

// health is what is said of a device, in words that there are.
func health(h *accel.ProbeHealth) *accel.ProbeHealth {
	if h == nil || h.State == "" || h.State == accel.Healthy {
		return nil
	}
	out := *h
	if out.State != accel.Unhealthy {
		out.State = accel.Degraded // a program does not know who is gone
	}
	if !slices.Contains(accel.Actions(), out.Action) {
		out.Action = ""
	}
	out.Reason, out.Message = known(out.Reason), clean(out.Message)
	return &out
}

// known is a reason that there is.
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

// numbers takes in the readings under names that there are. b.mu is held.
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
		b.readings[id] = of // a new map: the one before may be somebody's
	}
}

// clean makes what a program says fit for a sentence.
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
