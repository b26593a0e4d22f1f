package policy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

var morning = time.Date(2026, time.March, 4, 12, 0, 0, 0, time.UTC) // a Wednesday

func waits(name string) candidate {
	return candidate{Name: name, Version: "1", Serving: true, Ready: true, Phase: accel.ReportWaiting, For: "2"}
}

func with(n candidate, change func(*candidate)) candidate {
	change(&n)
	return n
}

func TestDecide(t *testing.T) {
	slot := func(name string) Slot { return Slot{Node: name, Version: "2", Since: morning.Add(-time.Minute)} }
	upgrading := func(n *candidate) { n.Phase = accel.ReportUpgrading }
	failed := func(n *candidate) { n.Phase = accel.ReportFailed }
	done := func(n *candidate) { n.Phase, n.For, n.Version = "", "", "2" }
	night := []Window{{From: 22 * time.Hour, To: 4 * time.Hour}}
	for _, c := range []struct {
		name   string
		limits Limits
		nodes  []candidate
		slots  []Slot
		given  []string
		ended  map[string]Why
		waits  map[string]Why
		next   time.Time
		none   bool
	}{
		{
			name: "one at a time, by name", nodes: []candidate{waits("b"), waits("a")}, given: []string{"a"},
			waits: map[string]Why{"b": Parallel},
		},
		{
			name: "who is without anyhow comes first", limits: Limits{MaxParallel: 2},
			nodes: []candidate{waits("a"), waits("b"), with(waits("c"), func(n *candidate) { n.Serving = false })},
			given: []string{"a", "c"}, waits: map[string]Why{"b": Parallel},
		},
		{
			name: "unavailable", limits: Limits{MaxParallel: 5, MaxUnavailable: 2},
			nodes: []candidate{waits("a"), waits("b"), with(waits("down"), func(n *candidate) { n.Serving = false })},
			given: []string{"a", "down"}, waits: map[string]Why{"b": Unavailable},
		},
		{
			name:   "slots of another rollout count, and their nodes may have one here too",
			limits: Limits{MaxParallel: 2, Busy: map[string]bool{"b": true, "x": true}},
			nodes:  []candidate{waits("a"), waits("b")}, given: []string{"b"}, waits: map[string]Why{"a": Parallel},
		},
		{
			name:   "nodes with a slot of another rollout are unavailable, each once",
			limits: Limits{MaxParallel: 5, MaxUnavailable: 3, Busy: map[string]bool{"b": true, "x": true}},
			nodes:  []candidate{waits("a"), waits("b"), waits("c")}, given: []string{"a", "b"},
			waits: map[string]Why{"c": Unavailable},
		},
		{
			name:   "nodes that failed in another rollout count",
			limits: Limits{MaxParallel: 5, StopAfter: 2, Others: Share{Failed: map[string]bool{"x": true}}},
			nodes:  []candidate{waits("a"), with(waits("b"), failed)}, waits: map[string]Why{"a": Stopped, "b": DidFail},
		},
		{
			name:   "a node that failed here and there counts once",
			limits: Limits{MaxParallel: 5, StopAfter: 2, Others: Share{Failed: map[string]bool{"b": true}}},
			nodes:  []candidate{waits("a"), with(waits("b"), failed)}, given: []string{"a"},
			waits: map[string]Why{"b": DidFail},
		},
		{
			name: "a node that is down counts and gets none", limits: Limits{MaxParallel: 5, MaxUnavailable: 1},
			nodes: []candidate{waits("a"), with(waits("down"), func(n *candidate) { n.Ready = false })},
			waits: map[string]Why{"a": Unavailable, "down": NotReady},
		},
		{
			name: "canary first", limits: Limits{MaxParallel: 5},
			nodes: []candidate{waits("a"), with(waits("z"), func(n *candidate) { n.Canary = true })},
			given: []string{"z"}, waits: map[string]Why{"a": CanaryFirst},
		},
		{
			name: "canary done", limits: Limits{MaxParallel: 5},
			nodes: []candidate{waits("a"), with(with(waits("z"), func(n *candidate) { n.Canary = true }), done)},
			slots: []Slot{slot("z")}, ended: map[string]Why{"z": Done}, given: []string{"a"},
		},
		{
			name: "a canary with the version and other parameters", limits: Limits{MaxParallel: 5},
			nodes: []candidate{
				waits("a"), with(with(waits("z"), func(n *candidate) { n.Canary, n.Behind = true, true }), done),
				with(with(waits("y"), func(n *candidate) { n.Behind = true }), done),
			},
			waits: map[string]Why{"a": CanaryFirst},
		},
		{
			name:   "a canary that failed is not done, also where more may fail",
			limits: Limits{MaxParallel: 5, StopAfter: 3},
			nodes: []candidate{
				waits("a"), with(with(waits("y"), func(n *candidate) { n.Canary = true }), done),
				with(with(waits("z"), func(n *candidate) { n.Canary = true }), failed),
			},
			slots: []Slot{slot("z")}, ended: map[string]Why{"z": GaveUp}, waits: map[string]Why{
				"a": CanaryFirst,
				"z": DidFail,
			},
		},
		{
			name: "a canary that is left out is not waited for", limits: Limits{MaxParallel: 5},
			nodes: []candidate{waits("a"), with(waits("z"), func(n *candidate) { n.Canary, n.Skip = true, true })},
			given: []string{"a"}, waits: map[string]Why{"z": Skipped},
		},
		{
			name: "stopped", limits: Limits{MaxParallel: 5},
			nodes: []candidate{waits("a"), with(waits("b"), failed)}, slots: []Slot{slot("b")},
			ended: map[string]Why{"b": GaveUp}, waits: map[string]Why{"a": Stopped, "b": DidFail},
		},
		{
			name: "one failure is allowed", limits: Limits{MaxParallel: 5, StopAfter: 2},
			nodes: []candidate{waits("a"), with(waits("b"), failed)}, given: []string{"a"},
			waits: map[string]Why{"b": DidFail},
		},
		{
			name: "not asked, left out, paused", limits: Limits{Paused: true},
			nodes: []candidate{
				with(waits("a"), func(n *candidate) {
					n.Phase, n.For = "", ""
				}), with(waits("b"), func(n *candidate) { n.Skip = true }),
				waits("c"), with(waits("d"), func(n *candidate) { n.For = "1.5" }),
			},
			waits: map[string]Why{"a": NotReported, "b": Skipped, "c": IsPaused, "d": NotReported},
		},
		{
			name: "late", limits: Limits{MaxParallel: 5, Timeout: time.Minute},
			nodes: []candidate{waits("a"), with(waits("b"), upgrading)}, slots: []Slot{slot("b")},
			waits: map[string]Why{"a": Stopped},
		},
		{
			name: "by day", limits: Limits{Windows: night}, nodes: []candidate{waits("a"), with(waits("b"), upgrading)},
			slots: []Slot{slot("b")},
			waits: map[string]Why{"a": Closed}, next: time.Date(2026, time.March, 4, 22, 0, 0, 0, time.UTC),
		},
		{
			name:   "slots of another version: kept while acted on, or while the node may",
			limits: Limits{MaxParallel: 9},
			nodes: []candidate{
				with(waits("acts"), func(n *candidate) {
					n.Phase, n.For = accel.ReportUpgrading, "3"
				}), with(waits("may"), func(n *candidate) { n.For = "3" }),
				waits("knows"), with(waits("silent"), func(n *candidate) { n.Phase, n.For = "", "" }),
			},
			slots: []Slot{
				{Node: "acts", Version: "3", Since: morning},
				{Node: "may", Version: "3", Since: morning},
				{Node: "knows", Version: "3", Since: morning},
				{Node: "silent", Version: "3", Since: morning},
				{Node: "gone", Version: "3", Since: morning},
			},
			ended: map[string]Why{"gone": Gone, "knows": Withdrawn, "silent": Withdrawn}, given: []string{"knows"},
			waits: map[string]Why{"silent": NotReported},
		},
		{
			name: "of no version: what each node says", limits: Limits{MaxParallel: 2, StopAfter: 2},
			nodes: []candidate{
				with(waits("a"), func(n *candidate) {
					n.For = "key-1"
				}), with(waits("b"), func(n *candidate) { n.For = "key-2" }),
				with(waits("c"), func(n *candidate) {
					n.Phase, n.For = accel.ReportFailed, "key-2"
				}), with(waits("d"), done), with(waits("e"), upgrading),
			},
			slots: []Slot{{Node: "d", Version: "key-2", Since: morning}}, ended: map[string]Why{"d": Done}, given: []string{"a", "b"},
			waits: map[string]Why{"c": DidFail},
			none:  true,
		},
		{
			name:  "other parameters of the same version",
			nodes: []candidate{with(waits("a"), func(n *candidate) { n.Version = "2" })}, given: []string{"a"},
		},
	} {
		version := "2"
		if c.none {
			version = ""
		}
		p := Decide(morning, version, c.limits, c.nodes, c.slots)
		if c.ended == nil {
			c.ended = map[string]Why{}
		}
		if c.waits == nil {
			c.waits = map[string]Why{}
		}
		if diff := cmp.Diff([]any{c.given, c.ended, c.waits}, []any{p.Given, p.Ended, p.Waits}); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		if !c.next.IsZero() && !p.Next.Equal(c.next) {
			t.Errorf("%s: next %s, want %s", c.name, p.Next, c.next)
		}
	}
}

