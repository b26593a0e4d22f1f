package fit_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/acceld/acceld/controller/fit"
)

// The model below implements the specification independently of the package: it tries every way to give cards to
// containers, in maps by name, and checks the whole node again for each. It calls a placement a fit if:
//
//   - a container that asks for g cards gets a set of g cards that are neither disabled nor descheduled and within
//     the pod's lists. If the pod asks for it, they are all on one NUMA node, or in disjoint linked pairs with a
//     free tile at each end;
//   - the containers of the pod's list are on one card;
//   - the cards of an init container are among those of the app containers, or include them all;
//   - on every card and for every resource, the pods together use at most what the card has. A pod uses the sum of
//     its app containers and sidecars, or of an init container and the sidecars before it if that is more, each
//     with its total divided by its cards, rounded up;
//   - containers that run at the same time have no tile in common.

const random = "gpu.example.com/"

// world is one node of the model.
type world struct {
	has      map[string]map[string]int64 // card, resource
	off      map[string]bool
	tilesOff map[string]map[int]bool
	numa     map[string]int
	links    [][4]any // card, tile, card, tile
	wide     int64
	pods     map[string]*placed
}

// asks is a container in the model.
type asks struct {
	when          fit.When
	before        int // sidecars that run already when an init container starts
	cards         int
	memory, tiles int64
	wide          int64
}

// wish is a pod request in the model.
type wish struct {
	containers         []asks
	same               []int
	numa, linked       bool
	allow, deny        []string
	haveAllow, haveDny bool
}

// placed is a pod with its cards and tiles, as in its annotations.
type placed struct {
	wish  wish
	cards [][]string
	tiles []map[string][]int
}

func (a asks) per(resource string) int64 {
	total := map[string]int64{"shares": int64(a.cards), "memory": a.memory, "tiles": a.tiles}[resource]
	return (total + int64(a.cards) - 1) / int64(max(a.cards, 1))
}

// on returns what a pod uses of one resource of one card.
func (p *placed) on(card, resource string) int64 {
	return p.most(func(i int) int64 {
		if !slices.Contains(p.cards[i], card) {
			return 0
		}
		return p.wish.containers[i].per(resource)
	})
}

func (p *placed) wide() int64 { return p.most(func(i int) int64 { return p.wish.containers[i].wide }) }

// most returns the largest sum over the containers that run at the same time.
func (p *placed) most(has func(i int) int64) int64 {
	var all, most int64
	var sidecars []int64
	for i, a := range p.wish.containers {
		switch a.when {
		case fit.App:
			all += has(i)
		case fit.Sidecar:
			all += has(i)
			sidecars = append(sidecars, has(i))
		case fit.Init:
			now := has(i)
			for _, n := range sidecars[:a.before] {
				now += n
			}
			most = max(most, now)
		}
	}
	return max(all, most)
}

// overbooked names a card that is overcommitted.
func (w *world) overbooked(more ...*placed) string {
	all := append(slices.Collect(maps.Values(w.pods)), more...)
	var wide int64
	for _, p := range all {
		wide += p.wide()
	}
	if wide > w.wide {
		return "the node"
	}
	for card, has := range w.has {
		for _, resource := range []string{"shares", "memory", "tiles"} {
			var sum int64
			for _, p := range all {
				sum += p.on(card, resource)
			}
			if resource == "tiles" && sum > 0 { // unused tiles that are off are not available
				for tile := range w.tilesOff[card] {
					if int64(tile) < has["tiles"] && !w.tileUsed(card, tile, all) {
						sum++
					}
				}
			}
			if sum > has[resource] {
				return card + " in " + resource
			}
		}
	}
	return ""
}

func (w *world) tileUsed(card string, tile int, by []*placed) bool {
	return slices.ContainsFunc(by, func(p *placed) bool {
		return slices.ContainsFunc(p.tiles, func(m map[string][]int) bool { return slices.Contains(m[card], tile) })
	})
}

