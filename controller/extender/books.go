package extender

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/acceld/acceld/controller/fit"
)

// Pod is what is kept of a pod that the API server shows; see [Books.Trim].
type Pod struct {
	fit.Record
	Node string
	// Taken: its kubelet has given its containers their devices.
	Taken bool
	// Over: it has ended, and holds nothing any more. A pod that is being deleted holds its cards until it is gone.
	Over bool
}

// Books are those of all nodes, in one term of leadership. They are safe for concurrent use.
//
// mu is taken before the lock of a node, and neither is held during a call of the API. What changes where a pod is
// holds both; filter holds one node's at a time.
type Books struct {
	rules *fit.Rules

	mu      sync.RWMutex
	nodes   map[string]*entry
	pods    map[string]*held // by UID
	schemas fit.Schemas

	shapesMu sync.Mutex
	shapes   map[string]*fit.Shape

	nodesListed, podsListed atomic.Bool
	// complete is closed when both are true for the first time.
	complete     chan struct{}
	completeOnce sync.Once
	// told is when the API server was last heard of, in nanoseconds of Unix; corrections counts what a list or a check
	// found to be otherwise than the books said.
	told        atomic.Int64
	corrections atomic.Int64
}

// entry is one node. Its records outlive the node object, so that one that comes back finds its pods.
type entry struct {
	mu      sync.Mutex
	node    *fit.Node // nil: only its pods are known
	facts   fit.Facts
	records map[string]*fit.Record
	// moved is closed when the kubelet has taken a pod, or a pod is gone; nil while nobody waits for that.
	moved chan struct{}
}

// held is where a pod is.
type held struct {
	node   string
	record *fit.Record
	// shown: the API server has shown it there; until then since is when it was put into the books.
	shown bool
	since time.Time
	// known: the API server has shown its cards, or said that it took them. They stand from then on.
	known bool
	// disputed: it shows others since, which somebody has written there.
	disputed bool
	// taken: as of [Pod].
	taken bool
	// binding: the answer of the API server is not known yet.
	binding bool
}

// NewBooks returns empty books.
func NewBooks(r *fit.Rules) *Books {
	return &Books{
		rules: r, nodes: map[string]*entry{}, pods: map[string]*held{}, shapes: map[string]*fit.Shape{},
		schemas: fit.Schemas{}, complete: make(chan struct{}),
	}
}

// Complete reports whether nodes and pods have been listed.
func (b *Books) Complete() bool { return b.nodesListed.Load() && b.podsListed.Load() }

func (b *Books) tellComplete() {
	if b.Complete() {
		b.completeOnce.Do(func() { close(b.complete) })
	}
}

// heard notes that the API server said something.
func (b *Books) heard() { b.told.Store(time.Now().UnixNano()) }

// at returns the entry of a node, made when it is not there. mu is held.
func (b *Books) at(node string) *entry {
	e := b.nodes[node]
	if e == nil {
		e = &entry{records: map[string]*fit.Record{}}
		b.nodes[node] = e
	}
	return e
}

// SetNode puts a node into the books, or what is new of it.
func (b *Books) SetNode(facts fit.Facts) {
	b.heard()
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.at(facts.Name)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.node != nil && sameFacts(e.facts, facts) {
		return // most updates are heartbeats
	}
	e.facts, e.node = facts, fit.NewNode(b.rules, b.schemas, facts, e.records)
}

func sameFacts(a, b fit.Facts) bool {
	return a.Broken == b.Broken && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Allocatable, b.Allocatable) &&
		slices.EqualFunc(a.Inventory, b.Inventory, sameCard) && (a.Inventory == nil) == (b.Inventory == nil)
}

// DropNode takes a node out. Its pods stay until they are gone themselves.
func (b *Books) DropNode(name string) {
	b.heard()
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.nodes[name]
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.node = nil
	if len(e.records) == 0 {
		delete(b.nodes, name)
	}
}

