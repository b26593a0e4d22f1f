package kube

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
)

// A node that comes up costs one write of the node and one of its status, whatever the number of states on the way.
func TestBringUpIsTwoWrites(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		c.k.Publish(accel.Machine{}) // the host has not been read yet
		for i, s := range []accel.State{
			accel.DriverMissing, accel.DriverUnproven, accel.RuntimeMissing,
			accel.PluginMissing, accel.KubeletPending, accel.Unwatched,
		} {
			c.k.Publish(readyMachine(at(s, min(i, 3))))
			c.after(20 * time.Millisecond)
		}
		c.after(time.Second)
		if d := cmp.Diff([]string{"metadata", "status"}, c.patches()); d != "" {
			t.Errorf("writes -want +got:\n%s", d)
		}
		if s := c.k.State(); !s.Labelled || s.Problem != nil || s.ClusterVersion != "v1.37.1" || !s.NodeFound {
			t.Errorf("state %+v", s)
		}
		c.k.Publish(readyMachine())
		c.after(time.Second)
		if p := c.patches(); p != nil {
			t.Errorf("writes for nothing: %v", p)
		}
		n := c.node()
		for key, want := range Labels(readyMachine()) {
			if n.Labels[key] != want {
				t.Errorf("label %s is %q, want %q", key, n.Labels[key], want)
			}
		}
		if len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "example.com/x" {
			t.Errorf("taints %v", n.Spec.Taints)
		}
		if cond := c.condition(); len(n.Status.Conditions) != 2 || cond.Status != corev1.ConditionTrue ||
			cond.LastTransitionTime.IsZero() {
			t.Errorf("conditions %v", n.Status.Conditions)
		}
		if e := c.events(); len(e) != 6 {
			t.Errorf("events %q, want one for each change of state", e)
		}
	})
}

// One kind that is not ready keeps the startup taint and delays the first writes, whatever the state of the others
// and the order in which they are checked.
func TestOneKindOfMany(t *testing.T) {
	among := func(c change) change {
		return func(m *accel.Machine) {
			for i := range 7 {
				other := kindOf(8 + i)
				m.Have[other], m.Status[other] = m.Have["qemu-edu"], m.Status["qemu-edu"]
			}
			c(m)
		}
	}
	tainted := func(c *cluster) bool { return len(c.node().Spec.Taints) == 2 }
	for name, pending := range map[string]change{
		"on its way": at(accel.DriverUnproven, 0),
		"blocked": func(m *accel.Machine) {
			at(accel.DriverMissing, 0)(m)
			blockedBy(accel.HeadersMissing, "no headers")(m)
		},
		// Every gate is passed, but a repeated step fails.
		"ready and blocked": blockedBy(accel.HeadersMissing, "no headers"),
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, freshNode(), func(c *cluster) {
				for i := range 20 {
					c.k.Publish(readyMachine(among(pending), temperature(float64(i))))
					c.after(50 * time.Millisecond)
				}
				if p := c.patches(); name == "on its way" && p != nil {
					t.Errorf("while more is to come: %v", p)
				}
				for i := range 20 {
					c.k.Publish(readyMachine(among(pending), temperature(float64(i))))
					c.after(time.Minute)
					if !tainted(c) {
						c.t.Fatal("the startup taint is gone")
					}
				}
				c.k.Publish(readyMachine(among(func(*accel.Machine) {})))
				c.after(time.Minute)
				if tainted(c) {
					t.Error("the startup taint stays when every kind is ready")
				}
			})
		})
	}
}

// The condition is written whenever its text changes. Its transition time changes only with its status: tools read it
// as how long a node has been well or ill.
func TestConditionSinceWhen(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		var before corev1.NodeCondition
		for _, step := range []struct {
			what            string
			m               accel.Machine
			written, turned bool
		}{
			{"at first", readyMachine(), true, true},
			{"another message", readyMachine(upgrade("2", "")), true, false},
			{"nothing else", readyMachine(upgrade("2", ""), temperature(50)), false, false},
			{"ill", readyMachine(health(accel.Unhealthy, accel.DeviceUnhealthy, "it is lost")), true, true},
			{
				"another reason, the same words",
				readyMachine(health(accel.Unhealthy, accel.DeviceFault, "it is lost")),
				true, false,
			},
			{"other words", readyMachine(health(accel.Unhealthy, accel.DeviceFault, "it is found")), true, false},
			{"well", readyMachine(), true, true},
		} {
			c.after(time.Hour)
			c.k.Publish(step.m)
			c.after(time.Minute)
			want, got := Condition(step.m), c.condition()
			if got.Status != want.Status || got.Reason != want.Reason || got.Message != want.Message {
				t.Errorf("%s: the node has %+v, want %+v", step.what, got, want)
			}
			if written, turned := !got.LastHeartbeatTime.Equal(&before.LastHeartbeatTime),
				!got.LastTransitionTime.Equal(&before.LastTransitionTime); written != step.written ||
				turned != step.turned {
				t.Errorf("%s: written %v, want %v; a transition %v, want %v", step.what, written, step.written, turned,
					step.turned)
			}
			before = got
		}
	})
}

