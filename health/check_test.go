package health

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestCheckFailed: a device that fails a self-test on demand is unhealthy until its driver is bound again, whichever
// agent runs, and the other devices are not.
func TestCheckFailed(t *testing.T) {
	b := newBench(t)
	b.e.CheckFailed(one, "device gave "+strings.Repeat("119", 500))
	for range 2 {
		b.restart() // killed before the next look
		all := b.judged()
		if h := all[0].Health; h.State != accel.Unhealthy || h.Reason != accel.CheckFailed ||
			h.Action != accel.ActionResetDevice || !strings.HasPrefix(h.Evidence, "device gave 119") || len(h.Evidence) > 310 {
			t.Errorf("%+v", h)
		}
		if all[1].Health.State != accel.Healthy {
			t.Errorf("the other one: %+v", all[1].Health)
		}
	}
	b.m.Unbind(one)
	b.m.Bind(one, "npu")
	if h := b.judged()[0].Health; h.State != accel.Healthy {
		t.Errorf("bound again: %+v", h)
	}
}
