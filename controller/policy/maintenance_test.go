package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// works is the part of a node that says that somebody works on it; without conditions nobody does.
func works(all ...object) object {
	conditions := []any{
		object{"type": "Ready", "status": "True"},
		object{"type": "AcceleratorsReady", "status": "True", "reason": "Ready", "message": "fine"},
	}
	for _, c := range all {
		conditions = append(conditions, c)
	}
	return object{"status": object{"conditions": conditions}}
}

func says(t accel.MaintenanceCondition, reason string) object {
	return object{
		"type": string(t), "status": "True", "reason": reason, "message": "rack 7",
		"lastTransitionTime": "2026-03-04T12:00:00Z",
	}
}

const fanText = `reason Fan by condition %s since 2026-03-04T12:00:00Z ("rack 7")`

func TestDecideUnderMaintenance(t *testing.T) {
	slot := Slot{Node: "a", Version: "2", Since: morning}
	away := func(n *candidate) { n.Hindered, n.Away = true, true }
	drained := func(n *candidate) { away(n); n.Drained = true }
	acts := func(n *candidate) { away(n); n.Phase = accel.ReportUpgrading }
	for name, c := range map[string]struct {
		limits Limits
		nodes  []candidate
		slots  []Slot
		given  []string
		ended  map[string]Why
		waits  map[string]Why
	}{
		"none is given": {
			nodes: []candidate{with(waits("a"), away), waits("b")}, given: []string{"b"},
			waits: map[string]Why{"a": UnderMaintenance},
		},
		"a slot with which nothing was done ends": {
			nodes: []candidate{with(waits("a"), away), waits("b")}, slots: []Slot{slot}, given: []string{"b"},
			ended: map[string]Why{"a": Withdrawn}, waits: map[string]Why{"a": UnderMaintenance},
		},
		"one for which the node is drained stays": {
			nodes: []candidate{with(waits("a"), drained), waits("b")}, slots: []Slot{slot},
			waits: map[string]Why{"b": Parallel},
		},
		"one that the node acts on stays": {
			nodes: []candidate{with(waits("a"), acts), waits("b")}, slots: []Slot{slot},
			waits: map[string]Why{"b": Parallel},
		},
		"the node counts as unavailable": {
			limits: Limits{MaxParallel: 2, MaxUnavailable: 1}, nodes: []candidate{with(waits("a"), away), waits("b")},
			waits: map[string]Why{"a": UnderMaintenance, "b": Unavailable},
		},
		"and not while maintenance is planned": {
			limits: Limits{MaxParallel: 2, MaxUnavailable: 1},
			nodes:  []candidate{with(waits("a"), func(n *candidate) { n.Hindered = true }), waits("b")},
			given:  []string{"b"}, waits: map[string]Why{"a": UnderMaintenance},
		},
		"the node's own reasons come first": {
			nodes: []candidate{with(waits("a"), func(n *candidate) { away(n); n.Phase = accel.ReportFailed })},
			waits: map[string]Why{"a": DidFail},
		},
	} {
		got := Decide(morning, "2", c.limits, c.nodes, c.slots)
		if !slices.Equal(got.Given, c.given) || !cmp.Equal(got.Ended, c.ended, cmpEmpty()) ||
			!cmp.Equal(got.Waits, c.waits, cmpEmpty()) {
			t.Errorf("%s: given %v, ended %v, waits %v", name, got.Given, got.Ended, got.Waits)
		}
	}
}

// cmpEmpty makes a map without entries equal to none.
func cmpEmpty() cmp.Option {
	return cmp.Transformer("count", func(m map[string]Why) []string {
		var out []string
		for node, why := range m {
			out = append(out, node+" "+string(why))
		}
		slices.Sort(out)
		return out
	})
}

func TestDecideRepairsUnderMaintenance(t *testing.T) {
	l := RepairLimits{Nodes: 9, Breaker: 9, Timeout: time.Hour}
	hindered := func(w ward) ward { w.Hindered = true; return w }
	slots := []Slot{
		{Node: "b", Kind: kind, Repair: true, Since: morning}, {Node: "c", Kind: kind, Repair: true, Since: morning},
	}
	got := DecideRepairs(morning, l, []ward{
		hindered(sick("a", "", 1)), hindered(sick("b", "", 1)), hindered(inPhase(sick("c", "", 1), accel.RepairPhaseActing)),
		hindered(inPhase(sick("d", "", 1), accel.RepairPhaseIll)), sick("e", "", 1), hindered(well("f", "")),
	}, slots)
	var waiting []string
	for key, why := range got.Waits {
		waiting = append(waiting, key.Node+" "+string(why))
	}
	slices.Sort(waiting)
	if len(got.Given) != 1 || got.Given[0].Node != "e" || got.Ended[slots[0]] != Withdrawn || len(got.Ended) != 1 ||
		strings.Join(waiting, ", ") != "a UnderMaintenance, b UnderMaintenance, d UnderMaintenance" {
		t.Errorf("%+v", got)
	}
}

