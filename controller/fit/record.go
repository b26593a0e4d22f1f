package fit

import (
	"crypto/sha256"
	"encoding/hex"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unique"
)

// UID is the UID of a pod in a form that takes no more than it must: there may be more than a hundred thousand.
type UID [16]byte

// NewUID returns the form of a UID: the bytes of a UUID, as the API server makes them, and the beginning of the SHA-256
// of any other text. No text is the zero value.
func NewUID(text string) (u UID) {
	const long = 36
	if text == "" {
		return u
	}
	if len(text) == long {
		if b, err := hex.DecodeString(text[:8] + text[9:13] + text[14:18] + text[19:23] + text[24:]); err == nil {
			x := hex.EncodeToString(b)
			if text == x[:8]+"-"+x[8:12]+"-"+x[12:16]+"-"+x[16:20]+"-"+x[20:] {
				return UID(b)
			}
		}
	}
	sum := sha256.Sum256([]byte(text))
	copy(u[:], sum[:])
	return u
}

// Record is a pod that has cards.
type Record struct {
	UID       UID
	namespace unique.Handle[string]
	Name      string
	Shape     *Shape
	choice    unique.Handle[Choice] // few are different in a cluster
}

// NewRecord returns the record of a pod without cards.
func NewRecord(uid UID, namespace, name string, shape *Shape) Record {
	return Record{UID: uid, namespace: unique.Make(namespace), Name: name, Shape: shape}
}

// Namespace returns the pod's namespace.
func (r *Record) Namespace() string {
	if r.namespace == (unique.Handle[string]{}) {
		return ""
	}
	return r.namespace.Value()
}

// Choose sets what the pod has.
func (r *Record) Choose(c Choice) { r.choice = unique.Make(c) }

// Chosen returns what the pod has.
func (r *Record) Chosen() Choice {
	if r.choice == (unique.Handle[Choice]{}) {
		return Choice{}
	}
	return r.choice.Value()
}

// Choice is which cards and tiles the containers of a pod have, in the form of the annotations, so that a pod read from
// the API server and a pod that was placed a moment ago look the same.
type Choice struct {
	// Cards are the cards of each app container: "card0,card1||card2", with "|" between containers.
	Cards string
	// Tiles are the tiles of each app container: "card0:gt0+gt1,card1:gt0||card2:gt3". Empty if no container asks for
	// tiles.
	Tiles string
	// InitCards and InitTiles are the same for sidecars and init containers, in this order.
	InitCards, InitTiles string
}

// Placed reports whether any card is named.
func (c Choice) Placed() bool { return c.Cards != "" || c.InitCards != "" }

// Add adds a pod to the node. It replaces a pod with the same UID.
func (n *Node) Add(r *Record) {
	i := n.indexOf(r.UID)
	if i >= 0 {
		n.records[i] = r
	} else {
		n.records = append(n.records, r)
	}
	if i >= 0 || n.unplaced || r.unplaced() {
		n.recount()
		return
	}
	n.add(r)
}

// indexOf returns where the record of a pod is; -1 if it is not there.
func (n *Node) indexOf(uid UID) int {
	return slices.IndexFunc(n.records, func(r *Record) bool { return r.UID == uid })
}

// unplaced reports whether the pod asks for cards, and nobody chose any.
func (r *Record) unplaced() bool { return !r.Chosen().Placed() && r.Shape.Wants() }

// add counts what a pod uses.
func (n *Node) add(r *Record) {
	used := make([]int64, len(n.capacity))
	for c := range n.cards {
		for i := range n.schema.names {
			used[n.at(c, i)] = n.used(c, i)
		}
	}
	n.apply(r, used)
	n.free = n.left(used, n.tilesUsed)
	n.full = float32(n.fullness())
}

// Remove removes a pod from the node. It reports whether the pod was there.
func (n *Node) Remove(uid UID) bool {
	i := n.indexOf(uid)
	if i < 0 {
		return false
	}
	n.records = slices.Delete(n.records, i, i+1)
	n.recount()
	return true
}

// recount computes the usage from the records. Usage is never subtracted, so a removed pod leaves nothing behind.
func (n *Node) recount() {
	n.wideUsed, n.tilesUsed = n.noneUsed, n.noneTiles
	n.unplaced, n.presumed = false, nil
	if len(n.records) == 0 {
		n.free, n.full = n.empty, 0
		return
	}
	used := make([]int64, len(n.capacity))
	for _, r := range n.records {
		n.apply(r, used)
	}
	n.free = n.left(used, n.tilesUsed)
	n.full = float32(n.fullness())
	n.presume()
}

// used returns what pods use of a card in a column: what [Node.left] was given.
func (n *Node) used(card, column int) int64 {
	at := n.at(card, column)
	used := n.capacity[at] - n.free[at]
	if column == n.schema.tiles {
		used -= int64(bits.OnesCount64(n.tilesOff[card] &^ n.tilesUsed[card]))
	}
	return used
}

// left returns what is free, and after the last card the most that any card has free. A tile that is both off and used
// counts once.
func (n *Node) left(used []int64, tilesUsed []uint64) []int64 {
	free := make([]int64, len(n.capacity)+len(n.schema.names))
	for i := range n.capacity {
		free[i] = n.capacity[i] - used[i]
	}
	if n.schema.tiles >= 0 {
		for c, off := range n.tilesOff {
			free[n.at(c, n.schema.tiles)] -= int64(bits.OnesCount64(off &^ tilesUsed[c]))
		}
	}
	most := n.row(free, len(n.cards))
	for c := range n.cards {
		for i, x := range n.row(free, c) {
			if c == 0 || x > most[i] {
				most[i] = x
			}
		}
	}
	return free
}

