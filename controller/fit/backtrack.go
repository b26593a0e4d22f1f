package fit

import (
	"cmp"
	"slices"
)

// backtrack is one search on one node: depth first, cards in their order, with backtracking.
type backtrack struct {
	s     *Search
	n     *Node
	m     *matched
	steps int
	// base are the amounts without this pod. free is what is left of each card after the choices so far.
	base capacityLeft
	free []int64
	// order are the cards that may be used, in the order of trying.
	order []int
	// on counts the items of this pod on each card.
	on []int
	// chosen are the cards of each container and tiles their tiles. taken are this pod's tiles, by card.
	chosen [][]int
	tiles  [][]uint64
	taken  []uint64
}

func newBacktrack(s *Search, n *Node, m *matched, b capacityLeft) *backtrack {
	d := &backtrack{
		s: s, n: n, m: m, steps: min(Budget, s.total), base: b, free: slices.Clone(b.free),
		on: make([]int, len(n.cards)), taken: make([]uint64, len(n.cards)),
		chosen: make([][]int, len(m.needs)), tiles: make([][]uint64, len(m.needs)),
	}
	for c, name := range n.cards {
		if !n.off[c] && s.mayUse(name) {
			d.order = append(d.order, c)
		}
	}
	if i := slices.Index(d.order, n.preferred); i > 0 && s.rules.Balance == "" {
		d.order = slices.Insert(slices.Delete(d.order, i, i+1), 0, n.preferred) // the others stay packed in their order
	}
	return d
}

// row returns what is free of a card.
func (d *backtrack) row(card int) []int64 { return d.n.row(d.free, card) }

// place chooses cards for the items from k on, and then for the init containers.
func (d *backtrack) place(k int) bool {
	if k == len(d.m.items) {
		return d.inits()
	}
	it := &d.m.items[k]
	order, from := d.order, 0
	if column, ok := slices.BinarySearch(d.n.schema.names, d.s.rules.Balance); ok {
		order = d.balanced(column)
	} else if it.again && !d.s.req.SingleNUMA && !d.s.req.Linked {
		from = slices.Index(order, d.chosen[d.m.items[k-1].containers[0]][0])
	}
	for _, cards := range d.groups(order) {
		if d.s.req.Linked && d.pairs(k, cards, 0, it.cards) || !d.s.req.Linked && d.pick(k, cards, from, it.cards) {
			return true
		}
	}
	return false
}

// balanced returns the cards that may be used, the least used of a resource first.
func (d *backtrack) balanced(column int) []int {
	used := func(card int) int64 { return d.n.capacity[d.n.at(card, column)] - d.row(card)[column] }
	order := slices.Clone(d.order)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(used(a), used(b)) })
	return order
}

// groups divides cards by NUMA node if the pod asks for a single one and the NUMA nodes are known.
func (d *backtrack) groups(order []int) [][]int {
	if !d.s.req.SingleNUMA || d.n.numa == nil {
		return [][]int{order}
	}
	out := make([][]int, d.n.numaGroups)
	for _, card := range order {
		if group := d.n.numa[card]; group >= 0 {
			out[group] = append(out[group], card)
		}
	}
	return out
}

// pick chooses left more cards for item k, starting at position from of order.
func (d *backtrack) pick(k int, order []int, from, left int) bool {
	if left == 0 {
		return d.place(k + 1)
	}
	it := &d.m.items[k]
	enough := 0
	for _, c := range order[min(from, len(order)):] {
		if room(d.row(c), it.needs) {
			enough++
		}
	}
	var failed []int
	for i := from; enough >= left && i < len(order); i++ {
		c := order[i]
		if !room(d.row(c), it.needs) {
			continue
		}
		if enough--; slices.ContainsFunc(failed, func(f int) bool { return d.alike(c, f) }) {
			continue
		}
		if d.steps--; d.steps < 0 {
			return false
		}
		d.take(it, c)
		if d.pick(k, order, i+1, left-1) {
			return true
		}
		d.untake(it, c)
		if d.steps < 0 {
			return false
		}
		failed = append(failed, c)
	}
	return false
}

// alike reports whether two cards are interchangeable for this pod now: if one leads to no solution, neither does the
// other.
func (d *backtrack) alike(a, b int) bool {
	return slices.Equal(d.row(a), d.row(b)) && (d.on[a] > 0) == (d.on[b] > 0) && (len(d.n.numa) == 0 ||
		d.n.numa[a] == d.n.numa[b])
}

func (d *backtrack) take(it *item, card int) {
	for _, need := range it.needs {
		d.row(card)[need.column] -= need.count
	}
	for _, c := range it.containers {
		d.chosen[c] = append(d.chosen[c], card)
	}
	d.on[card]++
}

func (d *backtrack) untake(it *item, card int) {
	for _, need := range it.needs {
		d.row(card)[need.column] += need.count
	}
	for _, c := range it.containers {
		d.chosen[c] = d.chosen[c][:len(d.chosen[c])-1]
	}
	d.on[card]--
}