func (s *server) blockedAs(t *testing.T, reason string) Blocked {
	t.Helper()
	all := status(t, s).Blocked
	i := slices.IndexFunc(all, func(b Blocked) bool { return b.Reason == reason })
	if i < 0 {
		t.Fatalf("%s is not among %+v", reason, all)
	}
	return all[i]
}

// TestSlotUnderMaintenance: a node on which somebody else works gets no slot for an upgrade, the status names the
// condition, and the node gets its slot when the condition is gone.
func TestSlotUnderMaintenance(t *testing.T) {
	for _, c := range []accel.MaintenanceCondition{accel.MaintenanceInProgress, accel.MaintenancePlanned} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(1)
			s.edit(nodePath("a"), aNode(nil))
			s.edit(nodePath("a"), annotate(wordKey, "waiting 2"))
			s.edit(nodePath("a"), works(says(c, "Fan")))
			s.edit(policyPath, fleetPolicy("2", object{}, nil))
			controller, stop := start(t, s)
			defer stop()
			wait(time.Minute)
			if got := status(t, s); len(got.Slots) > 0 || annotation(s.get(nodePath("a")), grantKey) != "" {
				t.Fatalf("%+v", got)
			}
			if b := s.blockedAs(t, "UnderMaintenance"); b.Count != 1 || !strings.Contains(b.Example, fmt.Sprintf(fanText, c)) {
				t.Errorf("%+v", b)
			}
			if o, ok := controller.Overview(); !ok || len(o.Nodes) != 1 || len(o.Nodes[0].Maintenance) != 1 {
				t.Errorf("%+v", o)
			}
			s.edit(nodePath("a"), works())
			wait(time.Minute)
			if got := status(t, s); len(got.Slots) != 1 || annotation(s.get(nodePath("a")), grantKey) == "" {
				t.Errorf("%+v", got)
			}
			s.edit(nodePath("a"), works(says(c, "Fan"))) // the node has not begun
			wait(time.Minute)
			grant := annotation(s.get(nodePath("a")), grantKey)
			if got := status(t, s); len(got.Slots) > 0 || !strings.HasPrefix(grant, "- ") {
				t.Errorf("the slot stays: %+v", got)
			}
			ignores := object{kind: object{"ignoreConditions": []any{string(c)}}}
			s.edit(policyPath, object{"spec": object{"kinds": ignores}})
			wait(time.Minute)
			if got := status(t, s); len(got.Slots) != 1 {
				t.Errorf("ignored: %+v", got)
			}
		})
	}
}

// TestOwnWorkIsNoHindrance: acceld's own conditions keep it from nothing.
func TestOwnWorkIsNoHindrance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		s.edit(nodePath("a"), aNode(nil))
		s.edit(nodePath("a"), annotate(wordKey, "waiting 2"))
		s.edit(nodePath("a"), works(says(accel.MaintenanceInProgress, accel.OwnUpgrade)))
		s.edit(policyPath, fleetPolicy("2", object{}, nil))
		_, stop := start(t, s)
		defer stop()
		wait(time.Minute)
		if got := status(t, s); len(got.Slots) != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestRepairUnderMaintenance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		for name, c := range map[string]accel.MaintenanceCondition{
			"a": accel.Drained, "b": accel.MaintenancePlanned, "c": accel.ShutdownInProgress,
		} {
			s.edit(nodePath(name), aNode(nil))
			s.edit(nodePath(name), works(says(c, "Fan")))
		}
		s.edit(nodePath("a"), annotate(repairKey, "ill 1/8"))
		s.edit(nodePath("b"), annotate(repairKey, "waiting 1/8"))
		s.edit(policyPath, repairPolicy(object{"maxParallel": 9}))
		_, stop := start(t, s)
		defer stop()
		wait(time.Minute)
		got := status(t, s)
		if len(got.Slots) != 1 || got.Slots[0].Node != "b" {
			t.Errorf("%+v", got)
		}
		b := s.blockedAs(t, "RepairUnderMaintenance")
		want := "a: 1 of 8 qemu-edu need a reset; node is under maintenance: " + fmt.Sprintf(fanText, accel.Drained)
		if b.Count != 1 || b.Example != want {
			t.Errorf("%+v, want %s", b, want)
		}
	})
}

