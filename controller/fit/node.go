package fit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Facts are what is known of a node.
type Facts struct {
	Name string
	// Labels are the labels that the rules read; others are ignored.
	Labels map[string]string
	// Allocatable are the node's totals by full name, rounded down ([Floor]).
	Allocatable map[string]int64
	// Inventory is what the agent reports of each card. If it is nil, labels name the cards and each has an equal
	// share of Allocatable. Broken says why what the node says of its cards cannot be read; empty if it can.
	Inventory []Card
	Broken    string
}

// Node is one node with the usage of its cards. It is not safe for concurrent use.
//
// Amounts are flat tables with a row for each card and a column for each resource of the node.
type Node struct {
	*traits
	// free is what is left, minus tiles that are off, and a row with the most of any card. What pods use follows from
	// it: there are thousands of nodes.
	free []int64
	// wideUsed, by resource, and tilesUsed, by card, are the zeros of the traits until a pod uses some.
	wideUsed  []int64
	tilesUsed []uint64
	full      float32 // see Fullness
	unplaced  bool    // there are pods that nobody chose cards for
	name      string
	records   []*Record
	// presumed are those of the unplaced pods that are counted on cards all the same, by UID, with these cards; see
	// presume. Nil if there are none.
	presumed map[UID]*Record
}

// traits are what follows from the facts of a node, except its name. Nodes with equal facts share them, so they never
// change.
type traits struct {
	// broken is why no pod fits at all. The fields that the filter reads come first, so that they share few cache
	// lines.
	broken Cause
	anyOff bool
	schema *schema
	// empty is what free of a node would be without any pod, and capacity the same with the tiles that are off.
	empty, capacity []int64
	cards           []string // sorted as text, the order in which they are tried
	off             []bool
	wideCapacity    []int64 // by resource
	noneUsed        []int64 // zeros

	rules                   *Rules
	problem                 string   // problem says what is broken, for people
	preferred               int      // index of a card, or -1
	tilesOff                []uint64 // by card
	noneTiles               []uint64 // zeros
	tileFirst               []int    // by card, or -1
	numa                    []int    // by card, or -1; nil if nothing is known
	numaGroups              int
	numaBroken, linksBroken bool
	links                   []link // between indexes of cards
}

// schema is a list of resources that nodes of a kind have in common. A pod is matched to it only once.
type schema struct {
	names []string // sorted
	tiles int      // index of the resource that counts tiles, or -1
}

// Schemas holds the schemas in use. It is not safe for concurrent use.
type Schemas map[string]*schema

// maxSchemas is how many schemas are kept. A cluster has a few; a node whose resources change all the time adds one
// with each change. maxSchemaNames is the maximum length in bytes of the names in a schema that nodes share: 256 names
// of 15 characters.
const (
	maxSchemas     = 4096
	maxSchemaNames = 4 << 10
)

func (s Schemas) of(names []string, tiles string) *schema {
	key := strings.Join(names, ",")
	if len(key) > maxSchemaNames {
		return &schema{names, slices.Index(names, tiles)}
	}
	if s[key] == nil {
		if len(s) >= maxSchemas {
			clear(s)
		}
		s[key] = &schema{names, slices.Index(names, tiles)}
	}
	return s[key]
}

// NewNode returns the node of facts, with the records that it had before.
func NewNode(r *Rules, schemas Schemas, facts Facts, records []*Record) *Node {
	n := &Node{traits: &traits{rules: r, problem: facts.Broken, preferred: -1}}
	facts.Inventory = r.own(facts.Inventory)
	names := n.readCards(&facts)
	switch {
	case n.problem != "":
		n.broken = LabelUnclear
	case len(n.cards) == 0:
		n.broken = NoCards
	}
	n.schema = schemas.of(slices.Sorted(maps.Keys(names)), r.Tiles)
	n.fill(facts)
	n.readMarks(facts)
	n.readPlaces(facts)
	n.anyOff = slices.Contains(n.off, true)
	n.noneUsed, n.noneTiles = make([]int64, len(n.schema.names)), make([]uint64, len(n.cards))
	n.empty = n.left(make([]int64, len(n.capacity)), n.noneTiles)
	return n.Like(facts.Name, records)
}

