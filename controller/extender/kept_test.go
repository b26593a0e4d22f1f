package extender

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/acceld/acceld/controller/fit"
	"github.com/acceld/acceld/test/fleet"
)

// What the cache may keep of each node with eight cards and of each pod, in bytes: a cluster of 15,000 nodes whose
// cards are all in use then takes less than 50 MB.
const (
	keptNode = 330
	keptPod  = 205
)

// TestKept: whatever others write about nodes and pods, the cache keeps little of it.
func TestKept(t *testing.T) {
	const nodes = 1000
	rules, err := fit.Rules{Prefix: fleet.Prefix, Cards: []string{"shares"}}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	b := NewCache(&rules)
	before := heap()
	feed := b.nodeFeed()
	for i := range nodes {
		text, err := fleet.WholeNode(i).Marshal()
		n := &corev1.Node{}
		if err != nil || n.Unmarshal(text) != nil || feed.Add(n) != nil {
			t.Fatal("cannot feed a node")
		}
	}
	after := heap()
	each := (after - before) / nodes
	t.Logf("%d bytes for each node", each)
	if each > keptNode {
		t.Errorf("%d bytes are kept of a node, at most %d", each, keptNode)
	}
	feed = b.podFeed()
	for i := range nodes {
		for c := range fleet.WholeCards {
			p := fleet.WholePod(i, c, "600")
			p.UID = types.UID(fmt.Sprintf("00000000-1111-2222-3333-%011d%d", i, c)) // as long as the API server's
			text, err := p.Marshal()
			p = &corev1.Pod{}
			if err != nil || p.Unmarshal(text) != nil || feed.Add(p) != nil {
				t.Fatal("cannot feed a pod")
			}
		}
	}
	before, after = after, heap()
	each = (after - before) / (nodes * fleet.WholeCards)
	t.Logf("%d bytes for each pod", each)
	if each > keptPod {
		t.Errorf("%d bytes are kept of a pod, at most %d", each, keptPod)
	}
	runtime.KeepAlive(b)
}

// TestKin: nodes with equal facts share what follows from them and not their pods; a change of one is not a change of
// the other; and what nobody has any more is not kept.
func TestKin(t *testing.T) {
	l := leading(t)
	node := func(name, cards string) *corev1.Node {
		n := fleet.Node(name, 1, fleet.Amounts{"shares": "10", "memory": "8G"})
		n.Annotations = map[string]string{fit.InventoryAnnotation: cards}
		return n
	}
	card := func(memory string) string {
		return `[{"name":"card0","has":{"shares":"10","memory":"` + memory + `"}}]`
	}
	fits := func(name string) (fit.Cause, int) {
		q := l.requestFor(five("q"))
		cause, pods := fit.UnknownNode, 0
		l.cache.look(name, func(n *fit.Node) { cause, pods = fit.NewSearch(l.rules, &q).Try(n), len(n.Records()) })
		return cause, pods
	}
	want := func(what, name string, fitting bool, pods int) {
		t.Helper()
		if cause, got := fits(name); (cause == fit.Fits) != fitting || got != pods {
			t.Errorf("%s: %s: %v with %d pods, want %v with %d", what, name, cause, got, fitting, pods)
		}
	}
	l.list(node("n1", card("8G")), node("n2", card("8G")))
	if l.cache.nodes["n1"].kin != l.cache.nodes["n2"].kin {
		t.Error("nodes with equal facts share nothing")
	}
	p := five("p")
	p.Spec.NodeName, p.Annotations = "n1", map[string]string{"gas-container-cards": "card0"}
	l.cache.SetPod(l.cache.Trim(p))
	want("a pod on one of two", "n1", false, 1)
	want("a pod on one of two", "n2", true, 0)
	l.cache.SetNode(TrimNode(l.rules, node("n1", card("16G"))))
	want("more memory on that one", "n1", true, 1)
	l.cache.SetNode(TrimNode(l.rules, node("n2", card("4G"))))
	want("less memory on the other one", "n1", true, 1)
	want("less memory on the other one", "n2", false, 0)
	l.cache.SetNode(TrimNode(l.rules, node("n2", "[{")))
	want("nonsense", "n2", false, 0)
	for i := range 1000 {
		l.cache.SetNode(TrimNode(l.rules, node("n2", card(fmt.Sprint(5+i, "G")))))
		if i%100 == 0 {
			runtime.GC()
		}
	}
	want("the last of many", "n2", true, 0)
	if n := len(l.cache.kins); n > 200 {
		t.Errorf("%d of 1000 are kept, and nodes have 2", n)
	}
}

// heap is how many bytes are in use.
func heap() int64 {
	for range 3 { // what package unique holds weakly goes with the collections after the one that finds it unused
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
