package fit

import (
	"testing"
)

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
	q := NewRequest(r, "u", "team", "p", nil, []Asked{{Name: "m", Amounts: map[string]int64{"a.example.com/gpu": 1}}})
	for broken, want := range map[bool]Cause{true: LabelUnclear, false: Fits} {
		n := NewNode(r, Schemas{}, Facts{
			Name: "n", Labels: labels,
			Allocatable: map[string]int64{"a.example.com/gpu": 2}, Broken: broken,
		}, nil)
		if got := NewSearch(r, &q).Try(n); got != want {
			t.Errorf("broken %t: %v, want %v", broken, got, want)
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
		if q := NewRequest(r, "u", "team", "p", annotations, two(c.cards)); q.Contradiction != c.want {
			t.Errorf("%+v: %v", c, q.Contradiction)
		}
	}
}

// TestLastSteps: a search that has fewer steps left than one node may take is charged only for those that it takes.
func TestLastSteps(t *testing.T) {
	r := edu(t)
	q := NewRequest(r, "u", "team", "p", nil, []Asked{{Name: "m", Amounts: map[string]int64{"a.example.com/gpu": 1}}})
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