// The version of the cluster is requested until it is known, without waiting for the end of a watch, and not again.
func TestVersionIsAskedAgain(t *testing.T) {
	var asked atomic.Int64
	inCluster(t, freshNode(), func(c *cluster) {
		c.k.Publish(readyMachine())
		c.after(time.Second)
		if v := c.k.State().ClusterVersion; v != "" || asked.Load() == 0 {
			t.Errorf("%q is known after asking %d times", v, asked.Load())
		}
		c.after(5 * time.Minute)
		if s := c.k.State(); s.ClusterVersion != "v1.37.1" || s.Problem != nil || asked.Load() != 5 {
			t.Errorf("asked %d times: %+v", asked.Load(), s)
		}
	}, func(cfg *Config) {
		cfg.Client.Version = func(context.Context) (string, error) {
			if asked.Add(1) < 5 {
				return "", errors.New("the server is currently unable to handle the request")
			}
			return "v1.37.1", nil
		}
	})
}

func TestSilence(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		c.k.Publish(readyMachine())
		c.after(5 * time.Second)
		c.api.ClearActions()
		changes := c.changes
		for i := range 500 {
			c.k.Publish(readyMachine(temperature(float64(i))))
			c.after(15 * time.Second)
		}
		if a := c.api.Actions(); len(a) != 0 || c.changes != changes {
			t.Errorf("two quiet hours cost %d requests and %d changes", len(a), c.changes-changes)
		}
	})
}

func TestDriftIsRepairedAtOnce(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		c.k.Publish(readyMachine())
		c.after(5 * time.Second)
		c.edit(
			`{"metadata":{"labels":{"acceld.dev/qemu-edu.count":"9","acceld.dev/qemu-edu.product":null,"acceld.dev/old-kind.count":"1","acceld.dev/team":"a"}}}`)
		l := c.node().Labels
		if l["acceld.dev/qemu-edu.count"] != "2" || l["acceld.dev/qemu-edu.product"] == "" ||
			l["acceld.dev/old-kind.count"] != "" || l["acceld.dev/team"] != "a" {
			t.Errorf("labels %v", l)
		}
		if s := c.k.State(); !s.Labelled {
			t.Errorf("state %+v", s)
		}
		// Somebody who keeps changing labels is answered at a limited rate.
		c.patches()
		for range 200 {
			c.edit(`{"metadata":{"labels":{"acceld.dev/qemu-edu.count":"9"}}}`)
			c.after(50 * time.Millisecond)
		}
		c.after(time.Minute)
		if n := len(c.patches()) - 200; n > 40 || c.node().Labels["acceld.dev/qemu-edu.count"] != "2" {
			t.Errorf("%d repairs, count %q", n, c.node().Labels["acceld.dev/qemu-edu.count"])
		}
	})
}

func TestAnotherComponentsLabels(t *testing.T) {
	n := freshNode()
	n.Labels[kernelLabel] = "theirs"
	inCluster(t, n, func(c *cluster) {
		c.k.Publish(readyMachine())
		c.after(5 * time.Second)
		l := c.node().Labels
		if l[kernelLabel] != "theirs" || l[pciLabel("1234")] != "true" || !c.k.State().Labelled {
			t.Errorf("labels %v, state %+v", l, c.k.State())
		}
	})
}