// sets returns all sets of n of the cards.
func sets(cards []string, n int) [][]string {
	if n == 0 {
		return [][]string{nil}
	}
	var out [][]string
	for i := range cards {
		for _, rest := range sets(cards[i+1:], n-1) {
			out = append(out, append([]string{cards[i]}, rest...))
		}
	}
	return out
}

// fits tries everything.
func (w *world) fits(q wish) bool {
	p := &placed{
		wish: q, cards: make([][]string, len(q.containers)),
		tiles: make([]map[string][]int, len(q.containers)),
	}
	return w.try(p, 0)
}

func (w *world) try(p *placed, i int) bool {
	if i == len(p.wish.containers) {
		return w.nested(p) && w.overbooked(p) == ""
	}
	a := p.wish.containers[i]
	if a.cards == 0 {
		return w.try(p, i+1)
	}
	if p.wish.linked && a.when != fit.Init {
		return w.tryLinks(p, i, nil, 0)
	}
	var usable []string
	for card := range w.has {
		if w.usable(p.wish, card) {
			usable = append(usable, card)
		}
	}
	for _, set := range sets(usable, a.cards) {
		if j := slices.Index(p.wish.same, i); j > 0 && p.cards[p.wish.same[0]][0] != set[0] {
			continue
		}
		if p.wish.numa && w.numa != nil && !w.together(set) {
			continue
		}
		p.cards[i] = set
		if w.try(p, i+1) {
			return true
		}
	}
	p.cards[i] = nil
	return false
}

func (w *world) usable(q wish, card string) bool {
	return !w.off[card] && (!q.haveAllow || slices.Contains(q.allow, card)) &&
		(!q.haveDny || !slices.Contains(q.deny, card))
}

func (w *world) together(set []string) bool {
	return !slices.ContainsFunc(set, func(c string) bool { return w.numa[c] != w.numa[set[0]] })
}

// tryLinks gives container i pairs of linked cards.
func (w *world) tryLinks(p *placed, i int, set []string, from int) bool {
	a := p.wish.containers[i]
	if len(set) == a.cards {
		if p.wish.numa && w.numa != nil && !w.together(set) {
			return false
		}
		p.cards[i] = set
		return w.try(p, i+1)
	}
	for k := from; k < len(w.links); k++ {
		l := w.links[k]
		left, right := l[0].(string), l[2].(string)
		if slices.Contains(set, left) || slices.Contains(set, right) || !w.end(p, a, left, l[1].(int)) ||
			!w.end(p, a, right, l[3].(int)) {
			continue
		}
		if p.tiles[i] == nil {
			p.tiles[i] = map[string][]int{}
		}
		if a.tiles > 0 {
			p.tiles[i][left], p.tiles[i][right] = []int{l[1].(int)}, []int{l[3].(int)}
		}
		if w.tryLinks(p, i, append(slices.Clone(set), left, right), k+1) {
			return true
		}
		delete(p.tiles[i], left)
		delete(p.tiles[i], right)
		p.cards[i] = nil
	}
	return false
}

func (w *world) end(p *placed, a asks, card string, tile int) bool {
	// a tile that does not exist cannot be off
	if !w.usable(p.wish, card) || w.tilesOff[card][tile] && int64(tile) < w.has[card]["tiles"] {
		return false
	}
	return a.tiles == 0 || int64(tile) < w.has[card]["tiles"] && !w.tileUsed(card, tile,
		append(slices.Collect(maps.Values(w.pods)), p))
}

// nested checks the cards of init containers against those of the others.
func (w *world) nested(p *placed) bool {
	apps := map[string]bool{}
	for i, a := range p.wish.containers {
		for _, c := range p.cards[i] {
			if a.when != fit.Init {
				apps[c] = true
			}
		}
	}
	for i, a := range p.wish.containers {
		if a.when != fit.Init || a.cards == 0 {
			continue
		}
		own := 0
		for _, c := range p.cards[i] {
			if apps[c] {
				own++
			}
		}
		if own != min(a.cards, len(apps)) {
			return false
		}
	}
	return true
}

