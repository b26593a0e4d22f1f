package extender

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/controller/fit"
	"github.com/acceld/acceld/test/fleet"
)

// told is the node of an agent that reports what each card has, by full names and among cards with other prefixes.
func lastContact() *corev1.Node {
	n := fleet.Node("n1", 0, fleet.Amounts{"shares": "20"})
	full := fleet.Prefix
	n.Annotations = map[string]string{fit.InventoryAnnotation: `[{"name":"card0","has":{"` + full + `shares":"10","` +
		full + `memory":"8G"}},` +
		`{"name":"card1","has":{"` + full + `shares":"10","` + full +
		`memory":"8G"}},{"name":"theirs","has":{"example.org/shares":"10","example.org/memory":"99G"}}]`}
	return n
}

// TestBehind: if a node's kubelet must follow the choice, a pod with other cards is bound only when the kubelet has
// taken the previous pod.
func TestBehind(t *testing.T) {
	three := func(name string) *corev1.Pod {
		return fleet.Pod(name, "", "", fleet.Amounts{"shares": "1", "memory": "3G"})
	}
	for _, c := range []struct {
		name   string
		second *corev1.Pod
		after  func(l *lab, first *corev1.Pod) // a second later
		waits  time.Duration
		says   string
	}{
		{"the kubelet takes it", five("two"), func(l *lab, first *corev1.Pod) {
			first.Status.StartTime = &metav1.Time{Time: time.Now()}
			l.cache.SetPod(l.cache.Trim(first))
		}, time.Second, ""},
		{"it is gone", five("two"), func(l *lab, first *corev1.Pod) {
			l.cache.DropPod(fit.NewUID(string(first.UID)))
		}, time.Second, ""},
		{"it is refused", five("two"), func(l *lab, first *corev1.Pod) {
			first.Status.Phase = corev1.PodFailed
			l.cache.SetPod(l.cache.Trim(first))
		}, time.Second, ""},
		{
			"nothing happens", five("two"), func(*lab, *corev1.Pod) {}, patience,
			"has not taken a pod with other cards yet",
		},
		{"the same cards and amounts", three("two"), func(*lab, *corev1.Pod) {}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := five("one")
				if c.waits == 0 {
					first = three("one")
				}
				l := leading(t, first, c.second)
				l.list(lastContact())
				if text := l.tryBind(first); text != "" {
					t.Fatal(text)
				}
				shown := l.pods["one"].DeepCopy()
				shown.Status = corev1.PodStatus{Phase: corev1.PodPending}
				l.cache.SetPod(l.cache.Trim(shown))
				began := time.Now()
				time.AfterFunc(time.Second, func() { c.after(l, shown) })
				text := l.tryBind(c.second)
				if took := time.Since(began); took != c.waits || (text == "") != (c.says == "") ||
					!strings.Contains(text, c.says) {
					t.Errorf("after %s: %q", took, text)
				}
				time.Sleep(2 * time.Second)
			})
		})
	}
}

// TestBehindNobody: if only labels describe a node, its kubelet follows no choice and nothing waits.
func TestBehindNobody(t *testing.T) {
	one, two := five("one"), five("two")
	l := leading(t, one, two)
	l.list(twoCards())
	for _, p := range []*corev1.Pod{one, two} {
		if text := l.tryBind(p); text != "" {
			t.Error(text)
		}
	}
}
