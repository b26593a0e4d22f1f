package extender

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/acceld/acceld/controller/fit"
)

// Pod is the part of a pod from the API server that is cached; see [Cache.Trim]. There may be more than a hundred
// thousand. What is given to the cache is the cache's.
type Pod struct {
	fit.Record
	Node string
	// Taken: its kubelet has allocated devices to its containers.
	Taken bool
	// Over: it has ended and holds nothing any more. A pod that is being deleted holds its cards until it is gone.
	Over bool

	// shown: the API server has shown the pod on this node. Until then, since is when it entered the cache, in Unix
	// nanoseconds.
	shown bool
	// known: the API server has shown the pod's cards or confirmed the binding. They are final from then on.
	known bool
	// disputed: the API server now shows other cards, because somebody has edited the annotations.
	disputed bool
	// binding: the API server has not answered yet.
	binding bool
	since   int64
}

// Cache is the cache of all nodes and their pods during one term of leadership. It is safe for concurrent use.
//
// Its lock is not held during a call of the API. A loop over all nodes releases it after every few of them.
type Cache struct {
	rules *fit.Rules

	mu      sync.RWMutex
	nodes   map[string]*entry
	pods    map[fit.UID]*Pod // by UID
	spare   spare
	schemas fit.Schemas
	kins    map[digest]weak.Pointer[kin] // of the nodes, and of earlier ones until they are swept
	order   *order                       // nil after a new node

	shapesMu sync.Mutex
	shapes   map[string]*fit.Shape

	nodesListed, podsListed atomic.Bool
	// complete is closed when both are true for the first time.
	complete     chan struct{}
	completeOnce sync.Once
	// lastContact is when the API server last sent something, in Unix nanoseconds. corrections counts the entries that
	// a list or a check proved wrong.
	lastContact atomic.Int64
	corrections atomic.Int64
	room        latest
}

// entry is one node. Its pods outlive the node object, so that a node that comes back has them.
type entry struct {
	node    *fit.Node // nil: only its pods are known
	kin     *kin
	records []*fit.Record // while node is nil
	// position is where the node was in the last [order].
	position int32
	// moved is closed when the kubelet has taken a pod or a pod is gone; nil while there are no waiters.
	moved chan struct{}
}

// kin are nodes with equal facts. node is one that stands for all of them.
type kin struct {
	digest digest
	node   *fit.Node
	// listed: an annotation lists the cards.
	listed bool
}

// NewCache returns an empty cache.
func NewCache(r *fit.Rules) *Cache {
	return &Cache{
		rules: r, nodes: map[string]*entry{}, pods: map[fit.UID]*Pod{}, shapes: map[string]*fit.Shape{},
		schemas: fit.Schemas{}, kins: map[digest]weak.Pointer[kin]{}, complete: make(chan struct{}),
		room: latest{changed: make(chan struct{}, 1)},
	}
}

// Complete reports whether nodes and pods have been listed.
func (b *Cache) Complete() bool { return b.nodesListed.Load() && b.podsListed.Load() }

func (b *Cache) signalComplete() {
	if b.Complete() {
		b.completeOnce.Do(func() { close(b.complete) })
	}
}

// contacted records that the API server sent something.
func (b *Cache) contacted() { b.lastContact.Store(time.Now().UnixNano()) }

// at returns the entry of a node and creates it if needed. mu is held.
func (b *Cache) at(node string) *entry {
	e := b.nodes[node]
	if e == nil {
		e = &entry{}
		b.nodes[node], b.order = e, nil
	}
	return e
}

// SetNode adds or updates a node.
func (b *Cache) SetNode(f *Facts) {
	b.contacted()
	d := f.digest()
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.at(f.Name)
	if e.node != nil && e.kin.digest == d {
		return // most updates are heartbeats
	}
	e.kin = b.kinOf(d, f)
	e.node, e.records = e.kin.node.Like(f.Name, e.pods()), nil
	b.room.set(f.Name)
}

