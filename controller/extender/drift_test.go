package extender

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/acceld/acceld/controller/fit"
	"github.com/acceld/acceld/test/fleet"
)

// drifting is a cluster in which everything happens that a watch can report, with a cache that follows it late.
type drifting struct {
	*lab
	r     *rand.Rand
	nodes map[string]*corev1.Node
	// late is what the watches have not delivered yet, in order.
	late []func()
	// first are the first annotations of a bound pod, by UID: its cards, whatever somebody writes there later.
	first  map[types.UID]map[string]string
	number int
}

// shown reports whether the watch shows a pod: it has bound pods that are not over.
func (d *drifting) shown(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded
}

// tell queues the event of a watch about a pod.
func (d *drifting) tell(p *corev1.Pod, gone bool) {
	feed := d.cache.podFeed()
	p = p.DeepCopy()
	d.late = append(d.late, func() {
		switch {
		case gone || !d.shown(p):
			_ = feed.Delete(p)
		case d.r.IntN(2) == 0:
			_ = feed.Add(p)
		default:
			_ = feed.Update(p)
		}
		if d.r.IntN(5) == 0 && !gone && d.shown(p) { // a duplicate
			_ = feed.Update(p)
		}
	})
}

func (d *drifting) tellNode(n *corev1.Node, gone bool) {
	feed := d.cache.nodeFeed()
	n = n.DeepCopy()
	d.late = append(d.late, func() {
		if gone {
			_ = feed.Delete(n)
		} else {
			_ = feed.Update(n)
		}
	})
}

// bring delivers some of the late events.
func (d *drifting) bring(n int) {
	n = min(n, len(d.late))
	for _, f := range d.late[:n] {
		f()
	}
	d.late = d.late[n:]
}

// relist is a watch that broke: the events in flight are lost, and a list follows, in no order.
func (d *drifting) relist(b *Cache) {
	var pods, nodes []any
	for _, p := range d.pods {
		if d.shown(p) {
			pods = append(pods, p.DeepCopy())
		}
	}
	for _, n := range d.nodes {
		nodes = append(nodes, n.DeepCopy())
	}
	d.r.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	first, second := func() { _ = b.podFeed().Replace(pods, "") }, func() { _ = b.nodeFeed().Replace(nodes, "") }
	if d.r.IntN(2) == 0 {
		first, second = second, first
	}
	first()
	second()
}

func (d *drifting) setNode(name string) {
	n := fleet.Node(name, 1+d.r.IntN(4), fleet.Amounts{
		"shares": "40", "memory": fmt.Sprint(40+d.r.IntN(60), "G"),
		"tiles": "8",
	})
	d.nodes[name] = n
	d.tellNode(n, false)
}

func (d *drifting) anyPod() *corev1.Pod {
	names := slices.Sorted(maps.Keys(d.pods))
	if len(names) == 0 {
		return nil
	}
	return d.pods[names[d.r.IntN(len(names))]].DeepCopy()
}

// put changes a pod at the API server.
func (d *drifting) put(p *corev1.Pod) {
	d.mu.Lock()
	if d.first[p.UID] == nil && p.Spec.NodeName != "" {
		d.first[p.UID] = maps.Clone(p.Annotations)
	}
	d.pods[p.Name] = p
	d.mu.Unlock()
	d.tell(p, false)
}

func (d *drifting) newPod(node, cards string) *corev1.Pod {
	d.number++
	p := fleet.Pod(fmt.Sprint("p", d.number), node, cards, fleet.Amounts{
		"shares": fmt.Sprint(1 + d.r.IntN(2)),
		"memory": fmt.Sprint(d.r.IntN(9), "G"),
	})
	if d.r.IntN(4) == 0 {
		p.Spec.Containers = append(p.Spec.Containers,
			fleet.Pod("", "", "", fleet.Amounts{"shares": "1", "tiles": "1"}).Spec.Containers[0])
	}
	if d.r.IntN(6) == 0 {
		p.Name = "again" // the name of an earlier pod
		if old := d.pods["again"]; old != nil {
			d.tell(old, true)
		}
	}
	p.UID = types.UID(fmt.Sprint("uid-", d.number))
	return p
}

// step lets one thing happen.
func (d *drifting) step() {
	nodes := []string{"n1", "n2", "n3"}
	node := nodes[d.r.IntN(len(nodes))]
	switch p := d.anyPod(); d.r.IntN(11) {
	case 0:
		d.setNode(node)
	case 1:
		if n := d.nodes[node]; n != nil {
			delete(d.nodes, node)
			d.tellNode(n, true)
		}
	case 2: // bound by somebody else, with cards, with some that are not there, or with none
		d.put(d.newPod(node, []string{"", "card0", "card1,card7", "card0|card1"}[d.r.IntN(4)]))
	case 3, 4, 5:
		d.bind(node)
	case 6: // an edit of the cards, if the watch has shown them
		if p != nil && d.knows(p) {
			p.Annotations["gas-container-cards"] = fmt.Sprint("card", d.r.IntN(9))
			d.put(p)
		}
	case 7: // an edit of something else
		if p != nil {
			p.Labels = map[string]string{"a": fmt.Sprint(d.r.IntN(99))}
			p.Status.StartTime = &metav1.Time{Time: time.Now()}
			d.put(p)
		}
	case 8:
		if p != nil {
			p.Status.Phase = []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}[d.r.IntN(2)]
			d.put(p)
		}
	case 9:
		if p != nil {
			d.mu.Lock()
			delete(d.pods, p.Name)
			d.mu.Unlock()
			d.tell(p, true)
		}
	case 10:
		d.late = nil
		d.relist(d.cache)
	}
	d.bring(d.r.IntN(4))
}

