package policy

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// TestOverview: people see nodes with accelerators from their labels, reports and conditions, and policies in order
// of precedence.
func TestOverview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		s.edit(nodePath("a"), aNode(nil))
		s.edit(nodePath("a"), annotate(wordKey, "waiting 2"))
		s.edit(nodePath("b"), aNode(object{servesKey: "failed"}))
		s.edit(nodePath("b"), object{"spec": object{"unschedulable": true}, "status": object{"conditions": []any{
			object{"type": "Ready", "status": "False"}, object{
				"type": "AcceleratorsReady", "status": "False",
				"reason": "NoSpace", "message": "full",
			},
		}}})
		s.edit(nodePath("cpu"), object{"metadata": object{"labels": object{"x": "y", kube.Prefix + "pool": "z"}}})
		s.edit(policyPath, fleetPolicy("2", object{}, object{"dryRun": false}))
		s.edit(kube.PoliciesPath+"/first",
			object{"spec": object{"priority": 9, "dryRun": true, "kinds": object{kind: object{}}}})
		if _, known := stopped(t, s).Overview(); known {
			t.Error("something is known before anything was read")
		}
		c, stop := start(t, s)
		defer stop()
		wait(10 * time.Second)
		got, known := c.Overview()
		if !known {
			t.Fatal("nothing is known")
		}
		want := []NodeView{
			{Name: "a", Up: true, Ready: "True", Kinds: []KindView{{
				Kind: kind, Count: "1", Version: "1",
				States:        map[accel.Published]accel.Phase{accel.DriverContainer: accel.PhaseReady},
				UpgradeReport: accel.UpgradeReport{Phase: accel.ReportWaiting, Version: "2"}, Granted: "2",
				Policy: "fleet",
			}}},
			{Name: "b", Cordoned: true, Ready: "False", Reason: "NoSpace", Message: "full", Kinds: []KindView{{
				Kind: kind, Count: "1", Version: "1",
				States: map[accel.Published]accel.Phase{accel.DriverContainer: accel.PhaseFailed}, Policy: "fleet",
			}}},
		}
		if diff := cmp.Diff(want, got.Nodes); diff != "" {
			t.Error(diff)
		}
		if len(got.Policies) != 2 || got.Policies[0].Name != "first" || !got.Policies[0].DryRun ||
			got.Policies[1].Status.Nodes.Matched != 2 {
			t.Errorf("%+v", got.Policies)
		}
	})
}

// TestServes: a kind without a check serves too. Nothing has proven it, and its rollout ends all the same.
func TestServes(t *testing.T) {
	for phases, want := range map[[2]string]bool{
		{"ready", ""}: true, {"ready", "ready"}: true, {"unchecked", "ready"}: true, {"unchecked", ""}: true,
		{"ready", "pending"}: false, {"unchecked", "failed"}: false, {"pending", "ready"}: false, {"", "ready"}: false,
	} {
		var n Node
		n.Labels = packed("a", map[string]string{
			kube.Prefix + string(accel.DriverContainer) + "-k-x": phases[0],
			kube.Prefix + string(accel.DevicePlugin) + "-k-x":    phases[1],
		})
		if n.serves("k-x") != want {
			t.Errorf("driver %q, plugin %q: serves is %t", phases[0], phases[1], !want)
		}
	}
}
