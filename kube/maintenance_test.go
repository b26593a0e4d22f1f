package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/acceld/acceld/accel"
)

// atRest is a machine whose kind has nothing to report to a controller.
func atRest(m *accel.Machine) {
	have := m.Have["qemu-edu"]
	have.UpgradeReport = accel.Known(accel.UpgradeReport{})
	m.Have["qemu-edu"] = have
}

// midway is one whose agent does not know yet what an earlier one has left.
func midway(m *accel.Machine) {
	have := m.Have["qemu-edu"]
	have.UpgradeReport = accel.Answer[accel.UpgradeReport]{}
	m.Have["qemu-edu"] = have
}

// replacing is a machine whose driver is in this phase of an upgrade.
func replacing(p accel.UpgradePhase) change {
	return func(m *accel.Machine) {
		atRest(m)
		have := m.Have["qemu-edu"]
		have.Driver.Upgrade = &accel.Upgrade{
			From: accel.DriverRef{Version: "1"}, To: accel.DriverRef{Version: "2"}, Phase: p,
		}
		m.Have["qemu-edu"] = have
		def := &accel.Definition{Kind: "qemu-edu"}
		def.Driver.Upgrade.Holders = accel.HoldersEvict
		m.Want.Kinds = map[string]*accel.Definition{"qemu-edu": def}
	}
}

// says is a condition of the node.
func says(t accel.MaintenanceCondition, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: corev1.NodeConditionType(t), Status: status, Reason: reason, Message: "by " + reason,
		LastTransitionTime: metav1.NewTime(start()),
	}
}

// lifecycle returns the conditions of maintenance that the node has: "DrainInProgress True AcceldUpgrade".
func (c *cluster) lifecycle() (all []string) {
	for _, x := range c.node().Status.Conditions {
		if slices.Contains(accel.MaintenanceConditions(), accel.MaintenanceCondition(x.Type)) {
			all = append(all, fmt.Sprintf("%s %s %s", x.Type, x.Status, x.Reason))
		}
	}
	slices.Sort(all)
	return all
}

func (c *cluster) want(what string, want ...string) {
	c.t.Helper()
	if d := cmp.Diff(want, c.lifecycle()); d != "" {
		c.t.Errorf("%s: -want +got\n%s", what, d)
	}
}

const (
	ownWork  = "MaintenanceInProgress True AcceldUpgrade"
	ownDrain = "DrainInProgress True AcceldUpgrade"
)

func withConditions(all ...corev1.NodeCondition) *corev1.Node {
	n := freshNode()
	n.Status.Conditions = append(n.Status.Conditions, all...)
	return n
}

func TestWorkIsTold(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		c.k.Publish(readyMachine(replacing(accel.UpgradeWaiting)))
		c.after(time.Minute)
		c.want("while the upgrade waits")
		c.patches()
		c.k.Publish(readyMachine(replacing(accel.UpgradeDraining)))
		c.after(time.Minute)
		c.want("while pods are evicted", ownDrain, ownWork)
		c.k.Publish(readyMachine(replacing(accel.UpgradeReplacing)))
		c.after(time.Minute)
		c.want("while the driver is replaced", ownWork)
		for _, x := range c.node().Status.Conditions {
			if x.Type == corev1.NodeConditionType(accel.MaintenanceInProgress) && (!strings.Contains(x.Message, "version 2") ||
				x.LastTransitionTime.IsZero()) {
				t.Errorf("%+v", x)
			}
		}
		c.patches()
		for i := range 5 {
			c.k.Publish(readyMachine(replacing(accel.UpgradeReplacing), temperature(float64(i))))
			c.after(time.Minute)
		}
		if p := c.patches(); p != nil {
			t.Errorf("writes for nothing: %v", p)
		}
		c.k.Publish(readyMachine(atRest))
		c.after(time.Minute)
		c.want("at the end")
		if len(c.node().Status.Conditions) != 2 {
			t.Errorf("%v", c.node().Status.Conditions)
		}
	})
}