// SetPod puts a pod into the books that the API server shows, or takes it out when it is over. The cards that it was
// bound with stand, whatever somebody wrote into its annotations since.
func (b *Books) SetPod(p *Pod) {
	b.heard()
	if p.Over || p.Node == "" {
		b.DropPod(p.UID)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.pods[p.UID]; h != nil {
		h.shown = h.shown || h.node == p.Node
		if p.Taken && !h.taken && h.node == p.Node {
			h.taken = true
			b.nodes[h.node].tell()
		}
		if h.node == p.Node && h.stands(p) {
			return
		}
		b.remove(p.UID, h)
	}
	b.put(&p.Record, p.Node)
	h := b.pods[p.UID]
	h.shown, h.known, h.taken = true, true, p.Taken
}

// stands reports whether a pod has the cards that the books say, now that the API server shows it where the books have
// it. What it shows first goes before what was chosen here, where it has not said that it took that.
func (h *held) stands(p *Pod) bool {
	own, has := h.record.Cards != "" || h.record.InitCards != "", p.Cards != "" || p.InitCards != ""
	same := h.record.Cards == p.Cards && h.record.InitCards == p.InitCards && h.record.Tiles == p.Tiles &&
		h.record.InitTiles == p.InitTiles
	if same || has && !(own && h.known) {
		h.known, h.disputed = true, false
		return same
	}
	h.disputed = own
	return true
}

// disputed counts the pods of which the API server shows other cards than those that they were bound with.
func (b *Books) disputed() (n int) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, h := range b.pods {
		if h.disputed {
			n++
		}
	}
	return n
}

// DropPod takes a pod out of the books.
func (b *Books) DropPod(uid string) {
	b.heard()
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.pods[uid]; h != nil {
		b.remove(uid, h)
	}
}

// put adds a record to a node. mu is held.
func (b *Books) put(r *fit.Record, node string) {
	e := b.at(node)
	e.mu.Lock()
	defer e.mu.Unlock()
	b.pods[r.UID] = &held{node: node, record: r, since: time.Now()}
	if e.node == nil {
		e.records[r.UID] = r
		return
	}
	e.node.Add(r)
}

// remove is the opposite. mu is held.
func (b *Books) remove(uid string, h *held) {
	delete(b.pods, uid)
	e := b.nodes[h.node]
	e.tell()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.node != nil {
		e.node.Remove(uid)
		return
	}
	if delete(e.records, uid); len(e.records) == 0 {
		delete(b.nodes, h.node)
	}
}

// ListNodes makes the books those of exactly these nodes.
func (b *Books) ListNodes(all []fit.Facts) {
	there := map[string]bool{}
	for _, f := range all {
		there[f.Name] = true
		b.SetNode(f)
	}
	b.mu.RLock()
	var gone []string
	for name, e := range b.nodes {
		e.mu.Lock()
		if e.node != nil && !there[name] {
			gone = append(gone, name)
		}
		e.mu.Unlock()
	}
	b.mu.RUnlock()
	for _, name := range gone {
		b.DropNode(name)
	}
	b.nodesListed.Store(true)
	b.tellComplete()
}

// ListPods makes the books those of exactly these pods, and of those that are being bound.
func (b *Books) ListPods(all []*Pod) {
	there := map[string]bool{}
	for _, p := range all {
		there[p.UID] = true
		b.SetPod(p)
	}
	b.mu.Lock()
	for uid, h := range b.pods {
		if h.shown && !there[uid] {
			b.remove(uid, h)
			b.corrections.Add(1)
		}
	}
	b.mu.Unlock()
	b.podsListed.Store(true)
	b.tellComplete()
}

// Reserve chooses cards for a pod on a node and holds them, until [Books.Settle]. Behind is not nil when the kubelet of
// the node has not taken a pod yet that was bound before and has other cards: nothing is held then, and it is worth
// trying again once the channel is closed.
func (b *Books) Reserve(q *fit.Request, node string) (record *fit.Record, cause fit.Cause, behind <-chan struct{},
	err error,
) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.pods[q.UID]; h != nil {
		if h.binding {
			return nil, fit.Fits, nil, fmt.Errorf("cannot bind pod %s/%s: it is being bound to node %q", q.Namespace,
				q.Name, h.node)
		}
		if h.shown {
			return nil, fit.Fits, nil, fmt.Errorf("cannot bind pod %s/%s: it is bound to node %q", q.Namespace, q.Name,
				h.node)
		}
		// Whether it was written, and with which cards, is known when the API server shows the pod, or says that it is
		// not bound.
		return nil, fit.Fits, nil,
			fmt.Errorf("cannot bind pod %s/%s: it is not known yet what became of its binding to node %q", q.Namespace,
				q.Name, h.node)
	}
	e := b.nodes[node]
	if e == nil || e.node == nil {
		return nil, fit.UnknownNode, nil, nil
	}
	e.mu.Lock()
	record, cause = fit.NewSearch(b.rules, q).Place(e.node)
	e.mu.Unlock()
	if record == nil {
		return nil, cause, nil, nil
	}
	if e.facts.Inventory != nil && b.ahead(e, record) {
		if e.moved == nil {
			e.moved = make(chan struct{})
		}
		return nil, fit.Fits, e.moved, nil
	}
	b.put(record, node)
	b.pods[q.UID].binding = true
	return record, fit.Fits, nil, nil
}