// Labels from a probe program are written only in its vendor's domain, removed when it stops reporting them, and left
// to others who own them.
func TestVendorsLabels(t *testing.T) {
	n := freshNode()
	n.Labels["example.com/gpu.family"] = "theirs"
	tells := func(labels map[string]string) change {
		return func(m *accel.Machine) {
			m.Want.Kinds = map[string]*accel.Definition{"qemu-edu": {Kind: "qemu-edu", Vendor: "example.com"}}
			h := m.Have["qemu-edu"]
			h.Probe = &accel.ProbeHave{Labels: labels}
			m.Have["qemu-edu"] = h
		}
	}
	inCluster(t, n, func(c *cluster) {
		c.k.Publish(readyMachine(tells(map[string]string{
			"example.com/gpu.product": "NPU 9", "example.com/gpu.family": "ours", "other.com/x": "y",
			"acceld.dev/team": "z", "example.com/bad key": "w",
		})))
		c.after(5 * time.Second)
		l := c.node().Labels
		if l["example.com/gpu.product"] != "NPU-9" || l["example.com/gpu.family"] != "theirs" ||
			l["other.com/x"]+l["acceld.dev/team"]+l["example.com/bad key"] != "" || !c.k.State().Labelled {
			t.Errorf("labels %v, state %+v", l, c.k.State())
		}
		c.k.Publish(readyMachine(tells(nil)))
		c.after(5 * time.Second)
		if l := c.node().Labels; l["example.com/gpu.product"] != "" || l["example.com/gpu.family"] != "theirs" {
			t.Errorf("afterwards: %v", l)
		}
	})
}

// A restart of the agent on a healthy node writes nothing, although its first machines are not ready yet.
func TestRestartDoesNotFlap(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		c.k.Publish(readyMachine())
		c.after(5 * time.Second)
		c.patches()
		again := New(c.k.c)
		ctx, cancel := context.WithCancel(c.t.Context())
		done := make(chan error)
		go func() { done <- again.Run(ctx) }()
		for i, s := range []accel.State{
			accel.DriverMissing, accel.DriverUnproven, accel.PluginMissing,
			accel.Unwatched,
		} {
			again.Publish(readyMachine(at(s, i)))
			c.after(100 * time.Millisecond)
		}
		if !again.State().Labelled {
			t.Error("labels are there and not seen")
		}
		again.Publish(readyMachine())
		c.after(5 * time.Second)
		if p := c.patches(); p != nil {
			t.Errorf("writes %v", p)
		}
		cancel()
		<-done
	})
}

func TestRegressionIsShownAtOnce(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		c.k.Publish(readyMachine())
		c.after(time.Hour)
		before := c.condition()
		c.patches()
		c.k.Publish(readyMachine(health(accel.Unhealthy, accel.DeviceUnhealthy, "parity error")))
		c.after(100 * time.Millisecond)
		if cond := c.condition(); cond.Status != corev1.ConditionFalse || cond.Reason != "DeviceUnhealthy" ||
			!cond.LastTransitionTime.After(before.LastTransitionTime.Time) {
			t.Errorf("condition %+v", cond)
		}
		c.k.Publish(readyMachine(at(accel.DriverMissing, 0)))
		c.after(100 * time.Millisecond)
		if v := c.node().Labels["acceld.dev/driver-container-qemu-edu"]; v != "pending" {
			t.Errorf("label %q", v)
		}
		if d := cmp.Diff([]string{"metadata", "status", "metadata", "status"}, c.patches()); d != "" {
			t.Errorf("writes -want +got:\n%s", d)
		}
		if len(c.node().Spec.Taints) != 1 {
			t.Errorf("the startup taint came back: %v", c.node().Spec.Taints)
		}
	})
}

func TestTaintOnRegression(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		c.k.Publish(readyMachine())
		c.after(5 * time.Second)
		c.k.Publish(readyMachine(at(accel.DriverMissing, 0)))
		c.after(5 * time.Second)
		if len(c.node().Spec.Taints) != 2 {
			t.Errorf("taints %v", c.node().Spec.Taints)
		}
	}, func(cfg *Config) { cfg.TaintOnRegression = true })
}

func TestVanishedKind(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		c.k.Publish(readyMachine())
		c.after(5 * time.Second)
		c.k.Publish(readyMachine(none))
		c.after(5 * time.Second)
		if d := cmp.Diff(map[string]string{"kubernetes.io/hostname": "node-a"}, c.node().Labels); d != "" {
			t.Errorf("labels -want +got:\n%s", d)
		}
		if cond := c.condition(); cond.Reason != reasonIdle {
			t.Errorf("condition %+v", cond)
		}
	})
}