func TestWindows(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zones: ", err)
	}
	weekend := []Window{{
		Days: []time.Weekday{time.Saturday}, From: 22 * time.Hour, To: 4 * time.Hour,
		Location: berlin,
	}}
	for _, c := range []struct {
		now, change string
		open        bool
	}{
		{"2026-03-04T12:00:00Z", "2026-03-07T21:00:00Z", false},
		{"2026-03-07T21:00:00Z", "2026-03-08T03:00:00Z", true},
		{"2026-03-08T02:59:59Z", "2026-03-08T03:00:00Z", true}, // opened on Saturday
		{"2026-03-08T03:00:00Z", "2026-03-14T21:00:00Z", false},
		{"2026-03-28T22:00:00Z", "2026-03-29T02:00:00Z", true}, // clocks go forward: four o'clock comes an hour sooner
	} {
		now, _ := time.Parse(time.RFC3339, c.now)
		open, change := isOpen(weekend, now)
		if got := change.UTC().Format(time.RFC3339); open != c.open || got != c.change {
			t.Errorf("%s: open %v until %s, want %v until %s", c.now, open, got, c.open, c.change)
		}
	}
}

// simulation is well-behaved nodes, and a controller that is killed between any two of its writes.
type simulation struct {
	t     *testing.T
	r     *rand.Rand
	now   time.Time
	nodes map[string]*candidate
	// slots are written with the version that was read; granted is the last grant of each node.
	slots   []Slot
	granted map[string]string
	want    string
	bad     map[string]bool // versions that fail
}

