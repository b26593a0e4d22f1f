package accel

import (
	"slices"
	"testing"
	"time"
)

func TestPartitionNames(t *testing.T) {
	def := &Definition{
		Resource:   "qemu.org/edu",
		Partitions: &Partitions{Profiles: []Profile{{Name: "1g+me", Rename: "qemu.org/small"}}},
	}
	for profile, want := range map[string]string{
		"": "qemu.org/edu", "half": "qemu.org/edu-half",
		"1g-me": "qemu.org/small",
	} {
		if got := def.OfferedAs(profile); got != want {
			t.Errorf("%q is offered as %q, want %q", profile, got, want)
		}
	}
	if former := def.FormerlyOfferedAs("1g-me"); !slices.Contains(former, "qemu.org/edu-1g-me") ||
		slices.Contains(former, "qemu.org/small") {
		t.Errorf("formerly %v", former)
	}
	def.Rename, def.Sharing = "qemu.org/card", &Sharing{Replicas: 2, Rename: true}
	if got := def.OfferedAs("half"); got != "qemu.org/card-half.shared" {
		t.Errorf("renamed and shared it is %q", got)
	}
	for text, want := range map[string]string{"1g.5gb+me": "1g.5gb-me", "+half+": "half", "--": "", "Ä": ""} {
		if got := PartitionWord(text); got != want {
			t.Errorf("PartitionWord(%q) = %q, want %q", text, got, want)
		}
	}
}

func reason(a Accelerator) Reason {
	r, _ := a.Refusal()
	return r
}

// TestCurrent: a device that is gone is counted, a partition that is gone is not, whether by itself or with its device.
func TestCurrent(t *testing.T) {
	part := func(id, device string, state HealthState) Accelerator {
		return Accelerator{ID: id, Parent: device, Profile: "half", Health: Health{State: state}}
	}
	var ids []string
	for _, a := range Current([]Accelerator{
		{
			ID: "a", Health: Health{State: Healthy},
			Partitions: []Accelerator{part("a-0", "a", Unhealthy), part("a-1", "a", Gone), part("a-2", "a", "")},
		},
		{ID: "b", Health: Health{State: Gone}, Partitions: []Accelerator{part("b-0", "b", Healthy)}},
	}) {
		ids = append(ids, a.ID)
	}
	if want := []string{"a", "a-0", "a-2", "b"}; !slices.Equal(ids, want) {
		t.Errorf("%v, want %v", ids, want)
	}
}

// TestUnits: a divided device is not given out, and a fault of a device is a fault of its partitions.
func TestUnits(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	healthy, gone := Health{State: Healthy}, Health{State: Gone, Reason: DeviceGone}
	sick := Health{State: Unhealthy, Reason: DeviceUnhealthy, Message: "hot", Since: since}
	missing := Health{State: Unhealthy, Reason: NodeMissing}
	part := func(h Health) Accelerator { return Accelerator{ID: "p", Parent: "d", Profile: "half", Health: h} }
	for _, tc := range []struct {
		name         string
		device       Health
		parts        []Accelerator
		whole, first Reason
		usable       int
	}{
		{"whole", healthy, nil, "", "", 1},
		{"divided", healthy, []Accelerator{part(healthy), part(healthy)}, DevicePartitioned, "", 2},
		{"a part without a health of its own", healthy, []Accelerator{part(Health{})}, DevicePartitioned, "", 1},
		{"whole again", healthy, []Accelerator{part(gone)}, "", DeviceGone, 1},
		{"sick", sick, nil, DeviceUnhealthy, "", 0},
		{"sick and divided", sick, []Accelerator{part(healthy)}, DevicePartitioned, DeviceUnhealthy, 0},
		{
			"a part without its node", healthy,
			[]Accelerator{part(missing), part(healthy)},
			DevicePartitioned,
			NodeMissing, 1,
		},
		{"gone", gone, []Accelerator{part(missing)}, DeviceGone, DeviceGone, 0},
		{
			"degraded",
			Health{State: Degraded, Reason: LinkDegraded},
			[]Accelerator{part(healthy)},
			DevicePartitioned,
			LinkDegraded, 1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			accs := []Accelerator{{ID: "d", Health: tc.device, Partitions: tc.parts}}
			units := Units(accs)
			if len(units) != 1+len(tc.parts) || reason(units[0]) != tc.whole || CountOffered(units) != tc.usable {
				t.Fatalf("%+v", units)
			}
			if len(tc.parts) > 0 && units[1].Health.Reason != tc.first {
				t.Errorf("the first part: %+v", units[1].Health)
			}
			if flat := Flat(accs); flat[0].Health != tc.device || flat[0].Partitions != nil {
				t.Errorf("the device itself: %+v", flat[0])
			}
		})
	}
}