// kinOf returns the nodes with these facts. mu is held.
func (b *Cache) kinOf(d digest, f *Facts) *kin {
	if k := b.kins[d].Value(); k != nil {
		return k
	}
	if len(b.kins) > 2*len(b.nodes) {
		maps.DeleteFunc(b.kins, func(_ digest, k weak.Pointer[kin]) bool { return k.Value() == nil })
	}
	facts := f.read()
	k := &kin{digest: d, node: fit.NewNode(b.rules, b.schemas, facts, nil), listed: facts.Inventory != nil}
	b.kins[d] = weak.Make(k)
	return k
}

// DropNode removes a node. Its pods stay until they are gone themselves.
func (b *Cache) DropNode(name string) {
	b.contacted()
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.nodes[name]
	if e == nil {
		return
	}
	e.node, e.kin, e.records = nil, nil, e.pods()
	b.forget(name, e)
}

// SetPod adds or updates a pod that the API server shows, or removes it if it is over. The cards that it was bound
// with stay in force, even if somebody edits its annotations later.
func (b *Cache) SetPod(p *Pod) {
	b.contacted()
	if p.Over || p.Node == "" {
		b.DropPod(p.UID)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.pods[p.UID]; h != nil {
		h.shown = h.shown || h.Node == p.Node
		if p.Taken && !h.Taken && h.Node == p.Node {
			h.Taken = true
			b.nodes[h.Node].tell()
		}
		if h.Node == p.Node && h.stands(p) {
			return
		}
		b.remove(h)
	}
	h := b.put(p)
	h.shown, h.known = true, true
}

// stands reports whether the cached entry of a pod stays, given that the API server shows the pod on the same node.
// If the API server has not confirmed the cards chosen here, the first cards that it shows win.
func (h *Pod) stands(p *Pod) bool {
	own, has := h.Chosen().Placed(), p.Chosen().Placed()
	same := h.Chosen() == p.Chosen()
	if same || has && !(own && h.known) {
		h.known, h.disputed = true, false
		return same
	}
	h.disputed = own
	return true
}

// disputed counts the pods whose annotations no longer name the cards that they were bound with.
func (b *Cache) disputed() (n int) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, h := range b.pods {
		if h.disputed {
			n++
		}
	}
	return n
}

// DropPod removes a pod.
func (b *Cache) DropPod(uid fit.UID) {
	b.contacted()
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.pods[uid]; h != nil {
		b.remove(h)
	}
}

// put adds a pod to its node, as one that the API server has not shown, and returns it as it is cached. mu is held.
func (b *Cache) put(p *Pod) *Pod {
	e := b.at(p.Node)
	h := b.spare.take()
	*h = Pod{Record: p.Record, Node: p.Node, Taken: p.Taken, since: time.Now().UnixNano()}
	b.pods[h.UID] = h
	if e.node == nil {
		e.records = append(e.records, &h.Record)
	} else {
		e.node.Add(&h.Record)
	}
	return h
}

// spare holds unused Pod values. They are allocated in blocks: allocated one by one, they would lie between short-lived
// objects, in pages of memory that cannot be returned.
type spare []*Pod

func (s *spare) take() *Pod {
	const block = 1024 // fills whole pages
	if len(*s) == 0 {
		pods := make([]Pod, block)
		for i := range pods {
			*s = append(*s, &pods[i])
		}
	}
	last := len(*s) - 1
	p := (*s)[last]
	*s = (*s)[:last]
	return p
}

func (s *spare) give(p *Pod) {
	*p = Pod{}
	*s = append(*s, p)
}

// remove is the opposite of put: nobody may use the cached pod any more. mu is held.
func (b *Cache) remove(p *Pod) {
	defer b.spare.give(p)
	delete(b.pods, p.UID)
	b.room.set(p.Node)
	e := b.nodes[p.Node]
	e.tell()
	if e.node != nil {
		e.node.Remove(p.UID)
		return
	}
	e.records = slices.DeleteFunc(e.records, func(r *fit.Record) bool { return r.UID == p.UID })
	b.forget(p.Node, e)
}

// pods returns the pods of the node.
func (e *entry) pods() []*fit.Record {
	if e.node != nil {
		return e.node.Records()
	}
	return e.records
}

// forget removes an entry that has neither a node nor pods. mu is held.
func (b *Cache) forget(name string, e *entry) {
	if e.node == nil && len(e.records) == 0 {
		delete(b.nodes, name)
	}
}

