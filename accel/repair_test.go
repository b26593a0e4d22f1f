package accel

import (
	"strings"
	"testing"
	"time"
)

func TestRepairProblems(t *testing.T) {
	for want, r := range map[string]Repair{
		"":                           {},
		" ":                          {Reset: RepairIdle, Attempts: 20, Window: "744h"},
		`reset: "always" is not one`: {Reset: "always"},
		"attempts: 21 is not from":   {Attempts: 21},
		`noExecute[1]: "Pray" is`:    {NoExecute: []Action{ActionReboot, "Pray"}},
		"attempts: -1 is not from":   {Attempts: -1},
		`window: "1s" is not a time`: {Window: "1s"},
		`window: "9999h" is not`:     {Window: "9999h"},
		`window: "soon" is not`:      {Window: "soon"},
		`watch: "25h" is not a time`: {Watch: "25h"},
		`watch: "0s" is not a time`:  {Watch: "0s"},
	} {
		got := r.Problems()
		want = strings.TrimSpace(want)
		if text := strings.Join(got, "; "); (want == "") != (text == "") || !strings.HasPrefix(text, want) {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
	if n, window := (Repair{}).Times(); n != 3 || window != 24*time.Hour {
		t.Errorf("%d in %s", n, window)
	}
	if d, none := (Repair{Watch: "5m"}).Watches(), (Repair{}).Watches(); d != 5*time.Minute || none != 0 {
		t.Errorf("%s, %s", d, none)
	}
	if n, window := (Repair{Attempts: 1, Window: "2h"}).Times(); n != 1 || window != 2*time.Hour {
		t.Errorf("%d in %s", n, window)
	}
}

func TestNeedsRepair(t *testing.T) {
	ill := Accelerator{ID: "x", Health: Health{State: Unhealthy, Action: ActionResetDevice}}
	well, hot, gone, weak := ill, ill, ill, ill
	well.Health = Health{State: Healthy}
	hot.Health.Action = ActionService
	gone.Health.State = Gone
	weak.Health.State = Degraded
	for name, c := range map[string]struct {
		repair *Repair
		a      Accelerator
		want   bool
	}{
		"ill":      {&Repair{Reset: RepairIdle}, ill, true},
		"dry run":  {&Repair{Reset: RepairDryRun}, ill, true},
		"degraded": {&Repair{Reset: RepairIdle}, weak, true},
		"well":     {&Repair{Reset: RepairIdle}, well, false},
		"service":  {&Repair{Reset: RepairIdle}, hot, false},
		"gone":     {&Repair{Reset: RepairIdle}, gone, false},
		"never":    {&Repair{Reset: RepairNever}, ill, false},
		"not said": {&Repair{}, ill, false},
		"nothing":  {nil, ill, false},
	} {
		if got := (&Definition{Repair: c.repair}).NeedsRepair(c.a); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestEndsPods: a taint ends pods only for what the definition names, and neither past the limits of a policy nor when
// most devices are sick at once.
func TestEndsPods(t *testing.T) {
	sick := Accelerator{Health: Health{State: Unhealthy, Action: ActionResetDevice}}
	common, degraded, other := sick, sick, sick
	common.Repair = &RepairHave{State: RepairGivenUp, Common: true}
	degraded.Health.State = Degraded
	other.Health.Action = ActionReboot
	named := &Repair{NoExecute: []Action{ActionResetDevice}}
	for name, c := range map[string]struct {
		repair *Repair
		device Accelerator
		want   bool
	}{
		"named":                   {named, sick, true},
		"given up":                {named, Accelerator{Health: sick.Health, Repair: &RepairHave{State: RepairGivenUp}}, true},
		"most are sick":           {named, common, false},
		"degraded":                {named, degraded, false},
		"another action":          {named, other, false},
		"not named":               {&Repair{Reset: RepairEvict}, sick, false},
		"nothing said":            {nil, sick, false},
		"limited":                 {&Repair{NoExecute: Actions(), By: "fleet"}, sick, false},
		"limited, another action": {&Repair{NoExecute: Actions(), By: "fleet"}, other, true},
	} {
		if got := (&Definition{Repair: c.repair}).EndsPods(c.device); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestRepairChanges: each action is a change once; waiting is none.
func TestRepairChanges(t *testing.T) {
	runs, gaveUp := &RepairHave{State: RepairRuns}, &RepairHave{State: RepairGivenUp, Message: "a"}
	would, waits := &RepairHave{State: RepairWaits, Would: true}, &RepairHave{State: RepairWaits, Message: "b"}
	machine := func(r *RepairHave) Machine {
		return Machine{
			Status: map[string]Status{"k": {}},
			Have: map[string]Have{"k": {Accelerators: []Accelerator{{
				ID: "x", Health: Health{State: Unhealthy, Reason: DeviceFault}, Repair: r,
			}}}},
		}
	}
	for _, c := range []struct {
		from, to *RepairHave
		changes  int
	}{
		{nil, waits, 0},
		{waits, runs, 1},
		{runs, runs, 0},
		{runs, waits, 0},
		{runs, gaveUp, 1},
		{gaveUp, &RepairHave{State: RepairGivenUp, Message: "c"}, 0},
		{nil, would, 1},
		{would, would, 0},
		{would, waits, 0},
		{runs, nil, 0},
	} {
		all := Diff(machine(c.from), machine(c.to))
		if len(all) != c.changes {
			t.Errorf("%v to %v: %+v", c.from, c.to, all)
		}
		for _, x := range all {
			r := x.(RepairChange)
			if r.Of() != "k" || r.Device != "x" || r.Repair != *c.to || r.Why.Reason != DeviceFault {
				t.Errorf("%+v", r)
			}
		}
	}
}
