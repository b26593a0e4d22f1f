package accel

import "testing"

func TestWithhold(t *testing.T) {
	well, ill := Health{State: Healthy}, Health{State: Unhealthy, Reason: DeviceFault, Message: "x"}
	phase := func(p UpgradePhase) *Upgrade { return &Upgrade{Phase: p} }
	right := DriverHave{Serves: true}
	upgrading := func(p UpgradePhase) DriverHave { return DriverHave{Serves: true, Upgrade: phase(p)} }
	applied := RuntimeHave{Applied: true}
	for name, c := range map[string]struct {
		device Accelerator
		have   Have
		proven bool
		by     Withholder
	}{
		"well":           {Accelerator{Health: well}, Have{Driver: right, Runtime: applied}, true, ""},
		"ill":            {Accelerator{Health: ill}, Have{}, false, ""},
		"another driver": {Accelerator{Health: well}, Have{Runtime: applied}, true, ByProof},
		"not proven": {
			Accelerator{Health: well},
			Have{Driver: right, Runtime: applied},
			false,
			ByProof,
		},
		"no spec": {Accelerator{Health: well}, Have{Driver: right}, true, ByRuntime},
		"in the spec": {
			Accelerator{ID: "a", Health: well},
			Have{Driver: right, Runtime: RuntimeHave{AppliedTo: []string{"a"}}},
			true, "",
		},
		"unread": {
			Accelerator{Health: well},
			Have{Driver: right, Runtime: RuntimeHave{Applied: true, NotHonored: Problemf(RuntimeDown, "x")}},
			true,
			ByRuntime,
		},
		"an upgrade waits": {Accelerator{Health: well}, Have{
			Driver:  upgrading(UpgradeWaiting),
			Runtime: applied,
		}, true, ""},
		"an upgrade drains": {Accelerator{Health: well}, Have{
			Driver:  upgrading(UpgradeDraining),
			Runtime: applied,
		}, true, ByDrain},
		"an upgrade": {Accelerator{Health: well}, Have{
			Driver:  upgrading(UpgradeReplacing),
			Runtime: applied,
		}, true, ByUpgrade},
		"being reset during an upgrade": {
			Accelerator{Health: well, Withheld: &Withheld{ByReset, BeingReset, "x"}},
			Have{Driver: upgrading(UpgradeReplacing)},
			true, ByReset,
		},
	} {
		t.Run(name, func(t *testing.T) {
			part := c.device
			device := Accelerator{ID: "a", Health: c.device.Health, Partitions: []Accelerator{part}}
			for what, got := range map[string]Accelerator{
				"device": Withhold([]Accelerator{c.device}, c.have, func(string) bool { return c.proven })[0],
				"partition": Withhold([]Accelerator{device}, c.have, func(string) bool {
					return c.proven
				})[0].Partitions[0],
			} {
				if by := withholder(got); by != c.by || got.Health != c.device.Health {
					t.Errorf("the %s is withheld by %q, want %q; its health is %+v", what, by, c.by, got.Health)
				}
				if reason, message := got.Refusal(); got.Offered() != (reason == "") || !got.Offered() &&
					message == "" {
					t.Errorf("the %s is offered: %v, refused because of %q: %q", what, got.Offered(), reason, message)
				}
			}
		})
	}
}

func withholder(a Accelerator) Withholder {
	if a.Withheld == nil {
		return ""
	}
	return a.Withheld.By
}