// randomWorld returns a node of the model and the facts from which the package creates the same node.
func randomWorld(rng *rand.Rand) (*world, fit.Facts) {
	w := &world{
		has: map[string]map[string]int64{}, off: map[string]bool{}, tilesOff: map[string]map[int]bool{},
		pods: map[string]*placed{},
	}
	f := fit.Facts{Name: "n", Labels: map[string]string{}, Allocatable: map[string]int64{}}
	n := 1 + rng.IntN(4)
	w.wide = int64(rng.IntN(4))
	f.Allocatable[random+"node_monitoring"] = w.wide
	var numbers []string
	same := map[string]int64{"shares": 1 + rng.Int64N(4), "memory": 1 + rng.Int64N(12), "tiles": rng.Int64N(4)}
	differ := rng.IntN(2) == 0
	for i := range n {
		card := fmt.Sprintf("card%d", i)
		numbers = append(numbers, fmt.Sprint(i))
		w.has[card] = maps.Clone(same)
		if differ {
			w.has[card] = map[string]int64{
				"shares": 1 + rng.Int64N(4), "memory": 1 + rng.Int64N(12),
				"tiles": rng.Int64N(4),
			}
		}
		if rng.IntN(10) == 0 {
			w.off[card] = true
			f.Labels["telemetry.aware.scheduling.p/gas-disable-"+card] = "true"
		}
		w.tilesOff[card] = map[int]bool{}
		if rng.IntN(6) == 0 {
			w.tilesOff[card][rng.IntN(3)] = true
			for tile := range w.tilesOff[card] {
				f.Labels[fmt.Sprintf("telemetry.aware.scheduling.p/gas-tile-disable-%s_gt%d", card, tile)] = "true"
			}
		}
	}
	if differ {
		for card, has := range w.has {
			c := fit.Card{Name: card, Has: map[string]resource.Quantity{}}
			for name, amount := range has {
				c.Has[name] = *resource.NewQuantity(amount, resource.DecimalSI)
			}
			f.Inventory = append(f.Inventory, c)
		}
	} else {
		f.Labels[random+"gpu-numbers"] = strings.Join(numbers, ".")
		for name, amount := range same {
			f.Allocatable[random+name] = amount*int64(n) + rng.Int64N(int64(n))
		}
	}
	randomPlaces(rng, w, &f, n)
	return w, f
}

// randomPlaces spreads the cards over NUMA nodes and links them.
func randomPlaces(rng *rand.Rand, w *world, f *fit.Facts, n int) {
	if rng.IntN(2) == 0 {
		w.numa = map[string]int{}
		nodes := map[int][]string{}
		for i := range n {
			at := rng.IntN(2)
			w.numa[fmt.Sprintf("card%d", i)] = at
			nodes[at] = append(nodes[at], fmt.Sprint(i))
		}
		var parts []string
		for at, cards := range nodes {
			parts = append(parts, fmt.Sprintf("%d-%s", at, strings.Join(cards, ".")))
		}
		f.Labels[random+"numa-gpu-map"] = strings.Join(parts, "_")
	}
	var links []string
	for range rng.IntN(5) {
		a, b := rng.IntN(n), rng.IntN(n)
		if a == b {
			continue
		}
		ta, tb := rng.IntN(3), rng.IntN(3)
		w.links = append(w.links, [4]any{fmt.Sprintf("card%d", a), ta, fmt.Sprintf("card%d", b), tb})
		links = append(links, fmt.Sprintf("%d.%d-%d.%d", a, ta, b, tb))
	}
	if links != nil {
		f.Labels[random+"xe-links"] = strings.Join(links, "_")
	}
}

