package kube

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/acceld/acceld/accel"
)

// fakePods answers evictions by the name of the pod, and refuses those of another UID.
type fakePods struct {
	list    []corev1.Pod
	answers map[string]error
	asked   []string
}

func (f *fakePods) List(_ context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	f.asked = append(f.asked, "list "+o.FieldSelector)
	return &corev1.PodList{Items: slices.Clone(f.list)}, f.answers["list"]
}

func (f *fakePods) Evict(_ context.Context, e *policyv1.Eviction) error {
	resource := schema.GroupResource{Resource: "pods"}
	uid := *e.DeleteOptions.Preconditions.UID
	f.asked = append(f.asked, "evict "+e.Namespace+"/"+e.Name+" "+string(uid))
	if err := f.answers[e.Name]; err != nil {
		return err
	}
	i := slices.IndexFunc(f.list, func(p corev1.Pod) bool { return p.Namespace == e.Namespace && p.Name == e.Name })
	switch {
	case i < 0:
		return apierrors.NewNotFound(resource, e.Name)
	case f.list[i].UID != uid:
		return apierrors.NewConflict(resource, e.Name, errors.New("the UID in the precondition differs"))
	}
	f.list = slices.Delete(f.list, i, i+1)
	return nil
}

func evictable(namespace, name string, uid types.UID) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}}
}

// evicting returns a client of these pods.
func evicting(answers map[string]error, pods ...corev1.Pod) (*Kube, *fakePods) {
	f := &fakePods{answers: answers, list: pods}
	return New(Config{Client: Client{Pods: f}, Node: "n", Log: slog.New(slog.DiscardHandler)}), f
}

func TestEvict(t *testing.T) {
	pod := schema.GroupResource{Resource: "pods"}
	named := accel.Holder{PID: 1, PodUID: "u-1", Namespace: "team", Pod: "a"}
	const list = "list spec.nodeName=n"
	for _, c := range []struct {
		name    string
		holders []accel.Holder
		answers map[string]error
		want    accel.Reason
		asked   []string
	}{
		{
			"once",
			[]accel.Holder{named, named, {PID: 3, Comm: "outside"}, {Other: "module x"}},
			nil, "",
			[]string{list, "evict team/a u-1"},
		},
		{
			"by UID",
			[]accel.Holder{{PID: 2, PodUID: "u-2"}},
			nil, "",
			[]string{list, "evict other/b u-2"},
		},
		{
			"by name, with the UID of the list",
			[]accel.Holder{{Namespace: "other", Pod: "b"}, {Namespace: "team", Pod: "b"}},
			nil, "",
			[]string{list, "evict other/b u-2"},
		},
		{
			"the UID goes before the name",
			[]accel.Holder{{PodUID: "u-1", Namespace: "other", Pod: "b"}},
			nil, "",
			[]string{list, "evict team/a u-1"},
		},
		{"of a pod that is not there", []accel.Holder{{PodUID: "u-0", Namespace: "team", Pod: "a"}}, nil, "", []string{list}},
		{"no pod", []accel.Holder{{PID: 3}}, map[string]error{"list": context.DeadlineExceeded}, "", []string{list}},
		{
			"gone",
			[]accel.Holder{named},
			map[string]error{"a": apierrors.NewNotFound(pod, "a")},
			"",
			[]string{list, "evict team/a u-1"},
		},
		{
			"a budget, and the others all the same",
			[]accel.Holder{{Namespace: "other", Pod: "b"}, named},
			map[string]error{"b": apierrors.NewTooManyRequests("it would violate the pod's disruption budget", 10)},
			accel.EvictionRefused,
			[]string{list, "evict other/b u-2", "evict team/a u-1"},
		},
		{
			"no right",
			[]accel.Holder{named},
			map[string]error{"a": apierrors.NewForbidden(pod, "a", nil)},
			accel.APIForbidden,
			[]string{list, "evict team/a u-1"},
		},
		{
			"away",
			[]accel.Holder{{PodUID: "u-2"}},
			map[string]error{"list": context.DeadlineExceeded},
			accel.APIUnreachable,
			[]string{list},
		},
	} {
		k, f := evicting(c.answers, evictable("team", "a", "u-1"), evictable("other", "b", "u-2"), evictable("", "c", "u-3"))
		var got accel.Reason
		if p := k.NewEvictor().Evict(t.Context(), func() []accel.Holder { return c.holders }); p != nil {
			got = p.Reason
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if diff := cmp.Diff(c.asked, f.asked); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
}

// TestEvictNames: an eviction without the right to list pods names the pods that use the driver.
func TestEvictNames(t *testing.T) {
	k, _ := evicting(map[string]error{"list": apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)})
	problem := k.NewEvictor().Evict(t.Context(), func() []accel.Holder {
		return []accel.Holder{
			{Namespace: "team", Pod: "b"},
			{Namespace: "team", Pod: "a"},
			{Namespace: "team", Pod: "a"},
			{PodUID: "u-3"},
			{Namespace: "x", Pod: "c"},
			{PID: 3},
		}
	})
	if want := "cannot evict pod team/a, team/b, u-3, 1 more: cannot list the pods of node"; problem == nil ||
		problem.Reason != accel.APIForbidden || !strings.HasPrefix(problem.Message, want) {
		t.Errorf("%v, want %q", problem, want)
	}
}

// TestEvictEnding: a pod that is ending is not evicted again.
func TestEvictEnding(t *testing.T) {
	ending := evictable("team", "train-0", "u-1")
	ending.DeletionTimestamp = &metav1.Time{}
	k, f := evicting(nil, ending)
	problem := k.NewEvictor().Evict(t.Context(), func() []accel.Holder { return []accel.Holder{{PodUID: "u-1"}} })
	if problem != nil || len(f.asked) != 1 {
		t.Errorf("%v, asked %q", problem, f.asked)
	}
}

// TestEvictNoSuccessor: a pod that was created under the name of a holder stays, whenever it has come.
func TestEvictNoSuccessor(t *testing.T) {
	holder := []accel.Holder{{Namespace: "team", Pod: "train-0"}}
	old, successor := evictable("team", "train-0", "u-1"), evictable("team", "train-0", "u-2")
	for name, before := range map[string][]corev1.Pod{"it replaced the holder": {old}, "nothing was there": nil} {
		k, f := evicting(nil, before...)
		e := k.NewEvictor()
		for range 3 { // the kubelet goes on naming the holder
			problem := e.Evict(t.Context(), func() []accel.Holder {
				f.list = []corev1.Pod{successor}
				return holder
			})
			if problem != nil || len(f.list) != 1 || f.list[0].UID != "u-2" {
				t.Errorf("%s: %v, pods %+v, asked %v", name, problem, f.list, f.asked)
			}
		}
	}
}
