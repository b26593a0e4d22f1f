package accel

import "testing"

// A device without a driver tells nothing; what complained about it is shown.
func TestSeen(t *testing.T) {
	for want, a := range map[string]Accelerator{
		"unknown":   {Health: Health{State: Healthy}},
		"healthy":   {Health: Health{State: Healthy}, Bound: "npu"},
		"unhealthy": {Health: Health{State: Unhealthy}},
		"gone":      {Health: Health{State: Gone}},
	} {
		if got := a.Seen(); got != want {
			t.Errorf("%+v: %s, want %s", a, got, want)
		}
	}
	if got := (Accelerator{Profile: "half", Health: Health{State: Healthy}}).Seen(); got != "healthy" {
		t.Errorf("a partition, which has no driver of its own: %s", got)
	}
}