// randomWish returns a pod and its annotations.
func randomWish(rng *rand.Rand) (wish, map[string]string, []fit.Asked) {
	q, annotations := wish{}, map[string]string{}
	kind := rng.IntN(8)
	q.numa = rng.IntN(4) == 0
	sidecars := 0
	for i := range 1 + rng.IntN(3) {
		a := asks{cards: rng.IntN(4)}
		if i > 0 {
			a.when = []fit.When{fit.Init, fit.Sidecar, fit.App, fit.App, fit.App, fit.App}[rng.IntN(6)]
		}
		switch kind {
		case 0:
			q.linked = true
			a.cards = 2 * rng.IntN(3)
		case 1:
			a.cards = 1
		}
		if a.cards > 0 {
			a.memory = rng.Int64N(8)
			if rng.IntN(3) == 0 && kind != 1 {
				a.tiles = int64(a.cards)
				if !q.linked {
					a.tiles = 1 + rng.Int64N(int64(2*a.cards))
				}
			}
			if rng.IntN(8) == 0 && kind != 1 {
				a.wide = 1
			}
		}
		if a.before = sidecars; a.when == fit.Sidecar {
			sidecars++
		}
		q.containers = append(q.containers, a)
	}
	var asked []fit.Asked
	for _, a := range q.containers {
		asked = append(asked, fit.Asked{When: a.when, Amounts: map[string]int64{
			random + "shares": int64(a.cards), random + "memory": a.memory, random + "tiles": a.tiles,
			random + "node_monitoring": a.wide,
			"cpu":                      3,
		}})
	}
	order := []fit.When{fit.App, fit.Sidecar, fit.Init} // the order of the package
	slices.SortStableFunc(q.containers, func(a, b asks) int {
		return slices.Index(order, a.when) - slices.Index(order, b.when)
	})
	var names []string
	for i := range asked {
		if asked[i].Name = fmt.Sprintf("c%d", i); asked[i].When == fit.App {
			q.same = append(q.same, len(names))
			names = append(names, asked[i].Name)
		}
	}
	if kind == 1 && len(names) > 1 {
		annotations["gas-same-gpu"] = strings.Join(names, ",")
	} else {
		q.same = nil
	}
	if q.linked {
		annotations["gas-allocate-xelink"] = ""
	}
	if q.numa {
		annotations["gas-allocate-single-numa"] = ""
	}
	if q.haveAllow = rng.IntN(8) == 0; q.haveAllow {
		q.allow = []string{"card0", "card2"}
		annotations["gas-allow"] = "card0,card2"
	}
	if q.haveDny = rng.IntN(8) == 0; q.haveDny {
		q.deny = []string{"card1"}
		annotations["gas-deny"] = "card1"
	}
	return q, annotations, asked
}

// read converts a record to the model, from its annotations.
func read(q wish, r *fit.Record) *placed {
	p := &placed{
		wish: q, cards: make([][]string, len(q.containers)),
		tiles: make([]map[string][]int, len(q.containers)),
	}
	each := func(text string, from int, put func(i int, part string)) {
		if text == "" {
			return
		}
		for i, part := range strings.Split(text, "|") {
			if part != "" {
				put(from+i, part)
			}
		}
	}
	inits := slices.IndexFunc(q.containers, func(a asks) bool { return a.when != fit.App })
	cards := func(i int, part string) { p.cards[i] = strings.Split(part, ",") }
	tiles := func(i int, part string) {
		p.tiles[i] = map[string][]int{}
		for at := range strings.SplitSeq(part, ",") {
			card, list, _ := strings.Cut(at, ":")
			for tile := range strings.SplitSeq(list, "+") {
				var n int
				fmt.Sscanf(tile, "gt%d", &n)
				p.tiles[i][card] = append(p.tiles[i][card], n)
			}
		}
	}
	chosen := r.Chosen()
	each(chosen.Cards, 0, cards)
	each(chosen.Tiles, 0, tiles)
	each(chosen.InitCards, inits, cards)
	each(chosen.InitTiles, inits, tiles)
	return p
}