// Like returns a node with the same facts, but for its name, and with these records. The two share what follows from
// the facts, and nothing else.
func (n *Node) Like(name string, records []*Record) *Node {
	other := &Node{traits: n.traits, name: name, records: records}
	other.recount()
	return other
}

// readCards reads the names of the node's cards and returns those of its resources. If there are too many, the node has
// a problem and neither.
func (n *Node) readCards(facts *Facts) map[string]bool {
	switch {
	case n.problem != "":
		facts.Inventory = nil
	case facts.Inventory != nil:
		for _, c := range facts.Inventory {
			n.cards = append(n.cards, c.Name)
		}
		slices.Sort(n.cards)
	default:
		n.cards = parseNumbers(splice(facts.Labels, n.rules.LabelPrefix+labelNumbers))
		if len(n.cards) == 0 {
			n.cards = parseCards(facts.Labels[n.rules.LabelPrefix+labelCards])
		}
	}
	names := map[string]bool{}
	for full := range facts.Allocatable {
		if short, ok := n.rules.Resource(full); ok {
			names[short] = true
		}
	}
	for _, c := range facts.Inventory {
		for short := range c.Has {
			names[short] = true
		}
	}
	if len(n.cards) > maxCards || len(names) > maxResources || len(n.cards)*len(names) > maxCells {
		n.problem = fmt.Sprintf("there are %d cards with %d resources; at most there may be %d, %d, and %d of both multiplied",
			len(n.cards), len(names), maxCards, maxResources, maxCells)
		n.cards, facts.Inventory = nil, nil
		return nil
	}
	return names
}

// at is where a table has the amount of a card in a column, and row are all amounts of a card.
func (n *Node) at(card, column int) int { return card*len(n.schema.names) + column }

func (n *Node) row(table []int64, card int) []int64 { return table[n.at(card, 0):n.at(card+1, 0)] }

// fill sets the capacities of the cards and of the node.
func (n *Node) fill(facts Facts) {
	n.wideCapacity = make([]int64, len(n.schema.names))
	n.capacity = make([]int64, len(n.cards)*len(n.wideCapacity))
	n.off = make([]bool, len(n.cards))
	for i, short := range n.schema.names {
		total := facts.Allocatable[n.rules.full(short)]
		if n.rules.wide(short) {
			n.wideCapacity[i] = total
			continue
		}
		for c := range n.cards {
			if facts.Inventory == nil && !strings.Contains(short, "/") { // labels name cards of the first prefix only
				n.capacity[n.at(c, i)] = total / int64(len(n.cards))
			}
		}
	}
	for _, card := range facts.Inventory {
		c, _ := slices.BinarySearch(n.cards, card.Name)
		n.off[c] = card.Off
		for short, q := range card.Has {
			i, _ := slices.BinarySearch(n.schema.names, short)
			n.capacity[n.at(c, i)] = Floor(q)
		}
	}
}

// readMarks reads which cards and tiles are off and which come first.
func (n *Node) readMarks(facts Facts) {
	m := readMarks(facts.Labels, n.rules.Telemetry)
	n.tilesOff, n.tileFirst = make([]uint64, len(n.cards)), make([]int, len(n.cards))
	// If the label cannot be read, the card itself is still off.
	groups := parseGroups(splice(facts.Labels, n.rules.LabelPrefix+labelGroups))
	for c, name := range n.cards {
		n.off[c] = n.off[c] || m.off[name]
		for other, wide := range m.group {
			g1, ok1 := groups[name]
			g2, ok2 := groups[other]
			n.off[c] = n.off[c] || wide && ok1 && ok2 && g1 == g2
		}
		if name == m.preferred {
			n.preferred = c
		}
		n.tileFirst[c] = -1
		if t, ok := m.tileFirst[name]; ok {
			n.tileFirst[c] = t
		}
		n.tilesOff[c] = m.tilesOff[name] & tileMask(n.tiles(c))
	}
}