// ahead reports whether a pod with other cards than those of record waits for the kubelet of a node. The kubelet does
// not tell its device plugin which pod it is about, so that of two such pods one could get the cards of the other. mu
// is held.
func (b *Books) ahead(e *entry, record *fit.Record) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for uid, r := range e.node.Records() {
		h := b.pods[uid]
		if h == nil || h.taken || r.Cards == "" && r.InitCards == "" {
			continue
		}
		if r.Cards != record.Cards || r.InitCards != record.InitCards {
			return true
		}
	}
	return false
}

// tell wakes who waits for something to move on a node. The lock of the books is held.
func (e *entry) tell() {
	if e.moved != nil {
		close(e.moved)
		e.moved = nil
	}
}

// Settle says what became of a reservation: bound, not bound, or not known (nil), which [Books.Doubts] lists later.
func (b *Books) Settle(uid string, bound *bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.pods[uid]
	if h == nil {
		return
	}
	h.binding = false
	if bound != nil && *bound {
		h.known = true
	}
	if bound != nil && !*bound && !h.shown {
		b.remove(uid, h)
	}
}

// Doubts are pods in the books that the API server has not shown for so long, as "namespace/name" by UID.
func (b *Books) Doubts(since time.Duration) map[string]string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	out := map[string]string{}
	for uid, h := range b.pods {
		if !h.shown && !h.binding && time.Since(h.since) > since {
			out[uid] = h.record.Namespace + "/" + h.record.Name
		}
	}
	return out
}

// maxShapes are kept; pods of a Deployment share one, and a cluster has few.
const maxShapes = 4096

// shape divides what containers ask, once for all pods that ask the same.
func (b *Books) shape(asked []fit.Asked) *fit.Shape {
	var key strings.Builder
	for _, a := range asked {
		fmt.Fprintf(&key, "%d %q", a.When, a.Name)
		for _, name := range slices.Sorted(maps.Keys(a.Amounts)) {
			fmt.Fprintf(&key, " %q %d", name, a.Amounts[name])
		}
		key.WriteByte('\n')
	}
	b.shapesMu.Lock()
	defer b.shapesMu.Unlock()
	s := b.shapes[key.String()]
	if s == nil {
		if len(b.shapes) >= maxShapes {
			clear(b.shapes)
		}
		s = fit.NewShape(b.rules, asked)
		b.shapes[key.String()] = s
	}
	return s
}

// find returns the entries of nodes; nil for those that are not known.
func (b *Books) find(names []string) []*entry {
	out := make([]*entry, len(names))
	b.mu.RLock()
	defer b.mu.RUnlock()
	for i, name := range names {
		out[i] = b.nodes[name]
	}
	return out
}

// findAll does the same for names as the scheduler sends them, and uses the memory of out.
func (b *Books) findAll(all *names, out []*entry) []*entry {
	out = slices.Grow(out[:0], len(all.at))[:len(all.at)]
	b.mu.RLock()
	defer b.mu.RUnlock()
	for i := range out {
		out[i] = b.nodes[string(all.raw(i))]
	}
	return out
}

// names are those of all nodes, sorted.
func (b *Books) names() []string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Sorted(maps.Keys(b.nodes))
}

// look calls see with a node under its lock; not when it is not known.
func (e *entry) look(see func(*fit.Node)) bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.node == nil {
		return false
	}
	see(e.node)
	return true
}