// right says what is wrong with a choice apart from its amounts: the number of cards and tiles, and tiles that
// another container has.
func (w *world) right(p *placed) string {
	for i, a := range p.wish.containers {
		if len(p.cards[i]) != a.cards {
			return fmt.Sprintf("container %d has cards %v", i, p.cards[i])
		}
		for j, card := range p.cards[i] {
			if !w.usable(p.wish, card) || slices.Contains(p.cards[i][:j], card) {
				return fmt.Sprintf("container %d has cards %v", i, p.cards[i])
			}
			if int64(len(p.tiles[i][card])) != a.per("tiles") {
				return fmt.Sprintf("container %d has tiles %v of %s", i, p.tiles[i][card], card)
			}
			for k, tile := range p.tiles[i][card] {
				twice := slices.Contains(p.tiles[i][card][:k], tile) ||
					slices.ContainsFunc(p.beside(i), func(j int) bool {
						return slices.Contains(p.tiles[j][card], tile)
					})
				if twice || int64(tile) >= w.has[card]["tiles"] || w.tilesOff[card][tile] ||
					w.tileUsed(card, tile, slices.Collect(maps.Values(w.pods))) {
					return fmt.Sprintf("container %d has tile %d of %s, which is not to be had", i, tile, card)
				}
			}
		}
	}
	return ""
}

// beside returns the containers before container i that run at the same time.
func (p *placed) beside(i int) []int {
	var apps, sidecars []int
	for j, a := range p.wish.containers[:i] {
		switch a.when {
		case fit.App:
			apps = append(apps, j)
		case fit.Sidecar:
			sidecars = append(sidecars, j)
		case fit.Init:
		}
	}
	if a := p.wish.containers[i]; a.when == fit.Init {
		return sidecars[:a.before]
	}
	return append(apps, sidecars...)
}

// TestModel compares the package with the model on ten thousand random workloads: nothing is ever overcommitted, and
// nothing that fits is refused.
func TestModel(t *testing.T) {
	rules, err := fit.Rules{
		Prefix: random, Cards: []string{"shares"}, Tiles: "tiles", NodeWide: []string{"*_monitoring"}, Allow: true,
		Deny: true,
	}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	workloads := 10000
	if testing.Short() {
		workloads = 2000
	}
	fitting, refused := 0, 0
	for seed := range workloads {
		rng := rand.New(rand.NewPCG(uint64(seed), 5))
		rules := rules
		if rng.IntN(4) == 0 {
			rules.Balance = "memory"
		}
		w, facts := randomWorld(rng)
		n := fit.NewNode(&rules, fit.Schemas{}, facts, nil)
		for i := range 2 + rng.IntN(8) {
			uid := fmt.Sprint(i)
			if uids := slices.Sorted(maps.Keys(w.pods)); len(uids) > 0 && rng.IntN(4) == 0 {
				gone := uids[rng.IntN(len(uids))]
				delete(w.pods, gone)
				n.Remove(fit.NewUID(gone))
			}
			if rng.IntN(5) == 0 { // a restart
				n = fit.NewNode(&rules, fit.Schemas{}, facts, n.Records())
			}
			q, annotations, asked := randomWish(rng)
			req := fit.NewRequest(&rules, fit.NewUID(uid), "ns", "p"+uid, annotations, asked)
			record, cause := fit.NewSearch(&rules, &req).Place(n)
			if want := w.fits(q); want != (record != nil) {
				t.Fatalf("seed %d: %+v on %+v: the model says %v, got %v", seed, q, w, want, cause)
			}
			if try := fit.NewSearch(&rules, &req).Try(n); try != cause {
				t.Fatalf("seed %d: filter says %v, bind says %v", seed, try, cause)
			}
			if record == nil {
				refused++
				empty := *w
				empty.pods = nil
				if cause == fit.TooMuch && empty.fits(q) || cause == fit.NoRoom && !empty.fits(q) {
					t.Fatalf("seed %d: %+v on %+v: got %v", seed, q, w, cause)
				}
				continue
			}
			fitting++
			p := read(q, record)
			if wrong := w.right(p); wrong != "" {
				t.Fatalf("seed %d: %+v got %+v: %s", seed, q, record, wrong)
			}
			w.pods[uid] = p
			if over := w.overbooked(); over != "" {
				t.Fatalf("seed %d: %+v got %+v: %s is overbooked", seed, q, record, over)
			}
			n.Add(record)
		}
	}
	t.Logf("%d workloads: %d pods placed, %d refused", workloads, fitting, refused)
	if fitting < workloads || refused < workloads {
		t.Error("the workloads are not varied enough")
	}
}