// While the API server is unreachable, nothing is lost. When it answers, everything is written, without a restart.
func TestUnreachableThenBack(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		away := func(clienttesting.Action) error { return errors.New("connect: connection refused") }
		c.refusing(away)
		c.k.Publish(readyMachine(at(accel.DriverMissing, 0)))
		c.after(10 * time.Minute)
		select {
		case <-c.k.Ready():
		default:
			t.Error("an API server that is away keeps the host from starting")
		}
		if s := c.k.State(); s.Problem == nil || s.Problem.Reason != accel.APIUnreachable ||
			!strings.Contains(s.Problem.Message, `"node-a": connect: connection refused`) || s.Labelled {
			t.Errorf("state %+v", s)
		}
		if n := len(c.api.Actions()); n > 25 {
			t.Errorf("%d requests in ten minutes", n)
		}
		c.refusing(nil)
		c.k.Publish(readyMachine()) // wakes the task at once
		c.after(2 * time.Second)
		if s := c.k.State(); !s.Labelled || s.Problem != nil {
			t.Errorf("state %+v", s)
		}
		// Unreachable again while the watch is open.
		c.refusing(away)
		c.k.Publish(readyMachine(health(accel.Unhealthy, accel.DeviceUnhealthy, "parity error"), version("1.3.0")))
		c.after(5 * time.Second)
		if s := c.k.State(); s.Problem == nil || s.Problem.Reason != accel.APIUnreachable || !s.Labelled {
			t.Errorf("not to reach the API server is no news about labels: %+v", s)
		}
		c.refusing(nil)
		c.after(2 * time.Minute)
		if cond := c.condition(); cond.Reason != "DeviceUnhealthy" || c.k.State().Problem != nil ||
			c.node().Labels["acceld.dev/qemu-edu.driver-version"] != "1.3.0" {
			t.Errorf("condition %+v, state %+v", cond, c.k.State())
		}
		want := []string{
			"Normal Ready qemu-edu: ready, was driver-missing",
			"Warning DeviceUnhealthy qemu-edu: 0000:02:00.0 is unhealthy: parity error",
		}
		if d := cmp.Diff(want, c.events()); d != "" {
			t.Errorf("events -want +got:\n%s", d)
		}
	})
}

func forbidden(a clienttesting.Action) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource().Resource}, "node-a",
		errors.New("no rule"))
}

func TestForbidden(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		c.refusing(func(a clienttesting.Action) error {
			if a.GetVerb() == "patch" && a.GetSubresource() == "" {
				return forbidden(a)
			}
			return nil
		})
		c.k.Publish(readyMachine())
		c.after(10 * time.Minute)
		s := c.k.State()
		if s.Problem == nil || s.Problem.Reason != accel.APIForbidden || !strings.HasPrefix(s.Problem.Message,
			`cannot patch node "node-a": nodes "node-a" is forbidden`) || s.Labelled {
			t.Errorf("state %+v", s)
		}
		if cond := c.condition(); cond.Status != "" {
			t.Errorf("%s although no label could be written", cond.Status)
		}
		if n := len(c.patches()); n > 60 {
			t.Errorf("%d refused patches in ten minutes", n)
		}
		c.refusing(nil)
		c.after(2 * time.Minute)
		if s := c.k.State(); !s.Labelled || s.Problem != nil {
			t.Errorf("state %+v", s)
		}
	})
}

func TestStatusForbidden(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		c.refusing(func(a clienttesting.Action) error {
			if a.GetSubresource() == "status" {
				return forbidden(a)
			}
			return nil
		})
		c.k.Publish(readyMachine())
		c.after(5 * time.Second)
		if s := c.k.State(); s.Problem == nil || !strings.HasPrefix(s.Problem.Message,
			`cannot patch nodes/status of "node-a"`) || !s.Labelled {
			t.Errorf("state %+v", s)
		}
	})
}

