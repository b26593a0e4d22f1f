package fit

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// within fails the test if f has not returned after a time that is far more than it needs.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%.100s: it does not return", what)
	}
}

// TestInventoryBounds: an annotation of a node that is too long, has too much in it or asks for numbers without end is
// refused at once, and the node takes no pod and says why.
func TestInventoryBounds(t *testing.T) {
	r := edu(t)
	many := func(n int, text func(int) string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = text(i)
		}
		return strings.Join(parts, ",")
	}
	for name, text := range map[string]string{
		"an exponent without end":      `[{"name":"c","has":{"gpu":"1E-2147483647"}}]`,
		"a large one":                  `[{"name":"c","has":{"gpu":"1e2147483647"}}]`,
		"a number with it":             `[{"name":"c","has":{"gpu":1e999999999}}]`,
		"three digits":                 `[{"name":"c","has":{"gpu":"1e100"}}]`,
		"escaped":                      `[{"name":"c","has":{"gpu":"1\u0045-2147483647"}}]`,
		"many digits":                  `[{"name":"c","has":{"gpu":"` + strings.Repeat("9", 100) + `"}}]`,
		"negative":                     `[{"name":"c","has":{"gpu":"-1"}}]`,
		"nothing":                      `[{"name":"c","has":{"gpu":null}}]`,
		"too long":                     `[{"name":"c"}]` + strings.Repeat(" ", maxInventory),
		"too many cards":               "[" + many(maxCards+1, func(i int) string { return fmt.Sprintf(`{"name":"c%d"}`, i) }) + "]",
		"too many amounts":             `[{"name":"c","has":{` + many(maxAmounts+1, func(i int) string { return fmt.Sprintf(`"r%d":"1"`, i) }) + "}}]",
		"a long name":                  `[{"name":"` + strings.Repeat("c", maxName+1) + `"}]`,
		"a name of other characters":   `[{"name":"c\u202e0"}]`,
		"a long name of a resource":    `[{"name":"c","has":{"` + strings.Repeat("r", maxName+1) + `":"1"}}]`,
		"a resource without name":      `[{"name":"c","has":{"":"1"}}]`,
		"a NUMA node that cannot be":   `[{"name":"c","numa":1000000}]`,
		"a NUMA node before the first": `[{"name":"c","numa":-1}]`,
	} {
		within(t, name, func() {
			cards, err := ParseInventory(text)
			if err == nil || len(err.Error()) > 300 {
				t.Errorf("%s: %d cards, %.400v", name, len(cards), err)
				return
			}
			n := NewNode(r, Schemas{}, Facts{Name: "n", Inventory: cards, Broken: err.Error()}, nil)
			q := NewRequest(r, NewUID("u"), "team", "p", nil, []Asked{{Name: "m", Amounts: map[string]int64{r.Prefix + "gpu": 1}}})
			got := NewSearch(r, &q).Explain(n)
			if got.Fits || got.Verdict != LabelUnclear.String() || got.Problem != err.Error() {
				t.Errorf("%s: %+v", name, got)
			}
		})
	}
	for text, want := range map[string]int64{
		`"8Gi"`: 8 << 30, `"8e9"`: 8e9, `8`: 8, `"1.5k"`: 1500, `"100m"`: 0, `"1E1"`: 10, `"18E"`: 9223372036854775807,
	} {
		cards, err := ParseInventory(`[{"name":"0000-01-00.0","has":{"gpu":` + text + `},"numa":0}]`)
		if err != nil || Floor(cards[0].Has["gpu"]) != want {
			t.Errorf("%s: %+v, %v", text, cards, err)
		}
	}
}

// spread writes a value into a label and those that continue it.
func spread(labels map[string]string, key, value string) {
	labels[key] = value[:min(60, len(value))]
	for i := 1; 60*i < len(value); i++ {
		labels[fmt.Sprint(key, i+1)] = continued + value[60*i:min(60*(i+1), len(value))]
	}
}

