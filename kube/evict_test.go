package kube

import (
	"context"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/acceld/acceld/accel"
)

// fakePods answers evictions by the name of the pod.
type fakePods struct {
	list    []corev1.Pod
	answers map[string]error
	asked   []string
}

func (f *fakePods) List(_ context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	f.asked = append(f.asked, "list "+o.FieldSelector)
	return &corev1.PodList{Items: f.list}, f.answers["list"]
}

func (f *fakePods) Evict(_ context.Context, e *policyv1.Eviction) error {
	line := "evict " + e.Namespace + "/" + e.Name
	if e.DeleteOptions != nil {
		line += " " + string(*e.DeleteOptions.Preconditions.UID)
	}
	f.asked = append(f.asked, line)
	return f.answers[e.Name]
}

func TestEvict(t *testing.T) {
	pod := schema.GroupResource{Resource: "pods"}
	named := accel.Holder{PID: 1, PodUID: "u-1", Namespace: "team", Pod: "a"}
	for _, c := range []struct {
		name    string
		holders []accel.Holder
		answers map[string]error
		want    accel.Reason
		asked   []string
	}{
		{
			"by name, once",
			[]accel.Holder{named, named, {PID: 3, Comm: "outside"}, {Other: "module x"}},
			nil, "",
			[]string{"evict team/a u-1"},
		},
		{
			"by UID",
			[]accel.Holder{{PID: 2, PodUID: "u-2"}},
			nil, "",
			[]string{"list spec.nodeName=n", "evict other/b u-2"},
		},
		{"no pod", []accel.Holder{{PID: 3}}, nil, "", nil},
		{
			"gone",
			[]accel.Holder{named},
			map[string]error{"a": apierrors.NewNotFound(pod, "a")},
			"",
			[]string{"evict team/a u-1"},
		},
		{
			"a budget, and the others all the same",
			[]accel.Holder{named, {Namespace: "team", Pod: "b"}},
			map[string]error{"a": apierrors.NewTooManyRequests("it would violate the pod's disruption budget", 10)},
			accel.EvictionRefused,
			[]string{"evict team/a u-1", "evict team/b"},
		},
		{
			"no right",
			[]accel.Holder{named},
			map[string]error{"a": apierrors.NewForbidden(pod, "a", nil)},
			accel.APIForbidden,
			[]string{"evict team/a u-1"},
		},
		{
			"away",
			[]accel.Holder{{PodUID: "u-2"}},
			map[string]error{"list": context.DeadlineExceeded},
			accel.APIUnreachable,
			[]string{"list spec.nodeName=n"},
		},
	} {
		f := &fakePods{
			answers: c.answers,
			list: []corev1.Pod{
				{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "b", UID: "u-2"}},
				{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u-3"}},
			},
		}
		k := New(Config{Client: Client{Pods: f}, Node: "n", Log: slog.New(slog.DiscardHandler)})
		var got accel.Reason
		if p := k.Evict(t.Context(), c.holders); p != nil {
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