// apply adds the usage of a pod, that of cards to used.
func (n *Node) apply(r *Record, used []int64) {
	load, taken := n.load(r)
	for i, amount := range load {
		used[i] = add(used[i], amount)
	}
	for c := range taken {
		if taken[c] != 0 {
			n.tilesUsed = own(n.tilesUsed, n.noneTiles)
			n.tilesUsed[c] |= taken[c]
		}
	}
	for _, a := range r.Shape.Wide {
		if i, ok := slices.BinarySearch(n.schema.names, a.Name); ok {
			n.wideUsed = own(n.wideUsed, n.noneUsed)
			n.wideUsed[i] = add(n.wideUsed[i], a.Count)
		}
	}
}

// own returns numbers that may be changed: a copy if they are the zeros that nodes share.
func own[T any](numbers, zeros []T) []T {
	if &numbers[0] == &zeros[0] {
		return slices.Clone(numbers)
	}
	return numbers
}

// load returns what a pod uses of each card, and its tiles. The usage is the sum over the containers that run at the
// same time, or one init container with the sidecars before it if that is more.
func (n *Node) load(r *Record) (load []int64, taken []uint64) {
	cards := n.cardsOf(r)
	load, taken = make([]int64, len(n.capacity)), n.tilesOf(r)
	for i := range r.Shape.Beside {
		n.charge(load, &r.Shape.Containers[i], cards[i])
	}
	for i, c := range r.Shape.Containers[r.Shape.Beside:] {
		if len(cards[r.Shape.Beside+i]) == 0 {
			continue
		}
		phase := make([]int64, len(load))
		for j := range r.Shape.Before[i] {
			n.charge(phase, &r.Shape.Containers[r.Shape.Apps+j], cards[r.Shape.Apps+j])
		}
		n.charge(phase, &c, cards[r.Shape.Beside+i])
		for k := range load {
			load[k] = max(load[k], phase[k])
		}
	}
	if n.schema.tiles >= 0 {
		for c := range n.cards {
			at := n.at(c, n.schema.tiles)
			load[at] = max(load[at], int64(bits.OnesCount64(taken[c])))
		}
	}
	return load, taken
}

// charge adds a container's share to each of its cards. The index -1 is a card that the node no longer has; its share
// is dropped.
func (n *Node) charge(load []int64, c *Container, cards []int) {
	part := c.PerCard
	if int64(len(cards)) != c.Cards {
		part = c.over(n.rules, int64(len(cards)))
	}
	for _, a := range part {
		i, ok := slices.BinarySearch(n.schema.names, a.Name)
		if !ok {
			continue
		}
		for _, card := range cards {
			if card >= 0 {
				load[n.at(card, i)] = add(load[n.at(card, i)], a.Count)
			}
		}
	}
}

// cardsOf returns the cards of each container of the record, as indexes. If the record names no cards for sidecars
// and init containers, they get the first of the pod's cards.
func (n *Node) cardsOf(r *Record) [][]int {
	chosen := r.Chosen()
	out := make([][]int, len(r.Shape.Containers))
	var all []int
	read := func(text string, from, to int) {
		for i, part := range strings.Split(text, "|") {
			if from+i >= to || part == "" {
				continue
			}
			for name := range strings.SplitSeq(part, ",") {
				c, ok := slices.BinarySearch(n.cards, name)
				if !ok {
					c = -1
				}
				out[from+i] = append(out[from+i], c)
				if ok && !slices.Contains(all, c) {
					all = append(all, c)
				}
			}
		}
	}
	read(chosen.Cards, 0, r.Shape.Apps)
	read(chosen.InitCards, r.Shape.Apps, len(out))
	if chosen.InitCards == "" {
		for i := r.Shape.Apps; i < len(out); i++ {
			out[i] = all[:min(int64(len(all)), r.Shape.Containers[i].Cards)]
		}
	}
	return out
}

// tilesOf returns the tiles of a record, by card.
func (n *Node) tilesOf(r *Record) []uint64 {
	taken := make([]uint64, len(n.cards))
	chosen := r.Chosen()
	if chosen.Tiles == "" && chosen.InitTiles == "" {
		return taken
	}
	for _, part := range strings.FieldsFunc(chosen.Tiles+"|"+chosen.InitTiles, func(c rune) bool {
		return c == '|' || c == ','
	}) {
		name, list, _ := strings.Cut(part, ":")
		c, ok := slices.BinarySearch(n.cards, name)
		if !ok {
			continue
		}
		for tile := range strings.SplitSeq(list, "+") {
			if t, ok := parseTile(tile); ok {
				taken[c] |= 1 << t
			}
		}
	}
	return taken
}

// format writes what text says of each card that containers have; empty if it says nothing of any.
func format(containers [][]int, text func(container, i int) string) string {
	some := false
	out := make([]string, len(containers))
	for container, cards := range containers {
		var list []string
		for i := range cards {
			if one := text(container, i); one != "" {
				list, some = append(list, one), true
			}
		}
		out[container] = strings.Join(list, ",")
	}
	if !some {
		return ""
	}
	return strings.Join(out, "|")
}

// formatCards formats the cards of some containers.
func (n *Node) formatCards(containers [][]int) string {
	return format(containers, func(container, i int) string { return n.cards[containers[container][i]] })
}

// formatTiles formats the tiles of some containers.
func (n *Node) formatTiles(containers [][]int, tiles [][]uint64) string {
	return format(containers, func(container, i int) string {
		var list []string
		for left := tiles[container][i]; left != 0; left &= left - 1 {
			list = append(list, "gt"+strconv.Itoa(bits.TrailingZeros64(left)))
		}
		if list == nil {
			return ""
		}
		return n.cards[containers[container][i]] + ":" + strings.Join(list, "+")
	})
}
