package policy

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// TestDryRunDoesNothing: a policy in dry run gives no slot, grants nothing and drains no node.
func TestDryRunDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		s.edit(nodePath("a"), aNode(nil))
		s.edit(nodePath("a"), annotate(wordKey, "waiting 2"))
		s.edit(policyPath, fleetPolicy("2", object{"cordon": true}, object{"dryRun": true}))
		_, stop := start(t, s)
		defer stop()
		wait(time.Minute)
		if n := s.get(nodePath("a")); len(status(t, s).Slots) > 0 || annotation(n, grantKey) != "" ||
			part(n, "spec")["unschedulable"] != nil {
			t.Errorf("slots %v, node %v", status(t, s).Slots, n)
		}
		s.edit(policyPath, object{"spec": object{"dryRun": false}})
		wait(time.Minute)
		if annotation(s.get(nodePath("a")), grantKey) == "" {
			t.Error("the same policy in earnest does nothing either")
		}
	})
}

// TestSlotIsLater: a slot is later than any earlier grant of the node, also within one moment and with a clock that
// went back.
func TestSlotIsLater(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	node := &Node{}
	for name, c := range map[string]struct{ last, granted, want time.Time }{
		"first":               {want: now},
		"the same moment":     {last: now, want: now.Add(time.Microsecond)},
		"told the same":       {granted: now, want: now.Add(time.Microsecond)},
		"the clock went back": {last: now.Add(time.Hour), granted: now, want: now.Add(time.Hour + time.Microsecond)},
		"long ago":            {last: now.Add(-time.Hour), granted: now.Add(-time.Hour), want: now},
	} {
		node.Annotations = marks{{grantKey, accel.Grant{Since: c.granted}.String()}}
		v := view{now: now, nodes: map[string]*Node{"a": node}}
		p := &Policy{}
		p.Status.LastSlot = c.last
		if got := v.since(p, Slot{Node: "a", Kind: kind}); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestSlotOfAnotherKindEnds: kinds that were decided before a slot of another kind ended are decided again, although
// no event may follow.
func TestSlotOfAnotherKindEnds(t *testing.T) {
	v := view{now: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC), rivals: func(*Node, string) string { return "" }}
	for _, kinds := range [][]string{{kind}, {"other-gpu", kind}} {
		p := &Policy{}
		p.Spec.Kinds, p.Spec.Upgrade = map[string]accel.KindConfig{}, &accel.Rollout{}
		for _, x := range kinds {
			p.Spec.Kinds[x] = accel.KindConfig{}
		}
		p.Status.Slots = []Slot{{Node: "gone", Kind: kind, Version: "2", Since: v.now}}
		v.policies = []*Policy{p}
		want := time.Time{}
		if len(kinds) > 1 {
			want = v.now.Add(settle)
		}
		if d := judge(v)[0]; len(d.ended) != 1 || !d.next.Equal(want) {
			t.Errorf("%v: %d slots ended, the next pass is at %s, want %s", kinds, len(d.ended), d.next, want)
		}
	}
}

// TestUnclearPolicyPauses: an invalid policy gives no slot.
func TestUnclearPolicyPauses(t *testing.T) {
	p := &Policy{}
	p.Spec.Kinds = map[string]accel.KindConfig{kind: {}}
	p.Spec.Upgrade = &accel.Rollout{Windows: []accel.RolloutWindow{{From: "22:00", To: "04:00", TimeZone: "UTC"}}}
	if l := limits(p, 3); l.Paused || len(l.Windows) != 1 {
		t.Errorf("%+v, %v", l, p.problems())
	}
	p.Spec.Upgrade.Windows[0].TimeZone = "Middle/Earth"
	if l := limits(p, 3); !l.Paused {
		t.Errorf("%+v, %v", l, p.problems())
	}
}

// TestTaintProblems: a taint that the API server would refuse is a problem of its policy.
func TestTaintProblems(t *testing.T) {
	for _, c := range []struct {
		key, value string
		problems   int
	}{{"example.com/edu", "only", 0}, {"edu", "", 0}, {"example.com/e d u", "", 1}, {"edu", "-only-", 1}} {
		p := &Policy{}
		p.Spec.Partition = &accel.Partition{Taints: []accel.Taint{{Key: c.key, Value: c.value, Effect: "NoSchedule"}}}
		if got := p.problems(); len(got) != c.problems || p.broken("partition") != (c.problems > 0) {
			t.Errorf("%s=%s: %q", c.key, c.value, got)
		}
	}
}

// TestStatusIsShort: the reasons that block nodes are sorted by frequency and cut off.
func TestStatusIsShort(t *testing.T) {
	b := blocks{}
	for i := range 3 * maxBlocked {
		for range i + 1 {
			b.add(fmt.Sprint("Reason", i), "a", strings.Repeat("x", 2*maxText))
		}
	}
	got := b.sorted()
	if len(got) != maxBlocked || got[0].Count != 3*maxBlocked || len(got[0].Example) > maxText+len("…") {
		t.Errorf("%d, first %d, %d bytes", len(got), got[0].Count, len(got[0].Example))
	}
}

// TestEvict: a pod that must leave a node is evicted by name and UID, and counts as there until it is gone.
func TestEvict(t *testing.T) {
	s := newServer(1)
	var asked []string
	s.refuse = func(method, path string, body object) error {
		if method == http.MethodPost {
			asked = append(asked, fmt.Sprint(path, " ", part(part(body, "deleteOptions"), "preconditions")["uid"]))
		}
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "x", fmt.Errorf("it goes"))
	}
	d := newDrains(s, slog.New(slog.DiscardHandler), func() {})
	pods := map[string]pod{}
	for _, name := range []string{"ends", "other", "plain", "set"} {
		p := pod{}
		p.Meta.Namespace, p.Meta.Name, p.Meta.UID, p.Meta.Labels = "team", name, "uid-"+name,
			map[string]string{"app": "web"}
		pods[name] = p
	}
	gone := time.Now()
	ends := pods["ends"]
	ends.Meta.DeletionTimestamp = &gone
	other := pods["other"]
	other.Meta.Labels = nil
	set := pods["set"]
	set.Meta.OwnerReferences = []kube.Owner{{Kind: "DaemonSet", Controller: true}}
	pods["ends"], pods["other"], pods["set"] = ends, other, set
	var all []pod
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		all = append(all, pods[name])
	}
	left, _ := d.evict(t.Context(), all, &draining{
		how:   accel.Drain{PodSelector: map[string]string{"app": "web"}},
		since: time.Now(),
	})
	if diff := cmp.Diff([]string{"team/ends ends", "team/plain is evicted"}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/api/v1/namespaces/team/pods/plain/eviction uid-plain"}, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// TestDrainEnds: the drain of a node ends with its slot.
func TestDrainEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		s.edit("/api/v1/namespaces/team/pods/web", object{
			"metadata": object{"namespace": "team"},
			"spec":     object{"nodeName": "a"},
		})
		asked := 0
		s.refuse = func(method, _ string, _ object) error {
			if method == http.MethodPost {
				asked++
				return fmt.Errorf("the budget forbids it")
			}
			return nil
		}
		d := newDrains(s, slog.New(slog.DiscardHandler), func() {})
		defer d.end()
		d.done(t.Context(), "a", "fleet", accel.Drain{})
		wait(time.Minute)
		d.keep(map[string]bool{"a": true})
		s.mu.Lock()
		before := asked
		s.mu.Unlock()
		wait(time.Minute)
		s.mu.Lock()
		during := asked
		s.mu.Unlock()
		if before == 0 || during == before {
			t.Errorf("asked %d times, then %d", before, during)
		}
		d.keep(nil)
		wait(time.Hour)
		s.mu.Lock()
		defer s.mu.Unlock()
		if asked > during+1 {
			t.Errorf("asked %d times after the slot was over", asked-during)
		}
	})
}

