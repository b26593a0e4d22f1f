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

// What the cache may keep of each node with eight cards and of each pod, in bytes: a cluster of 15,000 nodes whose cards
// are all in use then takes 40 MB.
const (
	keptNode = 1500
	keptPod  = 320
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

// heap is how many bytes are in use.
func heap() int64 {
	for range 3 { // what package unique holds weakly goes with the collections after the one that finds it unused
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