// TestWorkAfterAKill: what an agent said that was killed goes when the next one knows that it has ended, and not
// before.
func TestWorkAfterAKill(t *testing.T) {
	left := []corev1.NodeCondition{
		says(accel.MaintenanceInProgress, corev1.ConditionTrue, accel.OwnUpgrade),
		says(accel.DrainInProgress, corev1.ConditionTrue, "AcceldOfAnotherVersion"),
		says(accel.Drained, corev1.ConditionTrue, "KubectlDrainCompleted"),
	}
	const foreign, old = "Drained True KubectlDrainCompleted", "DrainInProgress True AcceldOfAnotherVersion"
	inCluster(t, withConditions(left...), func(c *cluster) {
		c.after(time.Minute)
		c.want("before the host was read", old, foreign, ownWork)
		c.k.Publish(readyMachine(midway))
		c.after(time.Minute)
		c.want("while the driver is not back", old, foreign, ownWork)
		c.k.Publish(readyMachine(atRest))
		c.after(time.Minute)
		c.want("when it is", foreign)
	})
	inCluster(t, withConditions(left...), func(c *cluster) {
		c.k.Publish(readyMachine(replacing(accel.UpgradeReplacing)))
		c.after(time.Minute)
		c.want("while the next agent goes on", foreign, ownWork)
	})
}

// TestWorkOfOthersStays: a condition of somebody else is neither overwritten nor removed while it is not False.
func TestWorkOfOthersStays(t *testing.T) {
	for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionUnknown} {
		theirs := says(accel.MaintenanceInProgress, status, "Fan")
		inCluster(t, withConditions(theirs), func(c *cluster) {
			stays := fmt.Sprintf("MaintenanceInProgress %s Fan", status)
			for _, m := range []accel.Machine{
				readyMachine(replacing(accel.UpgradeReplacing)), readyMachine(atRest),
			} {
				c.k.Publish(m)
				c.after(time.Minute)
				c.want("somebody else works", stays)
			}
		})
	}
	inCluster(t, withConditions(says(accel.DrainInProgress, corev1.ConditionFalse, "KubectlUncordoned")),
		func(c *cluster) {
			c.k.Publish(readyMachine(atRest))
			c.after(time.Minute)
			c.want("nobody works", "DrainInProgress False KubectlUncordoned")
			c.k.Publish(readyMachine(replacing(accel.UpgradeDraining)))
			c.after(time.Minute)
			c.want("acceld drains", ownDrain, ownWork)
			c.edit(`{"status":{"conditions":[{"type":"MaintenanceInProgress","status":"True","reason":"Fan"}]}}`)
			c.k.Publish(readyMachine(atRest))
			c.after(time.Minute)
			c.want("somebody has taken over", "MaintenanceInProgress True Fan")
		})
}

func TestWorkOfTheController(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		c.k.Publish(readyMachine(atRest))
		c.after(time.Minute)
		mark := func(what, annotations string, want ...string) {
			c.edit(`{"metadata":{"resourceVersion":"` + c.node().ResourceVersion + `9","annotations":` + annotations + `}}`)
			c.after(time.Minute)
			c.want(what, want...)
		}
		mark("cordoned", `{"acceld.dev/cordoned-by":"fleet"}`, ownWork)
		mark("draining", `{"acceld.dev/drain":"draining"}`, ownDrain, ownWork)
		c.k.Publish(readyMachine(midway))
		mark("drained", `{"acceld.dev/drain":"drained"}`, ownWork)
		mark("uncordoned by somebody", `{"acceld.dev/cordoned-by":""}`, ownWork)
		mark("over, and not known", `{"acceld.dev/cordoned-by":null,"acceld.dev/drain":null}`, ownWork)
		c.k.Publish(readyMachine(atRest))
		c.after(time.Minute)
		c.want("over")
	})
}

func TestQuiet(t *testing.T) {
	node := withConditions(says(accel.MaintenanceInProgress, corev1.ConditionTrue, accel.OwnUpgrade))
	node.Annotations = map[string]string{accel.DrainAnnotation: string(accel.Draining)}
	inCluster(t, node, func(c *cluster) {
		c.k.Publish(readyMachine(replacing(accel.UpgradeReplacing)))
		c.after(time.Minute)
		c.want("switched off")
		if c.condition().Status != corev1.ConditionTrue {
			t.Error(c.condition())
		}
	}, func(x *Config) { x.Quiet = true })
}

