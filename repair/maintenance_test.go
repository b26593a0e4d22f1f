package repair

import (
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
)

func fan(c accel.MaintenanceCondition) []accel.Maintenance {
	return []accel.Maintenance{{Condition: c, Reason: "Fan", Since: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)}}
}

// TestUnderMaintenance: while somebody else works on the node, no repair begins; planned maintenance keeps none.
func TestUnderMaintenance(t *testing.T) {
	const text = "waits until nobody else works on the node: node is under maintenance: reason Fan by condition " +
		"MaintenanceInProgress since 2026-03-04T12:00:00Z"
	for name, c := range map[string]struct {
		reset  accel.RepairReset
		facts  accel.Facts
		ignore []accel.MaintenanceCondition
		users  []string
		text   string
		resets int
	}{
		"idle": {reset: accel.RepairIdle, facts: accel.Facts{Maintenance: fan(accel.MaintenanceInProgress)}, text: text},
		"in use": {
			reset: accel.RepairEvict, facts: accel.Facts{Maintenance: fan(accel.MaintenanceInProgress)},
			users: []string{"pod a/b"}, text: text,
		},
		"dry run": {
			reset: accel.RepairDryRun, facts: accel.Facts{Maintenance: fan(accel.MaintenanceInProgress)}, text: text,
		},
		"planned": {reset: accel.RepairIdle, facts: accel.Facts{Maintenance: fan(accel.MaintenancePlanned)}, resets: 1},
		"ignored": {
			reset: accel.RepairIdle, facts: accel.Facts{Maintenance: fan(accel.Drained)},
			ignore: []accel.MaintenanceCondition{accel.Drained}, resets: 1,
		},
		"not known": {
			reset: accel.RepairIdle, facts: accel.Facts{MaintenanceUnknown: true},
			text: "waits until nobody else works on the node: it is not known yet who does",
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newMachine(accel.Repair{Reset: c.reset}, ill("1"), accel.Accelerator{ID: "2"})
			x.m.Facts, x.users["1"] = c.facts, c.users
			x.m.Want.Kinds[kind].IgnoreConditions = c.ignore
			r := x.repairer()
			m, _ := r.o.Follow()
			more := r.pass(t.Context(), m)
			if got := strings.Join(x.states(r), " | "); c.text != "" && got != "1 "+c.text+" | 2" {
				t.Errorf("%q", got)
			}
			if len(x.resets) != c.resets || len(x.evicted) > 0 || !more {
				t.Errorf("resets of %q, evictions %q, looks again: %t", x.resets, x.evicted, more)
			}
			accs := append([]accel.Accelerator{}, m.Have[kind].Accelerators...)
			for _, a := range r.Enrich(m.Want.Kinds[kind], accs) {
				if a.Repair != nil && (a.Repair.Would || a.Repair.Asks || a.Repair.Evicts) && c.text != "" {
					t.Errorf("%+v", a.Repair)
				}
			}
		})
	}
}

// TestMaintenanceMeanwhile: a repair for which pods were evicted is finished, and others do not begin.
func TestMaintenanceMeanwhile(t *testing.T) {
	x := newMachine(accel.Repair{Reset: accel.RepairEvict}, ill("1"), ill("2"), accel.Accelerator{ID: "3"},
		accel.Accelerator{ID: "4"})
	x.users["1"] = []string{"pod a/b"}
	r := x.repairer()
	x.refuse = accel.Problemf(accel.EvictionRefused, "not now")
	pass := func() {
		m, _ := r.o.Follow()
		r.pass(t.Context(), m)
	}
	x.m.Have[kind].Accelerators[1].Health = accel.Health{State: accel.Healthy}
	pass()
	if have := r.shown("1"); !have.Evicts {
		t.Errorf("%+v", have)
	}
	x.m.Facts.Maintenance = fan(accel.DrainInProgress)
	x.m.Have[kind].Accelerators[1] = ill("2")
	x.refuse = nil
	pass()
	if have := r.shown("2"); !strings.Contains(have.Message, "condition DrainInProgress") {
		t.Errorf("%+v", have)
	}
	x.users["1"] = nil
	pass()
	if got := strings.Join(x.resets, " "); got != "1" || len(x.evicted) != 3 {
		t.Errorf("resets of %s, evictions %q", got, x.evicted)
	}
	if have := r.shown("1"); have.Evicts || have.State != accel.RepairRuns {
		t.Errorf("%+v", have)
	}
}
