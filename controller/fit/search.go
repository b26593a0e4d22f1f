package fit

import (
	"slices"
)

// Budget is how many cards are tried for one pod on one node before the search gives up, Total how many on all nodes
// of one search. A pod that fits at the first choice needs one try for each card it gets. Eight cards and four
// containers hardly ever need a thousand.
const (
	Budget = 1 << 15
	Total  = 1 << 21
)

// Search looks for cards for one pod, on any number of nodes. It is not safe for concurrent use.
type Search struct {
	rules *Rules
	req   *Request
	last  *matched
	seen  map[*schema]*matched
	total int
}

// need is an amount of a resource, by its column.
type need struct {
	column int
	count  int64
}

// matched is a request in the columns of one schema.
type matched struct {
	schema *schema
	needs  [][]need // by container
	wide   []need
	// lacks says that the pod needs a resource that the node does not have at all.
	lacks bool
	// items are the choices to make, in order: first the containers that share a card, as one, then each other
	// container that is not an init container.
	items []item
	// simple is whether any cards with room will do, because no other choice depends on them.
	simple bool
}

// item is one choice of cards.
type item struct {
	containers []int
	cards      int
	tiles      int64
	needs      []need
	// again says that the previous item is identical. The search then skips the cards before that item's first card:
	// they would only repeat combinations.
	again bool
}

// NewSearch starts a search for the request.
func NewSearch(r *Rules, req *Request) *Search {
	return &Search{rules: r, req: req, seen: map[*schema]*matched{}, total: Total}
}

func (s *Search) match(sc *schema) *matched {
	if s.last != nil && s.last.schema == sc {
		return s.last
	}
	m := s.seen[sc]
	if m == nil {
		m = s.newMatch(sc)
		s.seen[sc] = m
	}
	s.last = m
	return m
}

func (s *Search) newMatch(sc *schema) *matched {
	m := &matched{schema: sc}
	columns := func(list []Amount) (out []need) {
		for _, a := range list {
			i, ok := slices.BinarySearch(sc.names, a.Name)
			m.lacks = m.lacks || !ok
			out = append(out, need{i, a.Count})
		}
		return out
	}
	shape := s.req.Shape
	for _, c := range shape.Containers {
		m.needs = append(m.needs, columns(c.PerCard))
		m.lacks = m.lacks || c.Cards > 1<<20 // no node has so many
	}
	m.wide = columns(shape.Wide)
	if m.lacks {
		return m
	}
	if len(s.req.Same) > 0 {
		group := item{containers: s.req.Same, cards: 1}
		for _, i := range s.req.Same {
			group.needs = plus(group.needs, m.needs[i])
		}
		m.items = append(m.items, group)
	}
	for i, c := range shape.Containers[:shape.Beside] {
		if c.Cards == 0 || slices.Contains(s.req.Same, i) {
			continue
		}
		next := item{containers: []int{i}, cards: int(c.Cards), tiles: c.Tiles, needs: m.needs[i]}
		if k := len(m.items) - 1; k >= 0 && len(m.items[k].containers) == 1 && c.When == App {
			next.again = m.items[k].cards == next.cards && slices.Equal(m.items[k].needs, next.needs)
		}
		m.items = append(m.items, next)
	}
	m.simple = len(m.items) == 1 && !s.req.Linked && !s.req.SingleNUMA
	for _, c := range shape.Containers[shape.Beside:] {
		m.simple = m.simple && c.Cards == 0
	}
	return m
}

// plus adds b to a.
func plus(a, b []need) []need {
	out := slices.Clone(a)
	for _, n := range b {
		if i := slices.IndexFunc(out, func(o need) bool { return o.column == n.column }); i >= 0 {
			out[i].count = add(out[i].count, n.count)
		} else {
			out = append(out, n)
		}
	}
	return out
}