// bind binds a pod. The answer may be lost, whether or not the binding is written; then it tries again.
func (d *drifting) bind(node string) {
	p := d.newPod("", "")
	d.mu.Lock()
	d.pods[p.Name] = p
	lost := apierrors.NewTimeoutError("lost", 1)
	switch d.r.IntN(6) {
	case 0:
		d.before = lost
	case 1:
		d.after = lost
	case 2:
		d.before = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, p.Name, fmt.Errorf("refused"))
	}
	d.mu.Unlock()
	for range 1 + d.r.IntN(2) {
		_, _ = d.post("bind", map[string]any{
			"PodName": p.Name, "PodNamespace": p.Namespace, "PodUID": p.UID,
			"Node": node,
		})
		d.mu.Lock()
		d.before, d.after = nil, nil
		d.mu.Unlock()
	}
	if bound := d.pods[p.Name]; bound.Spec.NodeName != "" {
		d.put(bound)
	}
}

// knows reports whether the cache has the cards of a pod from the API server. A pod without cards gets those that
// somebody writes there.
func (d *drifting) knows(p *corev1.Pod) bool {
	d.cache.mu.RLock()
	defer d.cache.mu.RUnlock()
	h := d.cache.pods[fit.NewUID(string(p.UID))]
	return h != nil && h.known && h.Chosen().Cards != ""
}

// sum is the content of a cache: the amounts of each node, and its pods with their cards.
func sum(b *Cache) map[string]string {
	out := map[string]string{}
	for _, name := range b.names() {
		text := "not known"
		b.look(name, func(n *fit.Node) { text = fmt.Sprint(n.Uses(nil)) })
		byUID := func(p, q *fit.Record) int { return bytes.Compare(p.UID[:], q.UID[:]) }
		for _, r := range slices.SortedFunc(slices.Values(b.nodes[name].pods()), byUID) {
			text += fmt.Sprintf("\n%x %s %s %s", r.UID, r.Name, r.Chosen().Cards, r.Chosen().Tiles)
		}
		out[name] = text
	}
	return out
}

// TestBooksDoNotDrift: a cache that followed the watches agrees with one that was just read from the API server. That
// holds whatever a watch delivers, twice, late, or not at all before it breaks, whatever is edited, and whatever
// becomes of bindings whose answers are lost.
func TestBooksDoNotDrift(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 30
	}
	edits := 0
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			d := &drifting{
				lab: leading(t), r: rand.New(rand.NewPCG(uint64(seed), 7)), nodes: map[string]*corev1.Node{},
				first: map[types.UID]map[string]string{},
			}
			d.relist(d.cache)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go d.cache.check(ctx, d.api, func(err error) { t.Error(err) })
			for range 80 {
				d.step()
				if d.r.IntN(20) == 0 {
					time.Sleep(time.Duration(d.r.IntN(30)) * time.Second)
					synctest.Wait()
				}
			}
			d.bring(len(d.late))
			time.Sleep(unconfirmedAfter + 2*checkEvery)
			synctest.Wait()
			edits += d.cache.disputed()
			for _, p := range d.pods {
				if first := d.first[p.UID]; first != nil {
					p.Annotations = first
				}
			}
			fresh := NewCache(d.rules)
			d.relist(fresh)
			if diff := cmp.Diff(sum(fresh), sum(d.cache)); diff != "" {
				t.Errorf("seed %d (-read now +followed):\n%s", seed, diff)
			}
		})
		if t.Failed() {
			return
		}
	}
	if edits == 0 {
		t.Error("no edit was there at the end: nothing is shown about those")
	}
}

// TestLostThenAgain: while the result of a binding is unknown, the pod is not bound again: it may have cards that
// would then be given to another pod.
func TestLostThenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := five("p"), five("q")
		l := leading(t, p, q)
		l.list(fleet.Node("n1", 1, fleet.Amounts{"shares": "20", "memory": "8G"}))
		l.before = apierrors.NewTimeoutError("the answer was lost, and the binding is on its way", 1)
		if l.tryBind(p) == "" {
			t.Fatal("a lost answer is taken for a good one")
		}
		l.before = nil
		l.passes(p) // the scheduler does not know either
		if text := l.tryBind(p); !strings.Contains(text, "not known yet") {
			t.Errorf("bound again: %q", text)
		}
		if l.passes(q) || l.tryBind(q) == "" {
			t.Error("the card of the first is given away")
		}
	})
}

// TestSomebodyElsesBinding: if the answer to a binding was lost, the cards are those that the API server shows first.
func TestSomebodyElsesBinding(t *testing.T) {
	p, q := five("p"), five("q")
	l := leading(t, p, q)
	l.list(twoCards())
	l.before = apierrors.NewTimeoutError("the answer was lost", 1)
	if l.tryBind(p) == "" {
		t.Fatal("a lost answer is taken for a good one")
	}
	l.before = nil
	other := p.DeepCopy()
	other.Spec.NodeName, other.Annotations = "n1", map[string]string{"gas-container-cards": "card1"}
	l.cache.SetPod(l.cache.Trim(other))
	if text := l.tryBind(q); text != "" || l.pods["q"].Annotations["gas-container-cards"] != "card0" {
		t.Errorf("%s; q got %v, and p has card1", text, l.pods["q"].Annotations)
	}
}