// TestTooManyOnOneNode: a node whose labels or resources would make tables of any size takes no pod and says why.
func TestTooManyOnOneNode(t *testing.T) {
	r := edu(t)
	numbers := func(n int) map[string]string {
		labels, all := map[string]string{}, make([]string, n)
		for i := range all {
			all[i] = fmt.Sprint(i)
		}
		spread(labels, r.LabelPrefix+labelNumbers, strings.Join(all, "."))
		return labels
	}
	resources := func(n int) map[string]int64 {
		out := map[string]int64{}
		for i := range n {
			out[fmt.Sprint(r.Prefix, "r", i)] = 1
		}
		return out
	}
	for name, c := range map[string]struct {
		facts Facts
		cards int // 0: the node takes no pod
	}{
		"many cards": {Facts{Labels: numbers(maxCards), Allocatable: resources(maxCells / maxCards)}, maxCards},
		"many resources": {
			Facts{Labels: numbers(maxCells / maxResources), Allocatable: resources(maxResources)},
			maxCells / maxResources,
		},
		"many of both":       {Facts{Labels: numbers(maxCards), Allocatable: resources(maxCells/maxCards + 1)}, 0},
		"too many cards":     {Facts{Labels: numbers(maxCards + 1), Allocatable: resources(1)}, 0},
		"too many resources": {Facts{Labels: numbers(1), Allocatable: resources(maxResources + 1)}, 0},
	} {
		n := NewNode(r, Schemas{}, c.facts, nil)
		if len(n.cards) != c.cards || (n.Problem() == "") != (c.cards > 0) ||
			(n.broken == LabelUnclear) != (c.cards == 0) {
			t.Errorf("%s: %d cards, %d resources, %q", name, len(n.cards), len(n.schema.names), n.Problem())
		}
	}
	long := map[string]string{}
	spread(long, "x", strings.Repeat("1", 60*(maxParts+2)))
	if got := splice(long, "x"); got != "" {
		t.Errorf("a label of %d parts is read: %d bytes", len(long), len(got))
	}
	s := Schemas{}
	for i := range 3 * maxSchemas {
		s.of([]string{fmt.Sprint(i)}, "")
	}
	if len(s) > maxSchemas {
		t.Errorf("%d schemas are kept", len(s))
	}
	if s = (Schemas{}); s.of([]string{strings.Repeat("r", maxSchemaNames+1)}, "") == nil || len(s) > 0 {
		t.Error("names of any length are kept")
	}
}