// readPlaces reads the NUMA nodes of the cards and the links between them.
func (n *Node) readPlaces(facts Facts) {
	positions := map[string]int{}
	for _, c := range facts.Inventory {
		if c.NUMA != nil {
			positions[c.Name] = *c.NUMA
		}
	}
	if value, there := facts.Labels[n.rules.LabelPrefix+labelNUMA]; there && len(positions) == 0 {
		positions = parseNUMA(splice(facts.Labels, n.rules.LabelPrefix+labelNUMA))
		n.numaBroken = positions == nil || value == ""
	}
	if len(positions) > 0 {
		nodes := slices.Compact(slices.Sorted(maps.Values(positions)))
		n.numaGroups = len(nodes)
		for _, name := range n.cards {
			group := -1
			if at, ok := positions[name]; ok {
				group, _ = slices.BinarySearch(nodes, at)
			}
			n.numa = append(n.numa, group)
		}
	}
	label := splice(facts.Labels, n.rules.LabelPrefix+labelLinks)
	if label == "" {
		return
	}
	links := parseLinks(label)
	n.linksBroken = links == nil
	numbered := byNumber(n.cards)
	for _, l := range links {
		if l.card >= len(numbered) || l.otherCard >= len(numbered) || l.tile >= maxTiles || l.otherTile >= maxTiles {
			continue
		}
		l.card, _ = slices.BinarySearch(n.cards, numbered[l.card])
		l.otherCard, _ = slices.BinarySearch(n.cards, numbered[l.otherCard])
		n.links = append(n.links, l)
	}
	slices.SortStableFunc(n.links, func(a, b link) int { return a.card - b.card })
}

// tiles returns how many tiles of a card can be told apart.
func (n *Node) tiles(card int) int {
	if n.schema.tiles < 0 {
		return 0
	}
	return int(min(n.capacity[n.at(card, n.schema.tiles)], maxTiles))
}

func tileMask(tiles int) uint64 {
	if tiles >= maxTiles {
		return ^uint64(0)
	}
	return 1<<tiles - 1
}

// Fetch loads the numbers of nodes that are about to be tried, nil for an unknown one. The processor then fetches them
// from memory in parallel, in a fraction of the time that one after the other takes. The result depends on everything
// loaded, so that the compiler drops none of the loads.
//
//go:noinline
func Fetch(nodes []*Node) (sum int64) {
	const line = 8 // numbers in a cache line
	for _, n := range nodes {
		if n != nil {
			sum += int64(len(n.free) + len(n.tilesUsed)) // the first and the last that is read of it itself
		}
	}
	for _, n := range nodes {
		if n == nil {
			continue
		}
		for i := 0; i < len(n.free); i += line {
			sum += n.free[i]
		}
	}
	return sum
}

// Name returns the node's name.
func (n *Node) Name() string { return n.name }

// Problem says why what the node says of its cards cannot be read; empty if it can.
func (n *Node) Problem() string { return n.problem }

// Records returns the pods on the node, in no order. The list is the node's own, not a copy.
func (n *Node) Records() []*Record { return n.records }

// own returns the cards of an inventory that the rules track, with the names of their resources without prefix. It
// returns nil if there is no inventory.
func (r *Rules) own(all []Card) []Card {
	if all == nil {
		return nil
	}
	out := []Card{}
	for _, c := range all {
		has := make(Quantities, len(c.Has))
		for name, q := range c.Has {
			if short, ok := r.Resource(name); ok {
				has[short] = q
			} else if _, full := has[name]; !full && !strings.Contains(name, "/") {
				has[name] = q
			}
		}
		if len(has) > 0 || len(c.Has) == 0 {
			c.Has = has
			out = append(out, c)
		}
	}
	return out
}
