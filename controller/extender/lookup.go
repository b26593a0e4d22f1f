package extender

import (
	"bytes"
	"slices"
	"time"

	"github.com/acceld/acceld/controller/fit"
)

// order is the order in which the scheduler listed the nodes. Its next list is nearly the same, so reading the two side
// by side finds the nodes. A map reads several places in memory for each name, in random order: for thousands of names,
// that takes longer than everything else.
type order struct {
	names   names
	entries []*entry
	made    time.Time
}

// reorderAfter is how long an order stays at least. Lists that contradict each other must not cost a new order each.
const reorderAfter = time.Second

// findAll returns the entries of the nodes with these names, nil for an unknown one, and reuses the memory of out.
func (b *Cache) findAll(all *names, out []*entry) []*entry {
	out, misses := b.findByOrder(all, slices.Grow(out[:0], len(all.at))[:len(all.at)])
	const few = 8 // of so many names, one may be somewhere else
	if misses > len(all.at)/few {
		b.reorder(all)
	}
	return out
}

// skips is how many nodes of the order a list may leave out at a place: prioritize is asked about those nodes only that
// filter found to fit.
const skips = 16

// findByOrder finds entries. It returns how many were not where the order has them.
func (b *Cache) findByOrder(all *names, out []*entry) ([]*entry, int) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	last := b.order
	if last == nil {
		last = &order{}
	}
	next, misses := 0, 0
	for i := range out {
		name, at := all.raw(i), next
		for at < min(next+skips, len(last.entries)) && !bytes.Equal(last.names.raw(at), name) {
			at++
		}
		if at < min(next+skips, len(last.entries)) {
			out[i], next = last.entries[at], at+1
			continue
		}
		misses++
		if out[i] = b.nodes[string(name)]; out[i] != nil {
			next = int(out[i].position) + 1
		}
	}
	return out, misses
}

// reorder makes an order of the known nodes of a list, and then those of the last order: the scheduler may list other
// nodes for each group of pods.
func (b *Cache) reorder(all *names) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, o := b.order, &order{made: time.Now()}
	if last == nil {
		last = &order{}
	}
	if o.made.Sub(last.made) < reorderAfter || len(all.at) < len(last.entries)/2 {
		return // a short list takes little time anyway
	}
	for i := range all.at {
		o.add(all.raw(i), b.nodes[string(all.raw(i))])
	}
	for i, e := range last.entries {
		o.add(last.names.raw(i), e)
	}
	b.order = o
}

// add adds a node unless it is there or not known.
func (o *order) add(name []byte, e *entry) {
	if e == nil || int(e.position) < len(o.entries) && o.entries[e.position] == e {
		return
	}
	e.position = int32(len(o.entries))
	o.names.add(name)
	o.entries = append(o.entries, e)
}

// atOnce is how many nodes are looked at before the lock is given back. Their memory is asked for together.
const atOnce = 32

// each calls see with each entry's node, nil if it is not known, under the lock.
func (b *Cache) each(all []*entry, see func(i int, n *fit.Node)) {
	var nodes [atOnce]*fit.Node
	for from := 0; from < len(all); from += atOnce {
		some := all[from:min(from+atOnce, len(all))]
		b.mu.RLock()
		for i, e := range some {
			if nodes[i] = nil; e != nil {
				nodes[i] = e.node
			}
		}
		fit.Fetch(nodes[:len(some)])
		for i, n := range nodes[:len(some)] {
			see(from+i, n)
		}
		b.mu.RUnlock()
	}
}

// look calls see with a node under the lock. It returns false if the node is not known.
func (b *Cache) look(name string, see func(*fit.Node)) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	e := b.nodes[name]
	if e == nil || e.node == nil {
		return false
	}
	see(e.node)
	return true
}
