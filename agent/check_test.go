package agent

import (
	"context"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/hosttest"
)

// TestCheckOnDemand: of the devices that are tested, those that fail are unhealthy, and no other.
func TestCheckOnDemand(t *testing.T) {
	m := hosttest.New(t)
	ids := []string{"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"}
	for _, id := range ids {
		m.AddPCI(accel.PCIDevice{Address: id, Vendor: "f00d", Device: "0100", NUMANode: -1, IOMMUGroup: -1})
		m.SetAttribute(id, "factorial", "120")
	}
	m.SetAttribute(ids[1], "factorial", "119")
	a := assembled(t, m, "")
	def := &accel.Definition{Kind: "example-npu", Check: &accel.Check{File: "factorial", Want: "120"}}
	of := func(ids ...string) (all []accel.Accelerator) {
		for _, id := range ids {
			all = append(all, accel.Accelerator{ID: id, Health: accel.Health{State: accel.Healthy}})
		}
		return all
	}
	problem := a.plugins.check(t.Context(), def, of(ids[0], ids[1]))
	if problem == nil || problem.Reason != accel.CheckFailed || !strings.Contains(problem.Message, `"119"`) ||
		strings.Contains(problem.Message, ids[0]) {
		t.Errorf("%v", problem)
	}
	for i, x := range a.health.Judge(def, nil, of(ids...)) {
		if want := i != 1; x.Health.Usable() != want {
			t.Errorf("%s: %+v", x.ID, x.Health)
		}
	}
	if problem := a.plugins.check(t.Context(), def, of(ids[2])); problem != nil {
		t.Errorf("%v", problem)
	}

	m.SetAttribute(ids[2], "factorial", "119")
	part := accel.Accelerator{ID: ids[2] + "-half-p0", Parent: ids[2]}
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx  context.Context
		accs []accel.Accelerator
	}{
		"a partition": {t.Context(), []accel.Accelerator{part}},
		"too late":    {ended, of(ids[2])},
	} {
		if problem := a.plugins.check(c.ctx, def, c.accs); problem == nil || problem.Reason != accel.CheckNotRun {
			t.Errorf("%s: %v", name, problem)
		}
	}
	if x := a.health.Judge(def, nil, of(ids[2])); !x[0].Health.Usable() {
		t.Errorf("nobody has tested it: %+v", x[0].Health)
	}
}