// TestFinalizerStays: a policy keeps its finalizer while it has slots.
func TestFinalizerStays(t *testing.T) {
	for slots, want := range map[int]int{0: 0, 1: 1} {
		s := newServer(1)
		s.edit(policyPath, fleetPolicy("2", object{}, object{}))
		s.edit(policyPath, object{"metadata": object{
			"finalizers":        []any{finalizer},
			"deletionTimestamp": "2026-03-04T12:00:00Z",
		}})
		p := &Policy{}
		if err := s.Do(t.Context(), http.MethodGet, policyPath, nil, nil, p); err != nil {
			t.Fatal(err)
		}
		for range slots {
			p.Status.Slots = append(p.Status.Slots, Slot{Node: "a", Kind: kind, Version: "2"})
		}
		stopped(t, s).mark(t.Context(), p)
		got := 0
		if o := s.get(policyPath); o != nil {
			got = len(list(part(o, "metadata")["finalizers"]))
		}
		if got != want {
			t.Errorf("with %d slots: %d finalizers, want %d", slots, got, want)
		}
	}
}

// TestHeld: init containers run one after the other, sidecars beside everything that starts after them.
func TestHeld(t *testing.T) {
	is := func(policy corev1.ContainerRestartPolicy, n int64) (c corev1.Container) {
		c.RestartPolicy, c.Resources.Limits = &policy, corev1.ResourceList{"a/b": *resource.NewQuantity(n, "")}
		return c
	}
	for _, c := range []struct {
		inits, containers []corev1.Container
		want              int
	}{
		{nil, nil, 0},
		{nil, []corev1.Container{is("", 2), is("", 1), is("", 0)}, 3},
		{[]corev1.Container{is("", 4), is("", 3)}, []corev1.Container{is("", 2)}, 4},
		{[]corev1.Container{is("", 4), is("Always", 3)}, []corev1.Container{is("", 2)}, 5},
		{[]corev1.Container{is("Always", 3), is("", 4)}, []corev1.Container{is("", 2)}, 7},
	} {
		if got := held(c.containers, c.inits, "a/b"); got != c.want {
			t.Errorf("init %+v, containers %+v: %d, want %d", c.inits, c.containers, got, c.want)
		}
	}
}
