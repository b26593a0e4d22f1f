package devices

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

const testKind = "x-card"

// stand is a cluster whose plans are carried out at once.
type stand struct {
	*testing.T
	view
	last   plan
	writes int
	// goesOn is true if a plan may lead to the next one.
	goesOn bool
}

func newStand(t *testing.T) *stand {
	t.Helper()
	return &stand{T: t, view: view{
		now: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC), nodes: map[string]node{}, records: map[string]*Device{},
		keep: map[string]time.Duration{testKind: 100 * time.Hour},
	}}
}

// says sets what a node reports.
func (s *stand) says(name string, up bool, reports ...accel.DeviceReport) {
	s.nodes[name] = node{up: up, reports: map[string][]accel.DeviceReport{testKind: reports}}
}

// report is what a node says about a device. The node's record began on the first of the month, as long as that many
// hours before.
func report(serial string, faults int) accel.DeviceReport {
	return accel.DeviceReport{
		Past:    accel.Past{Serial: serial, Since: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Faults: faults},
		Address: "0000:01:00.0",
	}
}

// pass waits, decides, and carries out the plan.
func (s *stand) pass(wait time.Duration) {
	s.Helper()
	s.now = s.now.Add(wait)
	s.last = decide(s.view)
	s.view.since = s.last.since
	s.records = maps.Clone(s.records)
	for _, w := range s.last.writes {
		if len(w.Hosts) > maxHosts || len(w.Claimed) > maxHosts {
			s.Errorf("%d hosts, %d claim it", len(w.Hosts), len(w.Claimed))
		}
		s.records[w.name] = &Device{Meta: kube.Meta{Identity: kube.Identity{Name: w.name}}, Record: w.Record}
	}
	for _, x := range s.last.deletes {
		delete(s.records, x.Name)
	}
	s.writes += len(s.last.writes) + len(s.last.deletes)
	if again := decide(s.view); !s.goesOn && len(again.writes)+len(again.deletes) > 0 {
		s.Errorf("a second look writes again: %+v", again)
	}
}

