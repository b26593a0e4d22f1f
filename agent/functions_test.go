package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// TestFunctionDevices: a virtual function is found in whatever kind it is a device of.
func TestFunctionDevices(t *testing.T) {
	well := accel.Health{State: accel.Healthy}
	m := accel.Machine{
		Want: accel.Want{Kinds: map[string]*accel.Definition{"a-x": {Kind: "a-x"}, "b-x": {Kind: "b-x"}}},
		Have: map[string]accel.Have{
			"a-x": {Accelerators: []accel.Accelerator{{ID: "0000:01:00.0", Health: well}}},
			"b-x": {Accelerators: []accel.Accelerator{
				{ID: "0000:01:00.1", Health: well},
				{ID: "0000:01:00.2", Health: accel.Health{State: accel.Gone}},
				{ID: "0000:01:00.3", Health: well},
			}},
			"c-x": {Accelerators: []accel.Accelerator{{ID: "0000:01:00.1", Health: well}}}, // no longer configured
		},
	}
	var got []string
	for _, f := range functionDevices(m, []string{"0000:01:00.1", "0000:01:00.2"}) {
		got = append(got, f.def.Kind+" "+f.device.ID)
	}
	if diff := cmp.Diff([]string{"b-x 0000:01:00.1"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestMore: who is named with the function that they have is not named again without it.
func TestMore(t *testing.T) {
	got := more([]string{"sleep (pid 7) (virtual function 0000:01:00.1)", "b"}, []string{"sleep (pid 7)", "b", "sleep (pid 70)"})
	if diff := cmp.Diff([]string{"sleep (pid 7) (virtual function 0000:01:00.1)", "b", "sleep (pid 70)"}, got); diff != "" {
		t.Error(diff)
	}
}