// pairs chooses left more cards for item k as linked pairs, starting at the link at position from. The tile at each
// end must be free. If the container asks for tiles, it gets this one.
func (d *backtrack) pairs(k int, order []int, from, left int) bool {
	if left == 0 {
		return d.place(k + 1)
	}
	it := &d.m.items[k]
	c := it.containers[0]
	for i := from; i < len(d.n.links); i++ {
		l := d.n.links[i]
		if !d.end(it, order, l.card, l.tile) || !d.end(it, order, l.otherCard, l.otherTile) {
			continue
		}
		if d.steps--; d.steps < 0 {
			return false
		}
		before1, before2 := d.taken[l.card], d.taken[l.otherCard]
		for _, end := range [][2]int{{l.card, l.tile}, {l.otherCard, l.otherTile}} {
			d.take(it, end[0])
			d.tiles[c] = append(d.tiles[c], d.freeTiles(end[0], it.tiles, end[1]))
			d.taken[end[0]] |= d.tiles[c][len(d.tiles[c])-1]
		}
		if d.pairs(k, order, i+1, left-2) {
			return true
		}
		d.untake(it, l.otherCard)
		d.untake(it, l.card)
		d.tiles[c] = d.tiles[c][:len(d.tiles[c])-2]
		d.taken[l.card], d.taken[l.otherCard] = before1, before2
		if d.steps < 0 {
			return false
		}
	}
	return false
}

// end reports whether an item can use one end of a link.
func (d *backtrack) end(it *item, order []int, card, tile int) bool {
	if !slices.Contains(order, card) || slices.Contains(d.chosen[it.containers[0]], card) ||
		!room(d.row(card), it.needs) {
		return false
	}
	busy := d.n.tilesOff[card]
	if it.tiles > 0 {
		busy |= d.base.tilesUsed[card] | d.taken[card] | ^tileMask(d.n.tiles(card))
	}
	return busy>>tile&1 == 0
}

// freeTiles chooses tiles of a card: first the given one unless it is negative, then the preferred one, then the
// others in order.
func (d *backtrack) freeTiles(card int, count int64, given int) uint64 {
	free := tileMask(d.n.tiles(card)) &^ d.n.tilesOff[card] &^ d.base.tilesUsed[card] &^ d.taken[card]
	var out uint64
	for _, t := range []int{given, d.n.tileFirst[card]} {
		if count > 0 && t >= 0 && free>>t&1 == 1 {
			out |= 1 << t
			free &^= 1 << t
			count--
		}
	}
	for ; count > 0 && free != 0; count-- {
		out |= free & -free
		free &= free - 1
	}
	return out
}

// inits chooses the cards of the init containers. Each runs alone with the sidecars before it, so their choices are
// independent.
func (d *backtrack) inits() bool {
	shape := d.s.req.Shape
	for i, c := range shape.Containers[shape.Beside:] {
		at := shape.Beside + i
		d.chosen[at] = nil
		if c.Cards == 0 {
			continue
		}
		fits := func(card int) bool { return d.initRoom(at, shape.Before[i], card) }
		for _, cards := range d.groups(d.order) {
			if d.chosen[at] == nil {
				d.chosen[at] = d.init(cards, int(c.Cards), fits)
			}
		}
		if d.chosen[at] == nil {
			return false
		}
	}
	return true
}

// initRoom reports whether a card has room for container at when it runs alongside the first sidecars.
func (d *backtrack) initRoom(at, sidecars, card int) bool {
	row := slices.Clone(d.n.row(d.base.free, card))
	for j := d.s.req.Shape.Apps; j < d.s.req.Shape.Apps+sidecars; j++ {
		if slices.Contains(d.chosen[j], card) {
			for _, need := range d.m.needs[j] {
				row[need.column] -= need.count
			}
		}
	}
	return room(row, d.m.needs[at])
}

// init chooses the cards of one init container from order. It takes the pod's own cards first, and others only if the
// container needs more than all of those. It returns nil if there are not enough.
func (d *backtrack) init(order []int, count int, fits func(card int) bool) []int {
	own := 0
	for _, on := range d.on {
		if on > 0 {
			own++
		}
	}
	var out []int
	for card, on := range d.on {
		if on == 0 || len(out) == count {
			continue
		}
		if slices.Contains(order, card) && fits(card) {
			out = append(out, card)
		}
	}
	for _, card := range order {
		if d.on[card] == 0 && len(out) >= own && len(out) < count && fits(card) {
			out = append(out, card)
		}
	}
	if len(out) < count {
		return nil
	}
	return out
}

// write turns the choice into a record.
func (d *backtrack) write(r *Record) {
	shape := d.s.req.Shape
	for i, c := range shape.Containers {
		for j, card := range d.chosen[i] {
			if j < len(d.tiles[i]) {
				continue // the link brought the tiles
			}
			var tiles uint64
			count := c.Tiles
			if c.When == Init { // the pod's own tiles first, except those of sidecars that run already
				for left := d.taken[card] &^ d.sidecarTiles(shape.Before[i-shape.Beside], card); left != 0 &&
					count > 0; left &= left - 1 {
					tiles |= left & -left
					count--
				}
			}
			tiles |= d.freeTiles(card, count, -1)
			d.taken[card] |= tiles
			d.tiles[i] = append(d.tiles[i], tiles)
		}
	}
	r.Choose(Choice{
		Cards: d.n.formatCards(d.chosen[:shape.Apps]), InitCards: d.n.formatCards(d.chosen[shape.Apps:]),
		Tiles:     d.n.formatTiles(d.chosen[:shape.Apps], d.tiles[:shape.Apps]),
		InitTiles: d.n.formatTiles(d.chosen[shape.Apps:], d.tiles[shape.Apps:]),
	})
}

// sidecarTiles returns the tiles of a card that the first sidecars were given.
func (d *backtrack) sidecarTiles(sidecars, card int) (out uint64) {
	for i := d.s.req.Shape.Apps; i < d.s.req.Shape.Apps+sidecars; i++ {
		if j := slices.Index(d.chosen[i], card); j >= 0 {
			out |= d.tiles[i][j]
		}
	}
	return out
}
