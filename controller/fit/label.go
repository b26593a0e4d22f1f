package fit

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// continued is the prefix of a label value that continues another label's value: a value may have only 63 characters.
const continued = "Z"

// maxParts is how many labels one value may be spread over: with 62 characters each, almost 16 KiB.
const maxParts = 256

// splice joins the value of the label key with the labels that continue it: key2, key3 and so on. If a part lacks the
// prefix or there are too many, the whole value is void.
func splice(labels map[string]string, key string) string {
	var value strings.Builder
	value.WriteString(labels[key])
	for i := 2; i <= maxParts+1; i++ {
		part, ok := labels[key+strconv.Itoa(i)]
		if !ok {
			return value.String()
		}
		if part, ok = strings.CutPrefix(part, continued); !ok {
			return ""
		}
		value.WriteString(part)
	}
	return ""
}

// digits reads a decimal number without sign, of at most six digits.
func digits(s string) (int, bool) {
	if s == "" || len(s) > 6 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

func cardName(number int) string { return "card" + strconv.Itoa(number) }

// parseNumbers reads "0.1.5": card0, card1 and card5. If one part is no number, the whole value is void.
func parseNumbers(value string) []string {
	if value == "" {
		return nil
	}
	var names []string
	for part := range strings.SplitSeq(value, ".") {
		n, ok := digits(part)
		if !ok {
			return nil
		}
		names = append(names, cardName(n))
	}
	return distinct(names)
}

// parseCards reads "card0.card1", an older form than numbers.
func parseCards(value string) []string {
	return distinct(strings.FieldsFunc(value, func(c rune) bool { return c == '.' }))
}

// distinct sorts names as text and drops duplicates.
func distinct(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// parseGroups reads "0.1_2.3.4", groups of cards that share a PCI group. It returns the group of each card, from 0; nil
// if one part cannot be read.
func parseGroups(value string) map[string]int {
	groups := map[string]int{}
	for i, part := range strings.Split(value, "_") {
		cards := parseNumbers(part)
		if cards == nil {
			return nil
		}
		for _, c := range cards {
			groups[c] = i
		}
	}
	return groups
}

// parseNUMA reads "0-0.1_1-2.3", each NUMA node with its cards. It returns, for each card, the position of its NUMA
// node in the label, from 0; nil if one part cannot be read or a card is on two NUMA nodes.
func parseNUMA(value string) map[string]int {
	groups, seen := map[string]int{}, map[int]bool{}
	for i, part := range strings.Split(value, "_") {
		node, list, _ := strings.Cut(part, "-")
		n, ok := digits(node)
		cards := parseNumbers(list)
		if !ok || cards == nil || seen[n] {
			return nil
		}
		seen[n] = true
		for _, c := range cards {
			if _, twice := groups[c]; twice {
				return nil
			}
			groups[c] = i
		}
	}
	return groups
}

// link joins a tile of one card with a tile of another. As parsed, the cards are indexes into the cards sorted by
// number.
type link struct {
	card, tile           int
	otherCard, otherTile int
}

// parseLinks reads "0.0-1.0_2.1-3.2": a device and its tile, a dash, and the same for the other end. It returns nil if
// one part cannot be read.
func parseLinks(value string) []link {
	var links []link
	for part := range strings.SplitSeq(value, "_") {
		left, right, _ := strings.Cut(part, "-")
		card, tile, ok1 := parseEnd(left)
		otherCard, otherTile, ok2 := parseEnd(right)
		if !ok1 || !ok2 || card == otherCard {
			return nil
		}
		links = append(links, link{card, tile, otherCard, otherTile})
	}
	return links
}

func parseEnd(s string) (card, tile int, ok bool) {
	device, part, _ := strings.Cut(s, ".")
	card, ok1 := digits(device)
	tile, ok2 := digits(part)
	return card, tile, ok1 && ok2
}

// byNumber sorts names by the number at their end, and names with equal or no numbers as text. Links number the
// devices in this order.
func byNumber(names []string) []string {
	number := func(name string) int {
		n, ok := digits(name[len(strings.TrimRight(name, "0123456789")):])
		if !ok {
			return -1
		}
		return n
	}
	sorted := slices.Clone(names)
	slices.SortFunc(sorted, func(a, b string) int {
		return cmp.Or(cmp.Compare(number(a), number(b)), strings.Compare(a, b))
	})
	return sorted
}

// marks are the contents of telemetry labels about cards and tiles.
type marks struct {
	off       map[string]bool // cards
	group     map[string]bool // cards whose PCI group is off with them
	preferred string
	tilesOff  map[string]uint64 // by card, a bit for each tile
	tileFirst map[string]int    // by card
}

// groupWide as the value of a label extends the label to the card's PCI group.
const groupWide = "PCI_GROUP"

// readMarks reads the labels "<telemetry><name>/gas-…": cards and tiles that take no new work, and those to prefer.
func readMarks(labels map[string]string, telemetry string) marks {
	m := marks{
		off: map[string]bool{}, group: map[string]bool{}, tilesOff: map[string]uint64{},
		tileFirst: map[string]int{},
	}
	for key, value := range labels {
		space, name, ok := strings.Cut(key, "/")
		if !ok || strings.Contains(name, "/") || !strings.HasPrefix(space, telemetry) || len(space) == len(telemetry) {
			continue
		}
		if name == "gas-prefer-gpu" {
			if m.preferred == "" || value < m.preferred { // policies may disagree: pick the same one each time
				m.preferred = value
			}
			continue
		}
		if card, ok := strings.CutPrefix(name, "gas-tile-preferred-"); ok {
			if tile, ok := parseTile(value); ok {
				m.tileFirst[card] = tile
			}
			continue
		}
		for _, prefix := range []string{"gas-tile-disable-", "gas-tile-deschedule-"} {
			if at, ok := strings.CutPrefix(name, prefix); ok {
				card, tile, _ := strings.Cut(at, "_")
				if n, ok := parseTile(tile); ok {
					m.tilesOff[card] |= 1 << n
				}
			}
		}
		for _, prefix := range []string{"gas-disable-", "gas-deschedule-pods-"} {
			if card, ok := strings.CutPrefix(name, prefix); ok {
				m.off[card] = true
				m.group[card] = m.group[card] || value == groupWide
			}
		}
	}
	return m
}

// maxTiles is how many tiles of a card can be told apart: each has a bit in a uint64.
const maxTiles = 64

// parseTile reads "gt3".
func parseTile(s string) (int, bool) {
	n, ok := digits(strings.TrimPrefix(s, "gt"))
	return n, ok && strings.HasPrefix(s, "gt") && n < maxTiles
}
