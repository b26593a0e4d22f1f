package fit

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestQuantities(t *testing.T) {
	for text, want := range map[string][2]int64{
		"5G": {5e9, 5e9}, "1500m": {2, 1}, "1m": {1, 0}, "0": {0, 0}, "-3": {0, 0},
		"1e30":                {math.MaxInt64, math.MaxInt64},
		"9223372036854775807": {math.MaxInt64, math.MaxInt64}, "8Gi": {8 << 30, 8 << 30}, "2000m": {2, 2},
		"-1e30": {0, 0},
	} {
		q := resource.MustParse(text)
		if got := [2]int64{Ceil(q), Floor(q)}; got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	const key = "p/gpu-numbers"
	for _, c := range []struct {
		name   string
		labels map[string]string
		want   []string
	}{
		{"none", nil, nil},
		{"one", map[string]string{key: "0"}, []string{"card0"}},
		{"text order", map[string]string{key: "2.10.1"}, []string{"card1", "card10", "card2"}},
		{"twice", map[string]string{key: "1.1"}, []string{"card1"}},
		{
			"continued",
			map[string]string{key: "0.1", key + "2": "Z.5", key + "3": "Z.8"},
			[]string{"card0", "card1", "card5", "card8"},
		},
		{"continued within a number", map[string]string{key: "0.1", key + "2": "Z2"}, []string{"card0", "card12"}},
		{"a part without its lead-in", map[string]string{key: "0.1", key + "2": ".5"}, nil},
		{"a gap ends it", map[string]string{key: "0.1", key + "3": "Z.5"}, []string{"card0", "card1"}},
		{"no number", map[string]string{key: "0.x"}, nil},
		{"empty part", map[string]string{key: "0."}, nil},
		{"a sign", map[string]string{key: "-1.+2"}, nil},
		{"huge", map[string]string{key: "99999999999999999999"}, nil},
	} {
		if diff := cmp.Diff(c.want, parseNumbers(splice(c.labels, key))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestGroupsAndNUMA(t *testing.T) {
	for value, want := range map[string]map[string]int{
		"0.1_2.3.4": {"card0": 0, "card1": 0, "card2": 1, "card3": 1, "card4": 1}, "7": {"card7": 0}, "": nil,
		"0_": nil, "0-1": nil,
	} {
		if got := parseGroups(value); !cmp.Equal(want, got) {
			t.Errorf("group %q: got %v", value, got)
		}
	}
	for value, want := range map[string]map[string]int{
		"0-0.1_1-2.3": {"card0": 0, "card1": 0, "card2": 1, "card3": 1}, "1-0_0-1": {"card0": 0, "card1": 1},
		"0-0.1_1": nil, "": nil, "0-": nil, "-0": nil, "0-0_0-1": nil, "0-0_1-0": nil, "x-0": nil, "0-0-1": nil,
	} {
		if got := parseNUMA(value); !cmp.Equal(want, got) {
			t.Errorf("NUMA %q: got %v", value, got)
		}
	}
}

func TestLinks(t *testing.T) {
	for value, want := range map[string][]link{
		"0.0-1.0_2.1-3.2": {{0, 0, 1, 0}, {2, 1, 3, 2}}, "": nil, "0.0": nil, "0-1": nil, "0.0-0.1": nil,
		"0.0-1.0_": nil, "a.0-1.0": nil,
	} {
		if got := parseLinks(value); !cmp.Equal(want, got, cmp.AllowUnexported(link{})) {
			t.Errorf("%q: got %v", value, got)
		}
	}
	if diff := cmp.Diff([]string{"card2", "card10", "renderA9999999"},
		byNumber([]string{"card10", "card2", "renderA9999999"})); diff == "" {
		t.Error("a number of seven digits is no number")
	}
	if diff := cmp.Diff([]string{"card1", "card2", "card10"},
		byNumber([]string{"card1", "card10", "card2"})); diff != "" {
		t.Error(diff)
	}
}

func TestMarks(t *testing.T) {
	m := readMarks(map[string]string{
		"tele.a/gas-disable-card0": "true", "tele.a/gas-deschedule-pods-card1": "PCI_GROUP",
		"tele.b/gas-prefer-gpu": "card3",
		"tele.c/gas-prefer-gpu": "card2", "tele.a/gas-tile-disable-card0_gt1": "x",
		"tele.a/gas-tile-deschedule-card0_gt3": "x",
		"tele.a/gas-tile-preferred-card0":      "gt2", "tele.a/gas-tile-disable-card0_gt64": "x",
		"tele.a/gas-tile-disable-card0": "x",
		"tele./gas-disable-card7":       "true", "other/gas-disable-card8": "true",
		"tele.a/b/gas-disable-card9": "true",
	}, "tele.")
	want := marks{
		off: map[string]bool{"card0": true, "card1": true}, group: map[string]bool{"card0": false, "card1": true},
		preferred: "card2",
		tilesOff:  map[string]uint64{"card0": 1<<1 | 1<<3}, tileFirst: map[string]int{"card0": 2},
	}
	if diff := cmp.Diff(want, m, cmp.AllowUnexported(marks{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzLabels looks for a label or annotation that makes a node or a search fail, and for a record that does not
// round-trip.
func FuzzLabels(f *testing.F) {
	f.Add("0.1", "Z.5", "0.1_5", "0-0.1_1-5", "0.0-1.0", "card0,card1|card5", "card0:gt0+gt1|", int64(4))
	f.Add("0..1", "5", "_", "0-", "9.9-9.8", "|,|", ":gt", int64(-1))
	f.Add("10.2.1", "Z", "10.2", "7-10.2_0-1", "0.63-1.64", "card10", "card2:gt63", int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, numbers, more, groups, numa, links, cards, tiles string, amount int64) {
		r, err := Rules{Prefix: "p/", Cards: []string{"a"}, Tiles: "t"}.Complete()
		if err != nil {
			t.Fatal(err)
		}
		amount = max(amount, 0)
		n := NewNode(&r, Schemas{}, Facts{
			Name: "n", Allocatable: map[string]int64{"p/a": amount, "p/t": amount},
			Labels: map[string]string{
				"p/gpu-numbers": numbers, "p/gpu-numbers2": more, "p/pci-groups": groups, "p/numa-gpu-map": numa,
				"p/xe-links":                        links,
				r.Telemetry + "x/gas-disable-card1": "PCI_GROUP",
			},
		}, nil)
		asked := []Asked{
			{"c0", App, map[string]int64{"p/a": 2, "p/t": 2}},
			{"c1", Init, map[string]int64{"p/a": 1, "p/t": amount}},
		}
		record := &Record{UID: NewUID("x"), Shape: NewShape(&r, asked)}
		record.Choose(Choice{Cards: cards, Tiles: tiles})
		n.Add(record)
		for _, annotations := range []map[string]string{
			{},
			{r.Annotations.Linked: ""},
			{r.Annotations.SingleNUMA: ""},
			{r.Annotations.Same: cards},
		} {
			q := NewRequest(&r, NewUID("u"), "ns", "p", annotations, asked)
			s := NewSearch(&r, &q)
			record, cause := s.Place(n)
			if (record != nil) != (cause == Fits) || (cause == Fits) != (s.Try(n) == Fits) {
				t.Fatalf("place says %v, try says %v", cause, s.Try(n))
			}
			s.Explain(n)
			if record == nil {
				continue
			}
			n.Add(record)
			for i, free := range n.free[:len(n.capacity)] {
				if free < 0 && n.used(i/len(n.schema.names), i%len(n.schema.names)) > 0 && !strings.Contains(cards, "card") {
					t.Fatalf("column %d of %v is overbooked", i, n.cards)
				}
			}
			n.Remove(NewUID("u"))
		}
	})
}
