package policy

import (
	"testing"
	"testing/synctest"
	"time"
	"unique"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/controller/devices"
	"github.com/acceld/acceld/kube"
)

const historyKey = accel.HistoryAnnotation + kind

// TestDeviceReports: what nodes report is read where a policy that governs the kind there asks for it. A record stays
// as long as the policy says that wants it longest.
func TestDeviceReports(t *testing.T) {
	policy := func(name string, priority int, keep string, kinds ...string) accel.Policy {
		p := accel.Policy{Name: name, Spec: accel.PolicySpec{Priority: priority, Kinds: map[string]accel.KindConfig{}}}
		for _, k := range kinds {
			p.Spec.Kinds[k] = accel.KindConfig{}
		}
		if keep != "" {
			p.Spec.History = &accel.DeviceHistory{Keep: keep}
		}
		return p
	}
	node := func(ready string, annotations ...string) *Node {
		n := &Node{}
		n.Status.Conditions = conditions{unique.Make(nodeCondition{Type: "Ready", Status: ready})}
		for _, kind := range annotations {
			n.Annotations = append(n.Annotations, mark{accel.HistoryAnnotation + kind, "of " + kind})
		}
		return n
	}
	nodes := map[string]*Node{"a": node("True", "k-x", "k-y", "k-z"), "b": node("False", "k-x"), "c": node("True")}
	dry := policy("dry", 9, "9000h", "k-x")
	dry.Spec.DryRun = true
	got := deviceReports([]accel.Policy{
		policy("x", 0, "2h", "k-x"), policy("later", -1, "3h", "k-x"), policy("strong", 1, "", "k-y"),
		policy("weak", 0, "1h", "k-y"), dry,
	}, nodes)
	want := devices.Reports{
		Nodes: map[string]devices.Node{
			"a": {Up: true, Texts: map[string]string{"k-x": "of k-x"}}, "b": {Texts: map[string]string{"k-x": "of k-x"}},
			"c": {Up: true},
		},
		Keep: map[string]time.Duration{"k-x": 3 * time.Hour, "k-y": time.Hour},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := deviceReports([]accel.Policy{policy("x", 0, "", "k-x")}, nodes); len(got.Keep)+len(got.Nodes) > 0 {
		t.Errorf("%+v", got)
	}
}

// TestPassed: whoever keeps records hears of a report, and reads it then.
func TestPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		passes := 0
		c := stopped(t, s)
		c.o.Passed = func() { passes++ }
		if _, known := c.DeviceReports(); known {
			t.Error("something is known before anything was read")
		}
		s.edit(nodePath("a"), aNode(nil))
		s.edit(kube.PoliciesPath+"/p", object{"spec": object{"kinds": object{kind: object{}}, "history": object{}}})
		stop := runs(t, c)
		defer stop()
		wait(time.Minute)
		before := passes
		s.edit(nodePath("a"), annotate(historyKey, "[]"))
		wait(time.Minute)
		got, known := c.DeviceReports()
		if !known || passes <= before || got.Nodes["a"].Texts[kind] != "[]" || got.Keep[kind] != 365*24*time.Hour {
			t.Errorf("%t, %d passes, then %d: %+v", known, before, passes, got)
		}
		s.edit(kube.PoliciesPath+"/p", object{"metadata": object{"deletionTimestamp": "2026-03-04T12:00:00Z"}})
		wait(time.Minute)
		if got, _ := c.DeviceReports(); len(got.Keep) > 0 {
			t.Errorf("%+v", got)
		}
	})
}