// want compares the records, each in a line.
func (s *stand) want(want ...string) {
	s.Helper()
	var lines []string
	for _, x := range s.records {
		r := x.Record
		line := fmt.Sprintf("%s on %q, faults %d:", r.Serial, r.Node, r.Total.Faults)
		for _, h := range r.Hosts {
			line += fmt.Sprintf(" %s(%d+%d)", h.Node, h.Before.Faults, h.Counts.Faults)
			if !h.Until.IsZero() {
				line += "left"
			}
		}
		if r.Earlier != nil {
			line += fmt.Sprintf(" earlier %d(%d)", r.Earlier.Hosts, r.Earlier.Counts.Faults)
		}
		if len(r.Claimed) > 0 {
			line += " claimed by " + strings.Join(r.Claimed, ",")
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	if diff := cmp.Diff(want, lines); diff != "" {
		s.Errorf("(-want +got)\n%s", diff)
	}
}

// TestMove: a card goes to another host and keeps what it has been through. Nothing is written while nothing happens.
func TestMove(t *testing.T) {
	s := newStand(t)
	s.says("a", true, report("S", 2))
	s.says("b", true)
	s.pass(0)
	s.want(`S on "a", faults 2: a(0+2)`)
	s.pass(1000 * time.Hour)
	s.says("a", true)
	s.pass(time.Minute) // it may be a driver that is reloaded
	s.want(`S on "a", faults 2: a(0+2)`)
	s.says("a", true, report("S", 2))
	s.pass(time.Hour)
	if s.writes != 1 {
		t.Errorf("%d writes", s.writes)
	}
	s.says("a", true)
	s.pass(0)
	s.says("b", true, report("S", 1))
	s.pass(time.Minute)
	s.want(`S on "b", faults 3: b(0+1) a(0+2)`)
	s.pass(lasting)
	s.want(`S on "b", faults 3: b(0+1) a(0+2)left`)
	h := s.records[Name(testKind, "S")].Record.Hosts[1]
	if got := s.now.Sub(h.Until); got != lasting+time.Minute {
		t.Errorf("it left %s ago", got)
	}
	s.says("b", true)
	s.pass(0)
	s.pass(lasting)
	s.want(`S on "", faults 3: b(0+1)left a(0+2)left`)
	s.says("a", true, report("S", 2))
	s.pass(time.Hour)
	s.want(`S on "a", faults 3: a(0+2) b(0+1)left`)
	if s.writes != 5 {
		t.Errorf("%d writes", s.writes)
	}
}

// TestDown: a host that is down has its devices, until another one has them; so has one that does not report.
func TestDown(t *testing.T) {
	s := newStand(t)
	s.says("a", true, report("S", 0), report("T", 0))
	s.says("b", true)
	s.pass(0)
	s.says("a", false, report("S", 0), report("T", 0))
	s.pass(50 * time.Hour)
	s.nodes["a"] = node{up: true} // its text cannot be read, or a policy does not ask any more
	s.pass(0)
	s.pass(50 * time.Hour)
	if s.writes != 2 {
		t.Errorf("%d writes", s.writes)
	}
	s.says("a", false, report("S", 0), report("T", 0))
	s.says("b", true, report("S", 1))
	s.pass(0)
	s.pass(lasting)
	s.want(`S on "b", faults 1: b(0+1) a(0+0)left`, `T on "a", faults 0: a(0+0)`)
	delete(s.nodes, "a")
	s.pass(0)
	s.pass(lasting)
	s.want(`S on "b", faults 1: b(0+1) a(0+0)left`, `T on "", faults 0: a(0+0)left`)
}

// TestGone: what a device that fell off the bus has been through is counted, and no record begins with it.
func TestGone(t *testing.T) {
	s := newStand(t)
	gone := report("S", 3)
	gone.Gone = true
	s.says("a", true, gone)
	s.pass(0)
	s.want()
	s.says("a", true, report("S", 2))
	s.pass(0)
	s.says("a", true, gone)
	s.pass(0)
	s.want(`S on "a", faults 3: a(0+3)`)
	s.pass(lasting)
	s.want(`S on "", faults 3: a(0+3)left`)
}

// TestClaimed: two nodes that have the same device at the same time, for longer than a restart takes, are named.
func TestClaimed(t *testing.T) {
	s := newStand(t)
	s.says("b", true, report("S", 0))
	s.pass(0)
	s.says("a", true, report("S", 9))
	s.pass(time.Hour)
	s.want(`S on "b", faults 9: a(0+9) b(0+0)`)
	if !s.last.next.Equal(s.now.Add(lasting)) {
		t.Errorf("looks again at %s", s.last.next)
	}
	s.says("a", true)
	s.pass(time.Minute)
	s.says("a", true, report("S", 9))
	s.pass(time.Minute)
	s.pass(lasting - time.Second)
	s.want(`S on "b", faults 9: a(0+9) b(0+0)`)
	s.pass(time.Second)
	s.want(`S on "b", faults 9: a(0+9) b(0+0) claimed by a,b`)
	if !slices.Equal(s.last.claimed, []string{Name(testKind, "S")}) {
		t.Errorf("%v", s.last.claimed)
	}
	s.says("c", true, report("S", 0))
	s.pass(time.Minute)
	if r := s.records[Name(testKind, "S")].Record; !slices.Equal(r.Claimed, []string{"a", "b", "c"}) || r.Node != "b" {
		t.Errorf("%v on %s", r.Claimed, r.Node)
	}
	delete(s.nodes, "c")
	s.says("b", false, report("S", 0))
	s.pass(time.Minute)
	s.want(`S on "a", faults 9: c(0+0) a(0+9) b(0+0)`)
}

// TestTakenWhileDown: a node that claims the device of another one that restarts has it only meanwhile.
func TestTakenWhileDown(t *testing.T) {
	s := newStand(t)
	s.says("good", true, report("S", 0))
	s.pass(0)
	s.says("good", false, report("S", 0))
	s.says("bad", true, report("S", 0))
	s.pass(time.Hour)
	s.want(`S on "bad", faults 0: bad(0+0) good(0+0)`)
	s.says("good", true, report("S", 0))
	s.pass(lasting - time.Second)
	s.want(`S on "good", faults 0: bad(0+0) good(0+0)`)
	s.pass(lasting)
	s.want(`S on "good", faults 0: bad(0+0) good(0+0) claimed by bad,good`)
}

// TestHostile: a node adds to what it has said itself, and to nothing else.
func TestHostile(t *testing.T) {
	s := newStand(t)
	fault := func(at time.Time, reason accel.Reason) accel.DeviceReport {
		r := report("S", 5)
		r.Model, r.LastFault = "X 100", &accel.PastFault{At: at, Reason: reason, Message: "m"}
		return r
	}
	s.says("good", true, fault(s.now, accel.DeviceFault))
	s.pass(0)
	whole := s.records[Name(testKind, "S")].Record
	less := report("S", 0)
	less.Model, less.Address, less.Resets = "lies", "0000:ff:00.0", 7
	s.says("bad", true, less)
	s.pass(time.Hour)
	s.want(`S on "good", faults 5: bad(0+0) good(0+5)`)
	r := s.records[Name(testKind, "S")].Record
	if r.Model != "X 100" || r.Address != whole.Address || r.First != whole.First ||
		!cmp.Equal(r.LastFault, whole.LastFault) || !cmp.Equal(*r.host("good"), *whole.host("good")) {
		t.Errorf("%+v\n%+v", whole, r)
	}
	again := report("S", 1)
	again.Since = again.Since.Add(time.Hour) // the host was installed again
	s.says("good", true, again)
	s.pass(time.Hour)
	s.says("good", true, report("S", 0)) // and says that it was not
	s.pass(time.Hour)
	s.says("bad", true)
	s.pass(0)
	s.pass(lasting)
	s.want(`S on "good", faults 6: bad(0+0)left good(5+1)`)
	ahead := again
	ahead.Since = s.now.Add(1000 * time.Hour)
	ahead.LastFault = &accel.PastFault{At: s.now.Add(1000 * time.Hour), Reason: "Ahead"}
	s.says("good", true, ahead)
	s.pass(time.Hour)
	s.want(`S on "good", faults 6: bad(0+0)left good(5+1)`)
	if f := s.records[Name(testKind, "S")].Record.LastFault; f.Reason != accel.DeviceFault {
		t.Errorf("%+v", f)
	}
}

// TestMany: the hosts of a device are bounded and what the dropped ones counted stays; so are the records of a node.
func TestMany(t *testing.T) {
	s := newStand(t)
	for i := range maxHosts + 3 {
		name := fmt.Sprintf("n%02d", i)
		s.says(name, true, report("S", 1))
		s.pass(time.Minute)
		s.says(name, true)
		s.pass(0)
		s.pass(lasting)
	}
	r := s.records[Name(testKind, "S")].Record
	if r.Total.Faults != maxHosts+3 || r.Earlier == nil || *r.Earlier != (Earlier{3, Counts{Faults: 3}}) ||
		r.host("n02") != nil || r.host("n03") == nil {
		t.Errorf("%+v", r)
	}
	s = newStand(t)
	for i := range 3 * maxBegun {
		s.says("bad", true, report(fmt.Sprint("S", i), 0))
		s.pass(time.Second)
	}
	if len(s.records) != maxBegun || s.last.leftOut != 1 {
		t.Errorf("%d records, %d left out", len(s.records), s.last.leftOut)
	}
	s.says("good", true, report("T", 0))
	s.pass(time.Second)
	if len(s.records) != maxBegun+1 {
		t.Errorf("%d records", len(s.records))
	}
	// a second one that takes over what the first has begun, so that this may begin more
	s = newStand(t)
	s.keep[testKind], s.goesOn = 1e6*time.Hour, true
	for i := range 4 * maxBegun {
		s.says("bad", true, report(fmt.Sprint("S", i), 0))
		s.says("worse", true, report(fmt.Sprint("S", i-1), 0))
		s.pass(lasting)
	}
	if len(s.records) > 2*maxBegun+8 {
		t.Errorf("%d records", len(s.records))
	}
}

// TestPrune: a record goes when no host has had the device for long enough, and not before.
func TestPrune(t *testing.T) {
	s := newStand(t)
	s.says("a", true, report("S", 1))
	s.pass(0)
	s.says("a", true)
	s.pass(0)
	s.pass(lasting)
	s.pass(100*time.Hour - lasting - time.Second)
	s.want(`S on "", faults 1: a(0+1)left`)
	if !s.last.next.Equal(s.now.Add(time.Second)) {
		t.Errorf("looks again at %s", s.last.next)
	}
	s.pass(time.Second)
	s.want()
	s.says("a", true, report("S", 1), report("T", 1))
	s.pass(0)
	s.says("a", true)
	s.pass(0)
	s.pass(lasting)
	s.keep = map[string]time.Duration{"y-card": time.Hour} // no policy keeps this kind any more
	s.pass(1000 * time.Hour)
	if len(s.records) != 2 {
		t.Errorf("%d records", len(s.records))
	}
}

// TestForeignRecord: an object that somebody else has made is not taken for that of a device.
func TestForeignRecord(t *testing.T) {
	s := newStand(t)
	name := Name(testKind, "S")
	s.records[name] = &Device{
		Meta: kube.Meta{Identity: kube.Identity{Name: name}}, Record: Record{Kind: testKind, Serial: "other"},
	}
	s.says("a", true, report("S", 1))
	s.pass(0)
	if s.writes != 0 || s.last.leftOut != 1 {
		t.Errorf("%d writes, %d left out", s.writes, s.last.leftOut)
	}
}

// FuzzDecide: whatever nodes report, in whatever order, a node changes no entry of another one, counts never go down,
// and a second look writes nothing.
func FuzzDecide(f *testing.F) {
	f.Add([]byte("abcdefghijklmnopqrstuvwxyz0123456789"))
	f.Add([]byte{0, 1, 2, 3, 255, 254, 9, 9, 9, 9})
	f.Fuzz(func(t *testing.T, script []byte) {
		s := newStand(t)
		for _, b := range script {
			name, r := string(rune('a'+b%3)), report(fmt.Sprint("S", b>>2%2), int(b>>4))
			r.Since = r.Since.Add(time.Duration(b>>3%4) * time.Hour)
			r.Gone = b%7 == 0
			before := s.records
			switch {
			case b%11 == 0:
				delete(s.nodes, name)
			case b%13 == 0:
				s.says(name, true)
			default:
				s.says(name, b%5 != 0, r)
			}
			s.pass(time.Duration(b%4) * lasting / 2)
			for key, old := range before {
				x := s.records[key]
				if x == nil {
					continue // pruned
				}
				if x.Record.Total.Faults < old.Record.Total.Faults {
					t.Errorf("%+v became %+v", old.Record, x.Record)
				}
				for _, h := range old.Record.Hosts {
					now := x.Record.host(h.Node)
					if now == nil || h.Node != name && (now.Counts != h.Counts || now.Before != h.Before) {
						t.Errorf("%s changed %+v to %+v", name, h, now)
					}
				}
			}
		}
	})
}

// BenchmarkDecide: nothing happens to the devices of a large cluster.
func BenchmarkDecide(b *testing.B) {
	v := view{
		now: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC), nodes: map[string]node{}, records: map[string]*Device{},
		keep: map[string]time.Duration{testKind: time.Hour},
	}
	for i := range 5000 {
		var all []accel.DeviceReport
		for k := range 8 {
			all = append(all, report(fmt.Sprint(i, "-", k), k))
		}
		v.nodes[fmt.Sprint("n", i)] = node{up: true, reports: map[string][]accel.DeviceReport{testKind: all}}
	}
	for _, w := range decide(v).writes {
		v.records[w.name] = &Device{Meta: kube.Meta{Identity: kube.Identity{Name: w.name}}, Record: w.Record}
	}
	for b.Loop() {
		if p := decide(v); len(p.writes) > 0 {
			b.Fatal(len(p.writes))
		}
	}
}
