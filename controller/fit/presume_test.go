package fit

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// twoOf returns a node with cards of 8 units of memory each, and a function that asks which cards a pod gets on it.
func twoOf(t *testing.T, r *Rules, labels map[string]string, names ...string) (*Node, func(memory int64) string) {
	t.Helper()
	var cards []Card
	for _, name := range names {
		cards = append(cards, Card{Name: name, Has: Quantities{
			"gpu": resource.MustParse("10"), "memory": resource.MustParse("8"),
		}})
	}
	n := NewNode(r, Schemas{}, Facts{Name: "n", Labels: labels, Inventory: cards}, nil)
	return n, func(memory int64) string {
		q := NewRequest(r, NewUID("asks"), "team", "asks", nil, askedFor(memory))
		record, cause := NewSearch(r, &q).Place(n)
		if record == nil {
			return cause.String()
		}
		return record.Chosen().Cards
	}
}

func askedFor(memory int64) []Asked {
	return []Asked{{Name: "m", Amounts: map[string]int64{"a.example.com/gpu": 1, "a.example.com/memory": memory}}}
}

func podOn(r *Rules, name, cards string, memory int64) *Record {
	record := NewRecord(NewUID(name), "team", name, NewShape(r, askedFor(memory)))
	p := &record
	p.Choose(Choice{Cards: cards})
	return p
}

// TestPresumed: a pod for which nobody chose cards is counted on one that has room after all others, in whatever order
// they become known, and no longer once it is gone.
func TestPresumed(t *testing.T) {
	r := edu(t)
	old, first, second := podOn(r, "old", "", 5), podOn(r, "first", "card0", 5), podOn(r, "second", "card1", 2)
	for _, order := range [][]*Record{{old, first, second}, {first, second, old}, {second, old, first}} {
		n, ask := twoOf(t, r, nil, "card0", "card1")
		for _, p := range order {
			n.Add(p)
		}
		if got := ask(3); got != "card0" {
			t.Errorf("3 units: %q, and card1 has 5 of the old pod and 2 of another", got)
		}
		if got := ask(4); got != NoRoom.String() {
			t.Errorf("4 units: %q", got)
		}
		presumed := map[string]bool{}
		for _, h := range slices.Concat(n.holders()...) {
			presumed[h.Pod] = h.Presumed
		}
		if want := map[string]bool{"team/old": true, "team/first": false, "team/second": false}; !maps.Equal(presumed, want) {
			t.Errorf("presumed: %v", presumed)
		}
		n.Remove(NewUID("old"))
		if got := ask(6); got != "card1" {
			t.Errorf("after it is gone, 6 units: %q", got)
		}
	}
}

// TestPresumedWithoutRoom: pods that have room nowhere take nothing from others.
func TestPresumedWithoutRoom(t *testing.T) {
	r := edu(t)
	n, ask := twoOf(t, r, nil, "card0")
	n.Add(podOn(r, "old", "", 9))
	if got := ask(8); got != "card0" {
		t.Errorf("%q", got)
	}
}

// TestPreferredCardIsFull: a card that comes first leaves the others in their order, so that they fill one by one.
func TestPreferredCardIsFull(t *testing.T) {
	r := edu(t)
	n, ask := twoOf(t, r, map[string]string{"telemetry.aware.scheduling.p/gas-prefer-gpu": "card2"}, "card0", "card1",
		"card2", "card3")
	if got := ask(5); got != "card2" {
		t.Errorf("it has room: %q", got)
	}
	n.Add(podOn(r, "x", "card2", 5))
	if got := ask(5); got != "card0" {
		t.Errorf("it is full: %q", got)
	}
}

// TestOthers: cards of several prefixes are told apart by the full names of their resources.
func TestOthers(t *testing.T) {
	r, err := Rules{
		Prefix: "a.example.com/", Others: []string{"b.example.com/"}, Cards: []string{"gpu", "b.example.com/npu"},
	}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	cards, err := ParseInventory(`[{"name":"a0","has":{"a.example.com/gpu":"1","a.example.com/memory":"8"}},
		{"name":"b0","has":{"b.example.com/npu":"2","b.example.com/memory":"4"}},{"name":"c0","has":{"c.example.com/x":"1"}}]`)
	if err != nil {
		t.Fatal(err)
	}
	n := NewNode(&r, Schemas{}, Facts{Name: "n", Inventory: cards}, nil)
	labelled := NewNode(&r, Schemas{}, Facts{
		Name: "n", Labels: map[string]string{r.LabelPrefix + labelCards: "card0"},
		Allocatable: map[string]int64{"a.example.com/gpu": 1, "b.example.com/npu": 1},
	}, nil)
	for _, c := range []struct {
		on      *Node
		amounts map[string]int64
		want    string
	}{
		{n, map[string]int64{"a.example.com/gpu": 1, "a.example.com/memory": 8}, "a0"},
		{n, map[string]int64{"b.example.com/npu": 1, "b.example.com/memory": 4}, "b0"},
		{n, map[string]int64{"b.example.com/npu": 1, "b.example.com/memory": 5}, TooMuch.String()},
		{n, map[string]int64{"a.example.com/gpu": 1, "b.example.com/npu": 1}, TooMuch.String()},
		{labelled, map[string]int64{"a.example.com/gpu": 1}, "card0"},
		{labelled, map[string]int64{"b.example.com/npu": 1}, TooMuch.String()},
	} {
		q := NewRequest(&r, NewUID("u"), "team", "p", nil, []Asked{{Name: "m", Amounts: c.amounts}})
		record, cause := NewSearch(&r, &q).Place(c.on)
		got := cause.String()
		if record != nil {
			got = record.Chosen().Cards
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.amounts, got, c.want)
		}
	}
	for _, bad := range []Rules{
		{Prefix: "a/", Others: []string{"b"}, Cards: []string{"x"}},
		{Prefix: "a/", Others: []string{"a/"}, Cards: []string{"x"}},
		{Prefix: "a/", Others: []string{"b/"}, Cards: []string{"c/x"}},
		{Prefix: "a/b/", Cards: []string{"x"}},
	} {
		if _, err := bad.Complete(); err == nil {
			t.Errorf("%+v has no fault", bad)
		}
	}
}