func (f *simulation) view() []candidate {
	var all []candidate
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		all = append(all, *f.nodes[name])
	}
	return all
}

// live lets a node take one step. It acts on a grant only if its own report says "upgrading".
func (f *simulation) live(n *candidate) {
	grant := f.granted[n.Name]
	switch {
	case n.Phase == accel.ReportUpgrading && f.r.IntN(4) == 0:
		if f.bad[n.For] {
			n.Phase, n.Serving = accel.ReportFailed, true
		} else {
			n.Version, n.Phase, n.For, n.Serving = n.For, "", "", true
		}
	case n.Phase == accel.ReportUpgrading:
		n.Serving = false
	case n.Phase == accel.ReportWaiting && n.For == f.want && grant == n.For && f.r.IntN(3) == 0:
		n.Phase = accel.ReportUpgrading
	case n.Version != f.want && n.For != f.want && f.r.IntN(3) == 0:
		n.Phase, n.For = accel.ReportWaiting, f.want
	case n.Version == f.want && n.Phase != "" && f.r.IntN(3) == 0: // it must load the version that it has again
		n.Phase, n.For = "", ""
	}
}

// control is one round of a controller, which may die after any write.
func (f *simulation) control(l Limits) {
	p := Decide(f.now, f.want, l, f.view(), f.slots)
	for name, why := range p.Ended {
		if n := f.nodes[name]; why == Withdrawn && n.Phase == accel.ReportUpgrading {
			f.t.Fatal("taken from a node that acts on it")
		}
		delete(f.granted, name)
		if f.r.IntN(20) == 0 {
			return
		}
	}
	f.slots = p.Slots
	for _, s := range p.Slots {
		if f.r.IntN(20) == 0 {
			return
		}
		f.granted[s.Node] = s.Version
	}
}

// TestSimulatedNeverTooMany: whatever nodes do and whenever the controller dies, the limits are kept, and in the end
// every node has the wanted version.
func TestSimulatedNeverTooMany(t *testing.T) {
	for seed := range uint64(200) {
		f := &simulation{
			t: t, r: rand.New(rand.NewPCG(seed, 7)), now: morning, nodes: map[string]*candidate{},
			granted: map[string]string{}, want: "2", bad: map[string]bool{"3": true},
		}
		for i := range 30 {
			name := fmt.Sprintf("n%02d", i)
			f.nodes[name] = &candidate{Name: name, Version: "1", Serving: true, Ready: true, Canary: i == 17}
		}
		l := Limits{MaxParallel: 1 + f.r.IntN(6), MaxUnavailable: 1 + f.r.IntN(6), StopAfter: 1 + f.r.IntN(3)}
		for round := 0; ; round++ {
			f.now = f.now.Add(time.Second)
			if round == 40 { // mid-rollout, switch to a version that no node can load
				f.want = "3"
			}
			if round == 200 {
				f.want = "4"
			}
			for _, n := range f.nodes {
				f.live(n)
			}
			f.control(l)
			acting, without, failed := 0, 0, 0
			for _, n := range f.nodes {
				if n.Phase == accel.ReportUpgrading {
					acting++
				}
				if !n.Serving {
					without++
				}
				if n.Phase == accel.ReportFailed && n.For == "3" {
					failed++
				}
			}
			if acting > l.MaxParallel || without > l.MaxUnavailable || failed > l.StopAfter+l.MaxParallel-1 {
				t.Fatalf("seed %d, round %d: %d act, %d without, %d failed; limits %+v", seed, round, acting, without,
					failed, l)
			}
			if round > 200 && !slices.ContainsFunc(f.view(), func(n candidate) bool { return n.Version != "4" }) {
				break
			}
			if round > 5000 {
				t.Fatalf("seed %d: never ended: %+v\n%+v", seed, f.view(), Decide(f.now, f.want, l, f.view(), f.slots))
			}
		}
	}
}