// Try reports whether the pod fits on the node now: [Fits], or why not. If the pod does not fit on the empty node
// either, the cause is TooMuch, unless it is already final.
func (s *Search) Try(n *Node) Cause {
	cause := s.on(n, n.now(), nil)
	if cause == Fits || cause.Final() {
		return cause
	}
	if empty := s.on(n, n.bare(), nil); empty != Fits && empty != NotFound {
		return TooMuch
	}
	return cause
}

// Place chooses the cards; the record is for [Node.Add]. It is nil unless the pod fits.
func (s *Search) Place(n *Node) (*Record, Cause) {
	r := NewRecord(s.req.UID, s.req.Namespace, s.req.Name, s.req.Shape)
	if cause := s.on(n, n.now(), &r); cause != Fits {
		return nil, s.Try(n)
	}
	return &r, Fits
}

// capacityLeft are the free and used amounts of a node, as they are now or as they would be without any pod.
type capacityLeft struct {
	free, wideUsed []int64
	tilesUsed      []uint64
	// most is the most that any card has free, by resource.
	most []int64
}

func (n *Node) now() capacityLeft {
	return capacityLeft{n.free, n.wideUsed, n.tilesUsed, n.row(n.free, len(n.cards))}
}

func (n *Node) bare() capacityLeft {
	return capacityLeft{n.empty, n.noneUsed[:len(n.wideUsed)], n.noneTiles, n.row(n.empty, len(n.cards))}
}

// on looks for a place for the pod on a node with these amounts. It writes the choice into r unless r is nil.
func (s *Search) on(n *Node, b capacityLeft, r *Record) Cause {
	switch {
	case n.broken != Fits:
		return n.broken
	case s.req.Contradiction != Fits:
		return s.req.Contradiction
	case s.req.Linked && n.linksBroken, s.req.SingleNUMA && n.numaBroken:
		return LabelUnclear
	}
	m := s.match(n.schema)
	if m.lacks {
		return TooMuch
	}
	for _, w := range m.wide {
		if w.count > n.wideCapacity[w.column]-b.wideUsed[w.column] {
			return NodeRoom
		}
	}
	if m.simple && r == nil {
		if !room(b.most, m.items[0].needs) {
			return NoRoom // most nodes of a full cluster
		}
		return s.count(n, b.free, &m.items[0])
	}
	d := newBacktrack(s, n, m, b)
	limit := d.steps
	found := d.place(0)
	s.total -= limit - d.steps
	switch {
	case found:
		if r != nil {
			d.write(r)
		}
		return Fits
	case d.steps < 0:
		return NotFound
	case s.req.Linked:
		return NoLinks
	}
	return NoRoom
}

// count is the shortcut for a simple request: are there enough cards with room?
func (s *Search) count(n *Node, free []int64, it *item) Cause {
	left := it.cards
	choosy := n.anyOff || s.req.Allow != nil || s.req.Deny != nil
	for c := range n.cards {
		if room(n.row(free, c), it.needs) && !(choosy && (n.off[c] || !s.mayUse(n.cards[c]))) {
			if left--; left <= 0 {
				return Fits
			}
		}
	}
	return NoRoom
}

func room(free []int64, needs []need) bool {
	for _, need := range needs {
		if free[need.column] < need.count {
			return false
		}
	}
	return true
}

// mayUse reports whether the pod's lists allow the card.
func (s *Search) mayUse(card string) bool {
	return (s.req.Allow == nil || slices.Contains(s.req.Allow, card)) && !slices.Contains(s.req.Deny, card)
}

// PrefersFirst reports whether the card that the node's telemetry prefers has room for the pod's first container.
func (s *Search) PrefersFirst(n *Node) bool {
	if n.preferred < 0 || n.broken != Fits {
		return false
	}
	m := s.match(n.schema)
	return !m.lacks && len(m.items) > 0 && !n.off[n.preferred] && s.mayUse(n.cards[n.preferred]) &&
		room(n.row(n.free, n.preferred), m.items[0].needs)
}