// TestWorkRefused: rules that do not let the conditions in cost neither labels nor the own condition.
func TestWorkRefused(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		tried := 0
		c.refusing(func(a clienttesting.Action) error {
			p, is := a.(clienttesting.PatchAction)
			if !is || !strings.Contains(string(p.GetPatch()), "MaintenanceInProgress") {
				return nil
			}
			tried++
			return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-a", nil)
		})
		for i := range 5 {
			c.k.Publish(readyMachine(replacing(accel.UpgradeReplacing), temperature(float64(i))))
			c.after(time.Minute)
		}
		c.want("refused")
		if s := c.k.State(); s.Problem != nil || !s.Labelled || c.condition().Reason != reasonReady || tried != 1 {
			t.Errorf("%+v, %+v, tried %d times", s, c.condition(), tried)
		}
	})
}

// TestWorkConflict: the patch is of the version of the node that was read, so that it does not end what somebody else
// has begun to say since.
func TestWorkConflict(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		c.k.Publish(readyMachine(atRest))
		c.after(time.Minute)
		conflicts := 0
		c.refusing(func(a clienttesting.Action) error {
			p, is := a.(clienttesting.PatchAction)
			if !is || !strings.Contains(string(p.GetPatch()), "AcceldUpgrade") || conflicts > 0 {
				return nil
			}
			if !strings.Contains(string(p.GetPatch()), `"resourceVersion":"`) {
				t.Errorf("%s", p.GetPatch())
			}
			conflicts++
			return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "node-a", nil)
		})
		c.k.Publish(readyMachine(replacing(accel.UpgradeReplacing)))
		c.after(100 * time.Millisecond)
		if conflicts != 1 {
			t.Fatal(conflicts)
		}
		c.want("tried again at once", ownWork)
	})
}

func TestWhoElseWorks(t *testing.T) {
	theirs := says(accel.MaintenanceInProgress, corev1.ConditionTrue, "Fan")
	theirs.Message = strings.Repeat("x", 5000)
	inCluster(t, withConditions(theirs, says(accel.DrainInProgress, corev1.ConditionTrue, accel.OwnUpgrade)),
		func(c *cluster) {
			c.after(time.Minute)
			s := c.k.State()
			if !s.Asked || len(s.Maintenance) != 1 || s.Maintenance[0].Reason != "Fan" ||
				!s.Maintenance[0].Since.Equal(start()) || len(s.Maintenance[0].Message) > 300 {
				t.Errorf("%+v", s)
			}
			changes := c.changes
			c.edit(`{"status":{"conditions":null}}`)
			c.after(time.Minute)
			if s := c.k.State(); len(s.Maintenance) > 0 || c.changes == changes {
				t.Errorf("%+v", s)
			}
		})
	down := fake.NewClientset()
	down.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("down")
	})
	inCluster(t, freshNode(), func(c *cluster) {
		c.after(time.Minute)
		if s := c.k.State(); !s.Asked || s.Maintenance != nil {
			t.Errorf("%+v", s)
		}
	}, func(cfg *Config) {
		cfg.Client.Nodes = down.CoreV1().Nodes()
		if New(*cfg).State().Asked {
			t.Error("asked before it has begun")
		}
	})
}

// TestConditionNamesMaintenance: whoever looks at the node sees why acceld does not go on.
func TestConditionNamesMaintenance(t *testing.T) {
	m := readyMachine(func(m *accel.Machine) {
		m.Facts.Maintenance = accel.ParseMaintenance([]accel.RawCondition{
			{Type: "MaintenanceInProgress", Status: "True", Reason: "Fan"},
		})
	})
	c := Condition(m)
	if c.Status != corev1.ConditionTrue ||
		!strings.Contains(c.Message, "node is under maintenance: reason Fan by condition MaintenanceInProgress") {
		t.Errorf("%+v", c)
	}
	m.Have, m.Status = nil, nil
	if c := Condition(m); c.Reason != reasonIdle {
		t.Errorf("%+v", c)
	}
}