// The hook lets no container start while the driver is being replaced. On a host without a kubelet it also lets none
// start while the driver is draining.
func TestStartable(t *testing.T) {
	for _, c := range []struct {
		by         Withholder
		kubernetes bool
		starts     bool
	}{
		{"", true, true},
		{ByDrain, true, true}, // the kubelet allocates none; containers of pods that have one may restart
		{ByDrain, false, false},
		{ByUpgrade, true, false},
		{ByReset, true, false},
		{ByPartitioning, true, false},
		{ByProof, false, true}, // an agent that has just started has proven nothing yet
		{ByRuntime, true, true},
	} {
		a := Accelerator{Health: Health{State: Healthy}}
		if c.by != "" {
			a.Withheld = &Withheld{By: c.by}
		}
		a.Partitions = []Accelerator{a}
		m := Machine{Want: Want{Kubernetes: c.kubernetes}, Have: map[string]Have{"x": {Accelerators: []Accelerator{a}}}}
		got := Startable(m, "x")
		if got[0].Offered() != c.starts || got[0].Partitions[0].Offered() != c.starts {
			t.Errorf("%+v: %+v", c, got)
		}
		if c.by != "" && m.Have["x"].Accelerators[0].Partitions[0].Withheld == nil {
			t.Error("the machine was changed")
		}
	}
}

// A partition is withheld while its device is. A divided device is always withheld, whatever its health.
func TestOffer(t *testing.T) {
	reset := &Withheld{By: ByReset, Reason: BeingReset}
	device := Accelerator{
		ID: "a", Health: Health{State: Healthy},
		Partitions: []Accelerator{{ID: "a-x", Health: Health{State: Healthy}}},
	}
	offer := func(a Accelerator) []Accelerator {
		return Offer(Machine{Have: map[string]Have{"k": {Accelerators: []Accelerator{a}}}}, "k")
	}
	if got := offer(device); got[0].Offered() || got[0].Health.State != Healthy || !got[0].WithheldBy(ByPartitions) ||
		!got[1].Offered() {
		t.Errorf("%+v", got)
	}
	device.Withheld = reset
	if got := offer(device); CountOffered(got) != 0 || !got[1].WithheldBy(ByReset) {
		t.Errorf("%+v", got)
	}
}

// TestBare: a device without nodes that is not in the spec is bare, unless the spec is not written yet.
func TestBare(t *testing.T) {
	node := []DeviceNode{{Path: "/dev/x0"}}
	for name, c := range map[string]struct {
		runtime RuntimeHave
		nodes   []DeviceNode
		want    bool
	}{
		"in the spec":          {RuntimeHave{Applied: true, Devices: []string{"a.org/x=1", "a.org/x=0000:01:00.0"}}, nil, false},
		"in no spec":           {RuntimeHave{Applied: true}, nil, true},
		"another is":           {RuntimeHave{Applied: true, Devices: []string{"a.org/x=10000:01:00.0"}}, nil, true},
		"not written yet":      {RuntimeHave{}, nil, false},
		"with nodes, no spec":  {RuntimeHave{Applied: true}, node, false},
		"for some, not for it": {RuntimeHave{AppliedTo: []string{"1"}}, nil, false},
	} {
		device := Accelerator{ID: "0000:01:00.0", Nodes: c.nodes, Health: Health{State: Healthy}}
		got := Withhold([]Accelerator{device}, Have{Runtime: c.runtime}, func(string) bool { return true })
		if got[0].Bare != c.want {
			t.Errorf("%s: %t", name, got[0].Bare)
		}
	}
}

func TestUsableText(t *testing.T) {
	by := func(w Withholder, r Reason) Accelerator {
		return Accelerator{Health: Health{State: Healthy}, Withheld: &Withheld{By: w, Reason: r}}
	}
	sick := by(ByHandover, LeftoverProcess)
	sick.Health.State = Unhealthy
	fine := Accelerator{Health: Health{State: Healthy}}
	for want, accs := range map[string][]Accelerator{
		"0 of 0 devices usable":             nil,
		"1 of 2 devices usable":             {fine, sick}, // its health is the reason
		"2 of 2 devices usable, 1 withheld": {fine, by(ByHandover, LeftoverProcess)},
		"3 of 3 devices usable":             {by(BySwitch, ""), by(BySettings, SettingPending), by(ByDrain, "")},
	} {
		if got := UsableText(accs); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
