package accel

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	well := Health{State: Healthy}
	sick := Health{State: Unhealthy, Reason: DeviceFault, Message: "parity"}
	machine := func(change func(*Have, *Status)) Machine {
		have := Have{Accelerators: []Accelerator{
			{ID: "a", Health: well},
			{ID: "b", Health: well, Partitions: []Accelerator{{ID: "b-half-0", Parent: "b", Health: well}}},
		}}
		have.Driver = DriverHave{Serves: true, Version: "1"}
		status := Status{State: Ready}
		if change != nil {
			change(&have, &status)
		}
		return Machine{Taken: time.Unix(1, 0), Have: map[string]Have{"k": have}, Status: map[string]Status{"k": status}}
	}
	blocked := func(r Reason) func(*Have, *Status) {
		return func(_ *Have, s *Status) { s.State, s.Blocked = DriverMissing, &Failure{Problem: Problem{Reason: r}} }
	}
	device := func(a, b, part Health) func(*Have, *Status) {
		return func(h *Have, _ *Status) {
			h.Accelerators[0].Health, h.Accelerators[1].Health, h.Accelerators[1].Partitions[0].Health = a, b, part
		}
	}
	upgrade := func(u Upgrade) func(*Have, *Status) {
		return func(h *Have, _ *Status) { h.Driver.Upgrade = &u }
	}
	failed := func(r Reason) Upgrade {
		return Upgrade{Wish: "2", Phase: UpgradeWaiting, Failure: &Failure{Problem: Problem{Reason: r}}}
	}
	next := func(p *Problem) func(*Have, *Status) {
		return func(h *Have, _ *Status) { h.Driver.Next = map[string]Readiness{"6.12": {Problem: p}} }
	}
	changed := func(from, to func(*Have, *Status)) UpgradeChange {
		return UpgradeChange{"k", machine(from).Have["k"].Driver, machine(to).Have["k"].Driver}
	}
	waiting := Upgrade{Wish: "2", Phase: UpgradeWaiting}
	replaced := func(h *Have, _ *Status) { h.Driver.Version = "2" }
	for name, c := range map[string]struct {
		from, to Machine
		want     []Change
	}{
		"first": {Machine{}, machine(nil), []Change{StateChange{"k", "", Ready}}},
		"first and sick": {Machine{}, machine(device(sick, well, well)), []Change{
			StateChange{"k", "", Ready},
			HealthChange{Kind: "k", Device: "a", To: &sick},
		}},
		"nothing": {machine(nil), machine(nil), nil},
		"message alone": {
			machine(device(sick, well, well)),
			machine(device(Health{State: Unhealthy, Reason: DeviceFault}, well, well)), nil,
		},
		"blocked": {machine(nil), machine(blocked(NoSpace)), []Change{
			StateChange{"k", Ready, DriverMissing}, BlockedChange{"k", DriverMissing, Problem{Reason: NoSpace}},
		}},
		"blocked otherwise": {
			machine(blocked(ReadOnly)), machine(blocked(NoSpace)),
			[]Change{BlockedChange{"k", DriverMissing, Problem{Reason: NoSpace}}},
		},
		"blocked still": {machine(blocked(NoSpace)), machine(blocked(NoSpace)), nil},
		"device": {
			machine(nil), machine(device(sick, well, well)),
			[]Change{HealthChange{Kind: "k", Device: "a", From: &well, To: &sick}},
		},
		"partition": {
			machine(nil), machine(device(well, well, sick)),
			[]Change{HealthChange{Kind: "k", Device: "b-half-0", Parent: "b", From: &well, To: &sick}},
		},
		"partition alone well again": {machine(device(well, well, sick)), machine(nil), []Change{
			HealthChange{Kind: "k", Device: "b-half-0", Parent: "b", From: &sick, To: &well},
		}},
		"device and so its partition": {machine(nil), machine(device(well, sick, well)), []Change{
			HealthChange{Kind: "k", Device: "b", From: &well, To: &sick},
			HealthChange{Kind: "k", Device: "b-half-0", Parent: "b", From: &well, To: &sick, Inherited: true},
		}},
		"forgotten and new": {machine(nil), machine(func(h *Have, _ *Status) {
			h.Accelerators = []Accelerator{{ID: "c", Health: well}}
		}), []Change{
			HealthChange{Kind: "k", Device: "c", To: &well},
			HealthChange{Kind: "k", Device: "a", From: &well},
			HealthChange{Kind: "k", Device: "b", From: &well},
			HealthChange{Kind: "k", Device: "b-half-0", Parent: "b", From: &well},
		}},
		"kernel without driver": {
			machine(nil), machine(next(&Problem{Reason: BuildFailed})),
			[]Change{KernelChange{"k", "6.12", Problem{Reason: BuildFailed}}},
		},
		"kernel still without": {
			machine(next(&Problem{Reason: BuildFailed})),
			machine(next(&Problem{Reason: BuildFailed})), nil,
		},
		"kernel with driver": {machine(next(&Problem{Reason: BuildFailed})), machine(next(nil)), nil},
		"upgrade wanted":     {machine(nil), machine(upgrade(waiting)), []Change{changed(nil, upgrade(waiting))}},
		"upgrade waits":      {machine(upgrade(waiting)), machine(upgrade(waiting)), nil},
		"upgrade in use": {
			machine(upgrade(waiting)), machine(upgrade(failed(InUse))),
			[]Change{changed(upgrade(waiting), upgrade(failed(InUse)))},
		},
		"upgrade still in use": {machine(upgrade(failed(InUse))), machine(upgrade(failed(InUse))), nil},
		"upgraded": {
			machine(upgrade(waiting)), machine(replaced),
			[]Change{changed(upgrade(waiting), replaced)},
		},
	} {
		if diff := cmp.Diff(c.want, Diff(c.from, c.to)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for name, c := range map[string]struct {
		change               UpgradeChange
		wished, failed, done bool
	}{
		"wanted":     {changed(nil, upgrade(waiting)), true, false, false},
		"in use":     {changed(upgrade(waiting), upgrade(failed(InUse))), false, true, false},
		"no more":    {changed(upgrade(failed(InUse)), upgrade(waiting)), false, false, false},
		"done":       {changed(upgrade(waiting), replaced), false, false, true},
		"called off": {changed(upgrade(waiting), nil), false, false, false},
	} {
		if x := c.change; x.Wished() != c.wished || x.Failed() != c.failed || x.Done() != c.done {
			t.Errorf("%s: wished %v, failed %v, done %v", name, x.Wished(), x.Failed(), x.Done())
		}
	}
}