// TestDrainIsMarked: the mark tells the node's agent that the node is drained, and stays until the slot ends. Whoever
// works on the node meanwhile, what has begun is finished.
func TestDrainIsMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		s.edit(nodePath("a"), aNode(nil))
		s.edit(nodePath("a"), annotate(wordKey, "waiting 2"))
		s.edit("/api/v1/namespaces/team/pods/web", object{
			"metadata": object{"namespace": "team"},
			"spec":     object{"nodeName": "a"}, "status": object{"phase": "Running"},
		})
		s.edit(policyPath, fleetPolicy("2", object{"drain": object{}}, nil))
		budget := true
		s.refuse = func(_, path string, _ object) error {
			if budget && strings.HasSuffix(path, "/eviction") {
				return fmt.Errorf("the budget forbids it")
			}
			return nil
		}
		mark := func(what, want string) {
			t.Helper()
			wait(time.Minute)
			if got := annotation(s.get(nodePath("a")), drainAnnotation); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		_, stop := start(t, s)
		mark("while pods are evicted", "draining")
		stop() // the next controller finds the mark
		_, stop = start(t, s)
		defer stop()
		s.edit(nodePath("a"), works(says(accel.MaintenanceInProgress, "Fan")))
		mark("somebody else comes", "draining")
		if len(status(t, s).Slots) != 1 {
			t.Errorf("%+v", status(t, s))
		}
		writes := len(s.written())
		wait(time.Hour)
		if n := len(s.written()) - writes; n > 500 { // evictions that are refused are not among them
			t.Errorf("%d writes", n)
		}
		s.mu.Lock()
		budget = false
		s.mu.Unlock()
		mark("when they have left", "drained")
		if !strings.HasPrefix(annotation(s.get(nodePath("a")), grantKey), "2 ") {
			t.Errorf("%v", s.get(nodePath("a")))
		}
		s.edit(nodePath("a"), annotate(wordKey, "upgrading 2"))
		mark("while the node acts", "drained")
		s.edit(nodePath("a"), object{"metadata": object{
			"labels":      object{versionKey: "2"},
			"annotations": object{wordKey: nil},
		}})
		mark("at the end", "")
		if _, there := part(part(s.get(nodePath("a")), "metadata"), "annotations")[drainAnnotation]; there {
			t.Error("the mark is empty, and there")
		}
	})
}

// TestLeftConditions: what a vanished agent said about its work goes with the rest, and what others say stays.
func TestLeftConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		s.edit(nodePath("gone"), aNode(nil))
		s.edit(nodePath("gone"), annotate(kube.OriginAnnotation, kube.OriginPod))
		s.edit(nodePath("gone"), works(says(accel.MaintenanceInProgress, accel.OwnUpgrade), says(accel.Drained, "Fan")))
		_, stop := start(t, s)
		defer stop()
		wait(11 * time.Minute)
		var left []string
		for _, c := range list(part(s.get(nodePath("gone")), "status")["conditions"]) {
			left = append(left, fmt.Sprint(c.(object)["type"]))
		}
		if strings.Join(left, " ") != "Ready Drained" {
			t.Errorf("%v", left)
		}
	})
}

// TestLeftTotals: a patch without conditions says nothing about them, and without totals nothing about amounts.
func TestLeftTotals(t *testing.T) {
	n := &Node{Identity: kube.Identity{Name: "a", ResourceVersion: "7"}}
	if body := n.leftStatus(nil); body != nil {
		t.Errorf("%v", body)
	}
	body, err := json.Marshal(n.leftStatus([]corev1.ResourceName{"qemu.org/memory"}))
	want := `{"metadata":{"resourceVersion":"7"},` +
		`"status":{"allocatable":{"qemu.org/memory":null},"capacity":{"qemu.org/memory":null}}}`
	if err != nil || string(body) != want {
		t.Errorf("%s, %v, want %s", body, err, want)
	}
}

// TestMaintenanceIsBounded: what somebody writes into a condition is neither kept nor shown beyond measure, and a
// change of it is seen.
func TestMaintenanceIsBounded(t *testing.T) {
	s := newServer(1)
	read := func(c object) *Node {
		t.Helper()
		s.edit(nodePath("a"), aNode(nil))
		s.edit(nodePath("a"), works(c))
		n := &Node{}
		if err := s.Do(t.Context(), "GET", nodePath("a"), nil, nil, n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	long := says(accel.DrainInProgress, strings.Repeat("x", 1<<20))
	long["message"] = strings.Repeat("é\n", 1<<20)
	n := read(long)
	if m := n.Status.maintenance; len(m) != 1 || m[0].Reason != "Unclear" || len(m[0].Message) > 210 ||
		len(n.Status.Conditions) != 2 {
		t.Errorf("%+v", n.Status)
	}
	if other := read(says(accel.DrainInProgress, "Fan")); n.Same(other) || !n.Same(read(long)) {
		t.Error("a change is not seen, or none is")
	}
	n = read(says(accel.DrainInProgress, accel.OwnUpgrade))
	if c := n.condition(string(accel.DrainInProgress)); n.Status.maintenance != nil || c.Type == "" || c.Message != "" ||
		!c.Since.IsZero() {
		t.Errorf("%+v", n.Status)
	}
}