// largest returns an inventory of so many cards and resources, each card with as many of them as it may have.
func largest(cards, resources int) string {
	var all []string
	for c := range cards {
		var has []string
		for i := range max(1, resources/cards, min(resources, maxAmounts, maxCells/cards)) {
			has = append(has, fmt.Sprintf(`"r%d":"9"`, (c+i)%resources))
		}
		all = append(all, fmt.Sprintf(`{"name":"c%d","has":{%s}}`, c, strings.Join(has, ",")))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// TestLargestInventory: a text that is allowed card by card, of as many cards and as many resources as there may be,
// makes no table of their product.
func TestLargestInventory(t *testing.T) {
	cards, err := ParseInventory(largest(maxCards, maxResources))
	if err != nil {
		t.Fatal(err)
	}
	n := NewNode(edu(t), Schemas{}, Facts{Name: "n", Inventory: cards}, nil)
	if len(n.capacity) > maxCells || n.Problem() == "" || n.broken != LabelUnclear {
		t.Errorf("a table of %d numbers, %q", len(n.capacity), n.Problem())
	}
}

// BenchmarkLargestInventory is the cost of a change of a node's annotation that is as large as it may be, with as many
// pods as a kubelet takes by default: what one node can do to the cache of all.
func BenchmarkLargestInventory(b *testing.B) {
	r, err := Rules{Prefix: "a.example.com/", Cards: []string{"r0"}}.Complete()
	if err != nil {
		b.Fatal(err)
	}
	for _, cards := range []int{maxCells / maxResources, maxCards} {
		b.Run(fmt.Sprint(cards, " cards"), func(b *testing.B) {
			inventory, err := ParseInventory(largest(cards, maxCells/cards))
			if err != nil {
				b.Fatal(err)
			}
			var records []*Record
			for i := range 110 {
				uid := fmt.Sprint(i)
				q := NewRequest(&r, NewUID(uid), "team", uid, nil, []Asked{
					{Name: "m", Amounts: map[string]int64{r.Prefix + "r0": 1}},
					{Name: "i", When: Init, Amounts: map[string]int64{r.Prefix + "r0": 2}},
				})
				r := &Record{UID: q.UID, Shape: q.Shape}
				r.Choose(Choice{Cards: "c1", InitCards: "c1,c2"})
				records = append(records, r)
			}
			for b.Loop() {
				if n := NewNode(&r, Schemas{}, Facts{Name: "n", Inventory: inventory}, records); n.Problem() != "" {
					b.Fatal(n.Problem())
				}
			}
		})
	}
}

// TestLongLists: a pod whose list of cards is longer than any node has cards is refused everywhere, without a look at
// each card.
func TestLongLists(t *testing.T) {
	r := edu(t)
	r.Allow, r.Deny = true, true
	for _, key := range []string{r.Annotations.Allow, r.Annotations.Deny} {
		for entries, want := range map[int]Cause{maxCards: Fits, maxCards + 1: ListTooLong} {
			q := NewRequest(r, NewUID("u"), "team", "p", map[string]string{key: strings.Repeat("card9,", entries)},
				[]Asked{{Name: "m", Amounts: map[string]int64{r.Prefix + "gpu": 1}}})
			if q.Contradiction != want {
				t.Errorf("%s with %d entries: %v, want %v", key, entries, q.Contradiction, want)
			}
		}
	}
}

// FuzzInventory looks for an annotation that takes long to read, or whose node does.
func FuzzInventory(f *testing.F) {
	for _, text := range []string{
		`[{"name":"card0","has":{"memory":"8G","shares":"10"},"numa":0},{"name":"card1","has":{},"off":true}]`,
		`[{"name":"c","has":{"gpu":"1E-2147483647"}}]`, `[{"name":"c","has":{"gpu":1e9999}}]`, `[{"name":"c","numa":7}]`,
		`[]`, `null`, `[{"name":"a"},{"name":"a"}]`, `[{"NAME":"a","Has":{"p/gpu":"1.5Gi","p/tiles":"64"}}]`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		within(t, text, func() {
			cards, err := ParseInventory(text)
			if err != nil {
				return
			}
			r := edu(t)
			n := NewNode(r, Schemas{}, Facts{Name: "n", Inventory: cards}, nil)
			q := NewRequest(r, NewUID("u"), "team", "p", nil,
				[]Asked{{Name: "m", Amounts: map[string]int64{r.Prefix + "gpu": 2, r.Prefix + "tiles": 3}}})
			NewSearch(r, &q).Explain(n)
		})
	})
}

func edu(t *testing.T) *Rules {
	t.Helper()
	r, err := Rules{Prefix: "a.example.com/", Cards: []string{"gpu"}, Tiles: "tiles"}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	return &r
}

// TestInventoryRefused: a node with a broken inventory takes no pod, whatever its labels say.
func TestInventoryRefused(t *testing.T) {
	r := edu(t)
	for _, text := range []string{
		`[{"name":"c","has":{"gpu":"1"}},{"name":"c","has":{"gpu":"1"}}]`, `[{"name":"","has":{"gpu":"1"}}]`,
		`[{"name":"a,b"}]`,
		`[{"name":"a|b"}]`, `[{"name":"a:b"}]`, `[{"name":"a+b"}]`, `[{`, `{}`,
	} {
		if cards, err := ParseInventory(text); err == nil {
			t.Errorf("%s: %+v", text, cards)
		}
	}
	labels := map[string]string{r.LabelPrefix + labelCards: "card0.card1"}
	q := NewRequest(r, NewUID("u"), "team", "p", nil, []Asked{{Name: "m", Amounts: map[string]int64{"a.example.com/gpu": 1}}})
	for broken, want := range map[string]Cause{"it is broken": LabelUnclear, "": Fits} {
		n := NewNode(r, Schemas{}, Facts{
			Name: "n", Labels: labels,
			Allocatable: map[string]int64{"a.example.com/gpu": 2}, Broken: broken,
		}, nil)
		if got := NewSearch(r, &q).Try(n); got != want {
			t.Errorf("broken %q: %v, want %v", broken, got, want)
		}
	}
}

// TestLinksOfNobody: links to cards and tiles that do not exist are ignored.
func TestLinksOfNobody(t *testing.T) {
	r := edu(t)
	labels := map[string]string{
		r.LabelPrefix + labelCards: "card0.card1",
		r.LabelPrefix + labelLinks: "0.0-1.0_0.1-2.0_2.0-0.1_0.64-1.0_9.0-8.0",
	}
	n := NewNode(r, Schemas{}, Facts{Name: "n", Labels: labels, Allocatable: map[string]int64{"a.example.com/gpu": 2}},
		nil)
	if len(n.links) != 1 || n.links[0] != (link{0, 0, 1, 0}) || n.linksBroken {
		t.Errorf("%+v, broken %t", n.links, n.linksBroken)
	}
}

// TestContradictions: a pod can ask for what no node can meet.
func TestContradictions(t *testing.T) {
	r := edu(t)
	two := func(n int64) []Asked {
		return []Asked{
			{Name: "a", Amounts: map[string]int64{"a.example.com/gpu": n}},
			{Name: "b", Amounts: map[string]int64{"a.example.com/gpu": n}},
		}
	}
	for _, c := range []struct {
		same, linked string
		cards        int64
		want         Cause
	}{
		{"a,b", "", 1, Fits},
		{"a,a", "", 1, SameUnclear},
		{"a,a,b", "", 1, SameUnclear},
		{"a", "", 1, SameUnclear},
		{"a,c", "", 1, SameUnclear},
		{"a,b", "", 2, SameUnclear},
		{"a,b", "yes", 2, SameAndLinked},
		{"", "yes", 1, LinkedOdd},
		{"", "yes", 3, LinkedOdd},
		{"", "yes", 2, Fits},
	} {
		annotations := map[string]string{}
		if c.same != "" {
			annotations[r.Annotations.Same] = c.same
		}
		if c.linked != "" {
			annotations[r.Annotations.Linked] = c.linked
		}
		if q := NewRequest(r, NewUID("u"), "team", "p", annotations, two(c.cards)); q.Contradiction != c.want {
			t.Errorf("%+v: %v", c, q.Contradiction)
		}
	}
}

// TestLastSteps: a search that has fewer steps left than one node may take is charged only for those that it takes.
func TestLastSteps(t *testing.T) {
	r := edu(t)
	q := NewRequest(r, NewUID("u"), "team", "p", nil, []Asked{{Name: "m", Amounts: map[string]int64{"a.example.com/gpu": 1}}})
	n := NewNode(r, Schemas{}, Facts{
		Name: "n", Labels: map[string]string{r.LabelPrefix + labelCards: "card0.card1"},
		Allocatable: map[string]int64{"a.example.com/gpu": 2},
	}, nil)
	s := NewSearch(r, &q)
	s.total = 100
	for i := range 50 {
		if record, cause := s.Place(n); record == nil {
			t.Fatalf("node %d: %v, with %d steps left", i, cause, s.total)
		}
	}
}