// The kubelet's own credentials may neither write shared labels nor remove taints.
func TestNodeRestriction(t *testing.T) {
	restricted := func(a clienttesting.Action) error {
		if p, ok := a.(clienttesting.PatchAction); ok && (strings.Contains(string(p.GetPatch()), featurePrefix) ||
			strings.Contains(string(p.GetPatch()), "taints")) {
			return forbidden(a)
		}
		return nil
	}
	for _, tt := range []struct {
		name    string
		node    func() *corev1.Node
		problem string
	}{
		{"tainted", freshNode, `cannot patch taints of node "node-a"`},
		{"not tainted", func() *corev1.Node {
			n := freshNode()
			n.Spec.Taints = nil
			return n
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inCluster(t, tt.node(), func(c *cluster) {
				c.refusing(restricted)
				c.k.Publish(readyMachine())
				c.after(5 * time.Second)
				s := c.k.State()
				if !s.Labelled || c.node().Labels["acceld.dev/qemu-edu.count"] != "2" {
					t.Errorf("state %+v, labels %v", s, c.node().Labels)
				}
				if (s.Problem == nil) != (tt.problem == "") || s.Problem != nil && !strings.HasPrefix(s.Problem.Message,
					tt.problem) {
					t.Errorf("problem %v, want %q", s.Problem, tt.problem)
				}
			})
		})
	}
}

func TestNodeComesAndGoes(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		c.k.Publish(readyMachine())
		c.after(time.Minute)
		if s := c.k.State(); s.NodeFound || s.Labelled || s.Problem == nil || s.Problem.Reason != accel.NodeNotFound {
			t.Errorf("state %+v", s)
		}
		create := func() {
			if _, err := c.api.CoreV1().Nodes().Create(c.t.Context(), freshNode(), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			c.after(time.Second)
		}
		create()
		if s := c.k.State(); !s.NodeFound || !s.Labelled || s.Problem != nil {
			t.Errorf("state %+v", s)
		}
		if err := c.api.CoreV1().Nodes().Delete(c.t.Context(), "node-a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.after(time.Second)
		if s := c.k.State(); s.NodeFound || s.Labelled {
			t.Errorf("state %+v", s)
		}
		create()
		if c.node().Labels["acceld.dev/qemu-edu.count"] != "2" || c.condition().Status != corev1.ConditionTrue {
			t.Errorf("the new node has %v", c.node().Labels)
		}
	})
}

// If somebody else changes the taints between reading and writing, that change is kept.
func TestTaintConflict(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		var bodies []string
		c.refusing(func(a clienttesting.Action) error {
			p, ok := a.(clienttesting.PatchAction)
			if !ok || !strings.Contains(string(p.GetPatch()), "taints") {
				return nil
			}
			bodies = append(bodies, string(p.GetPatch()))
			if len(bodies) > 1 {
				return nil
			}
			n := freshNode()
			n.ResourceVersion = "5"
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
				Key:    "example.com/new",
				Effect: corev1.TaintEffectNoExecute,
			})
			if err := c.api.Tracker().Update(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, n,
				""); err != nil {
				return err
			}
			return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "node-a", errors.New("changed"))
		})
		c.k.Publish(readyMachine())
		c.after(200 * time.Millisecond)
		if len(c.node().Spec.Taints) != 2 || c.node().Spec.Taints[1].Key != "example.com/new" {
			t.Errorf("taints %v after %q", c.node().Spec.Taints, bodies)
		}
	})
}

func TestRepeatedEventsAreCounted(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		for range 100 {
			c.k.Publish(readyMachine(health(accel.Unhealthy, accel.DeviceUnhealthy, "parity error")))
			c.after(time.Second)
			c.k.Publish(readyMachine())
			c.after(time.Second)
		}
		c.after(5 * time.Minute)
		list, err := c.api.EventsV1().Events(EventNamespace).List(c.t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		total := int32(0)
		for _, e := range list.Items {
			if e.Series == nil {
				t.Fatalf("event %+v", e)
			}
			total += e.Series.Count
		}
		if len(list.Items) != 2 || total != 199 && total != 200 {
			t.Errorf("%d events that count %d", len(list.Items), total)
		}
		requests := 0
		for _, a := range c.api.Actions() {
			if a.GetResource().Resource == "events" && a.GetVerb() != "list" {
				requests++
			}
		}
		if requests > 140 {
			t.Errorf("%d requests for events", requests)
		}
	})
}

func TestPublishFromManyPlaces(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for j := range 50 {
					c.k.Publish(readyMachine(temperature(float64(i*j)), health(accel.Healthy, "", "")))
					c.k.Publish(readyMachine(at(accel.DriverMissing, 0)))
					c.k.State()
				}
			})
		}
		wg.Wait()
		c.k.Publish(readyMachine())
		c.after(time.Minute)
		if !c.k.State().Labelled || c.condition().Status != corev1.ConditionTrue {
			t.Errorf("state %+v", c.k.State())
		}
	})
}
