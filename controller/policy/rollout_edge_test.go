package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// TestSlotHolds: a slot stays with its node while the node may be without a driver, whatever version is wanted by
// now.
func TestSlotHolds(t *testing.T) {
	slot := Slot{Node: "a", Version: "2", Since: morning}
	for name, n := range map[string]candidate{
		"silent and without a driver": {Name: "a", Version: "2", Ready: true, Phase: ""},
		"serves the one before": {
			Name: "a", Version: "1", Ready: true, Serving: true, Phase: accel.ReportWaiting,
			For: "2",
		},
		"acts on what it was told before": {Name: "a", Version: "1", Ready: true, Phase: accel.ReportUpgrading, For: "3"},
		"acts":                            {Name: "a", Version: "1", Ready: true, Phase: accel.ReportUpgrading, For: "2"},
		"failed with another version, before now": {
			Name: "a", Version: "1", Ready: true, Serving: true, Phase: accel.ReportFailed,
			For: "1.5",
		},
	} {
		for _, wanted := range []string{"2", "4"} {
			if wanted == "4" && n.Phase != accel.ReportUpgrading {
				continue
			}
			p := Decide(morning, wanted, Limits{}, []candidate{n, waits("b")}, []Slot{slot})
			if diff := cmp.Diff([]any{[]Slot{slot}, 0}, []any{p.Slots, len(p.Ended)}); diff != "" {
				t.Errorf("%s, wanted %s: %s", name, wanted, diff)
			}
		}
	}
}

// TestTooManySlots: while more nodes have slots than the limit allows, those slots end that their nodes do not know of,
// the newest first. A node that knows of its slot, or may be acting, keeps it.
func TestTooManySlots(t *testing.T) {
	at := func(name string, minutes int) Slot {
		return Slot{Node: name, Version: "2", Since: morning.Add(time.Duration(minutes) * time.Minute)}
	}
	told := func(n *candidate) { n.Granted = morning.Add(time.Hour) }
	for name, c := range map[string]struct {
		limits Limits
		nodes  []candidate
		slots  []Slot
		want   map[string]Why
	}{
		"within the limit": {Limits{MaxParallel: 2}, []candidate{waits("a"), waits("b")}, []Slot{at("a", 0), at("b", 1)}, nil},
		"the newest": {
			Limits{MaxParallel: 1},
			[]candidate{waits("a"), waits("b"), waits("c")},
			[]Slot{at("a", 1), at("b", 0), at("c", 2)},
			map[string]Why{"a": Withdrawn, "c": Withdrawn},
		},
		"who was told keeps it": {
			Limits{},
			[]candidate{with(waits("a"), told), waits("b")},
			[]Slot{at("a", 1), at("b", 0)},
			map[string]Why{"b": Withdrawn},
		},
		"it was taken back, and that was not written": {
			Limits{},
			[]candidate{with(waits("a"), func(n *candidate) { n.TakenBack = morning.Add(time.Minute) })},
			[]Slot{at("a", 1)},
			map[string]Why{"a": Withdrawn},
		},
		"an earlier one was taken back": {
			Limits{},
			[]candidate{with(waits("a"), func(n *candidate) { n.TakenBack = morning })},
			[]Slot{at("a", 1)},
			nil,
		},
		"all were told": {Limits{}, []candidate{with(waits("a"), told), with(waits("b"), told)}, []Slot{at("a", 1), at("b", 0)}, nil},
		"who may be acting keeps it": {
			Limits{},
			[]candidate{
				with(waits("a"), func(n *candidate) { n.Phase, n.For = accel.ReportUnclear, "" }),
				with(waits("b"), func(n *candidate) { n.Phase = accel.ReportUpgrading }),
			},
			[]Slot{at("a", 1), at("b", 0)},
			nil,
		},
		"another rollout has the limit": {
			Limits{Busy: map[string]bool{"x": true}},
			[]candidate{waits("a")},
			[]Slot{at("a", 0)},
			map[string]Why{"a": Withdrawn},
		},
		"on the same node": {Limits{Busy: map[string]bool{"a": true}}, []candidate{waits("a")}, []Slot{at("a", 0)}, nil},
	} {
		c.limits.Paused = true // a slot that has ended is not given again
		got := Decide(morning, "2", c.limits, c.nodes, c.slots)
		if c.want == nil {
			c.want = map[string]Why{}
		}
		if diff := cmp.Diff(c.want, got.Ended); diff != "" || len(got.Slots) != len(c.slots)-len(c.want) {
			t.Errorf("%s: %+v\n%s", name, got.Slots, diff)
		}
	}
}

// TestLateWithOtherVersion: a node that is late with a version keeps its slot, but does not stop the rollout of another
// version.
func TestLateWithOtherVersion(t *testing.T) {
	acts := with(waits("a"), func(n *candidate) { n.Phase = accel.ReportUpgrading })
	l := Limits{MaxParallel: 2, Timeout: time.Minute}
	slot := []Slot{{Node: "a", Version: "2", Since: morning.Add(-time.Hour)}}
	for version, want := range map[string]int{"2": 0, "3": 1} {
		b := with(waits("b"), func(n *candidate) { n.For = version })
		p := Decide(morning, version, l, []candidate{acts, b}, slot)
		if len(p.Given) != want || len(p.Failures) != 1-want || len(p.Late) != 1 {
			t.Errorf("version %s: %+v", version, p)
		}
	}
}

// TestShares: what the rollouts of several kinds add to the limits of one policy holds for each of them.
func TestShares(t *testing.T) {
	canary := with(waits("z"), func(n *candidate) { n.Canary = true })
	down := with(waits("x"), func(n *candidate) { n.Serving = false })
	failed := with(waits("y"), func(n *candidate) { n.Phase = accel.ReportFailed })
	for want, other := range map[Why][]candidate{
		CanaryFirst: {canary}, Unavailable: {down}, Stopped: {failed}, "": {waits("v")},
	} {
		l := Limits{MaxParallel: 9, MaxUnavailable: 1}
		l.Others.Add(Look(morning, "2", l, other, nil))
		l.Others.Add(Look(morning, "2", l, []candidate{waits("a")}, nil))
		if got := Decide(morning, "2", l, []candidate{waits("a")}, nil).Waits["a"]; got != want {
			t.Errorf("%+v: %q, want %q", other, got, want)
		}
	}
}
