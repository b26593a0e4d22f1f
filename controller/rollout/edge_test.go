package rollout

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
)

// TestSlotHolds: a slot stays with its node while the node may be without a driver, whatever version is wanted by
// now.
func TestSlotHolds(t *testing.T) {
	slot := Slot{Node: "a", Version: "2", Since: start}
	for name, n := range map[string]Node{
		"silent and without a driver": {Name: "a", Version: "2", Ready: true, Phase: ""},
		"serves the one before": {
			Name: "a", Version: "1", Ready: true, Serving: true, Phase: accel.ReportWaiting,
			For: "2",
		},
		"acts on what it was told before": {Name: "a", Version: "1", Ready: true, Phase: accel.ReportUpgrading, For: "3"},
		"acts":                            {Name: "a", Version: "1", Ready: true, Phase: accel.ReportUpgrading, For: "2"},
		"failed with another version, before now": {
			Name: "a", Version: "1", Ready: true, Serving: true, Phase: accel.ReportFailed,
			For: "1.5",
		},
	} {
		for _, wanted := range []string{"2", "4"} {
			if wanted == "4" && n.Phase != accel.ReportUpgrading {
				continue
			}
			p := Decide(start, wanted, Limits{}, []Node{n, waits("b")}, []Slot{slot})
			if diff := cmp.Diff([]any{[]Slot{slot}, 0}, []any{p.Slots, len(p.Ended)}); diff != "" {
				t.Errorf("%s, wanted %s: %s", name, wanted, diff)
			}
		}
	}
}