// ListNodes makes the cache hold exactly these nodes.
func (b *Cache) ListNodes(all []*Facts) {
	there := map[string]bool{}
	for _, f := range all {
		there[f.Name] = true
		b.SetNode(f)
	}
	for _, name := range b.names() {
		if !there[name] {
			b.DropNode(name)
		}
	}
	b.nodesListed.Store(true)
	b.signalComplete()
}

// ListPods makes the cache hold exactly these pods, and those whose binding the API server has not shown yet.
func (b *Cache) ListPods(all []*Pod) {
	there := make(map[fit.UID]bool, len(all))
	for _, p := range all {
		there[p.UID] = true
		b.SetPod(p)
	}
	b.mu.Lock()
	for uid, h := range b.pods {
		if h.shown && !there[uid] {
			b.remove(h)
			b.corrections.Add(1)
		}
	}
	b.mu.Unlock()
	b.podsListed.Store(true)
	b.signalComplete()
}

// Reserve chooses cards for a pod on a node and holds them until [Cache.Confirm]. Behind is not nil if an earlier pod
// with other cards waits for the node's kubelet. Nothing is held then; try again when the channel is closed.
func (b *Cache) Reserve(q *fit.Request, node string) (record *fit.Record, cause fit.Cause, behind <-chan struct{},
	err error,
) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.pods[q.UID]; h != nil {
		// Whether it was written, and with which cards, is known when the API server shows the pod or reports that it
		// is not bound.
		state := "it is not known yet what became of its binding"
		switch {
		case h.binding:
			state = "it is being bound"
		case h.shown:
			state = "it is bound"
		}
		return nil, fit.Fits, nil, fmt.Errorf("cannot bind pod %s/%s: %s to node %q", q.Namespace, q.Name, state, h.Node)
	}
	e := b.nodes[node]
	if e == nil || e.node == nil {
		return nil, fit.UnknownNode, nil, nil
	}
	if record, cause = fit.NewSearch(b.rules, q).Place(e.node); record == nil {
		return nil, cause, nil, nil
	}
	if e.kin.listed && b.ahead(e, record) {
		if e.moved == nil {
			e.moved = make(chan struct{})
		}
		return nil, fit.Fits, e.moved, nil
	}
	b.put(&Pod{Record: *record, Node: node}).binding = true
	return record, fit.Fits, nil, nil
}

// ahead reports whether a pod with other cards than those of record still waits for the kubelet of the node. The
// kubelet does not tell its device plugin which pod it allocates for, so one of two such pods could get the cards of
// the other. mu is held.
func (b *Cache) ahead(e *entry, record *fit.Record) bool {
	for _, r := range e.node.Records() {
		h := b.pods[r.UID]
		if h == nil || h.Taken || !r.Chosen().Placed() {
			continue
		}
		if r.Chosen().Cards != record.Chosen().Cards || r.Chosen().InitCards != record.Chosen().InitCards {
			return true
		}
	}
	return false
}

// tell wakes those who wait for a change on a node. The lock of the cache is held.
func (e *entry) tell() {
	if e.moved != nil {
		close(e.moved)
		e.moved = nil
	}
}

// Confirm records the result of a reservation: bound, not bound, or unknown (nil). [Cache.Unconfirmed] lists unknown
// ones later.
func (b *Cache) Confirm(uid fit.UID, bound *bool) {
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
		b.remove(h)
	}
}

// Unconfirmed returns the pods that have been in the cache for longer than since and that the API server has not shown
// yet, as "namespace/name" by UID.
func (b *Cache) Unconfirmed(since time.Duration) map[fit.UID]string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	out := map[fit.UID]string{}
	for uid, h := range b.pods {
		if !h.shown && !h.binding && time.Since(time.Unix(0, h.since)) > since {
			out[uid] = h.Namespace() + "/" + h.Name
		}
	}
	return out
}

// maxShapes is how many shapes are cached. The pods of a Deployment share one, and a cluster has few.
const maxShapes = 4096

// shape returns the shape for what containers ask, shared by all pods that ask for the same.
func (b *Cache) shape(asked []fit.Asked) *fit.Shape {
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

// names returns the names of all nodes, sorted.
func (b *Cache) names() []string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Sorted(maps.Keys(b.nodes))
}
