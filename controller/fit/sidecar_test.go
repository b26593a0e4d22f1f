package fit_test

import (
	"testing"

	"github.com/acceld/acceld/controller/fit"
)

// TestSidecars: an init container shares a card with the sidecars that were started before it, which already run, and
// with no other containers. It gets neither their memory nor their tiles.
func TestSidecars(t *testing.T) {
	rules, err := fit.Rules{Prefix: random, Cards: []string{"shares"}, Tiles: "tiles"}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	asks := func(when fit.When, memory, tiles int64) fit.Asked {
		return fit.Asked{When: when, Amounts: map[string]int64{
			random + "shares": 1, random + "memory": memory,
			random + "tiles": tiles,
		}}
	}
	for _, c := range []struct {
		name             string
		containers       []fit.Asked
		cards, initCards string // of one card with 8 of memory and two tiles
		initTiles        string
		cause            fit.Cause
	}{
		{
			"a sidecar that runs",
			[]fit.Asked{asks(fit.Sidecar, 5, 0), asks(fit.Init, 4, 0), asks(fit.App, 2, 0)},
			"", "",
			"", fit.TooMuch,
		},
		{"a sidecar that runs leaves just enough", []fit.Asked{
			asks(fit.Sidecar, 5, 0), asks(fit.Init, 3, 0),
			asks(fit.App, 2, 0),
		}, "card0", "card0|card0", "", fit.Fits},
		{
			"a sidecar to come",
			[]fit.Asked{asks(fit.Init, 8, 0), asks(fit.Sidecar, 5, 0), asks(fit.App, 2, 0)},
			"card0",
			"card0|card0", "", fit.Fits,
		},
		{"one that runs, one to come", []fit.Asked{
			asks(fit.Sidecar, 3, 0), asks(fit.Init, 5, 0),
			asks(fit.Sidecar, 4, 0), asks(fit.App, 1, 0),
		}, "card0", "card0|card0|card0", "", fit.Fits},
		{
			"two that run",
			[]fit.Asked{asks(fit.Sidecar, 3, 0), asks(fit.Sidecar, 4, 0), asks(fit.Init, 2, 0)},
			"", "",
			"", fit.TooMuch,
		},
		{
			"the tile of a sidecar that runs",
			[]fit.Asked{asks(fit.Sidecar, 1, 1), asks(fit.Init, 1, 1)},
			"",
			"card0|card0", "card0:gt0|card0:gt1", fit.Fits,
		},
		{
			"the tile of a sidecar to come",
			[]fit.Asked{asks(fit.Init, 1, 1), asks(fit.Sidecar, 1, 1)},
			"", "card0|card0",
			"card0:gt0|card0:gt0", fit.Fits,
		},
		{"the tile of an app container", []fit.Asked{
			asks(fit.Sidecar, 1, 1), asks(fit.Init, 1, 1),
			asks(fit.App, 1, 1),
		}, "card0", "card0|card0", "card0:gt1|card0:gt0", fit.Fits},
		{
			"more tiles than a sidecar leaves",
			[]fit.Asked{asks(fit.Sidecar, 1, 1), asks(fit.Init, 1, 2)},
			"", "", "",
			fit.TooMuch,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cards, err := fit.ParseInventory(`[{"name":"card0","has":{"shares":"9","memory":"8","tiles":"2"}}]`)
			if err != nil {
				t.Fatal(err)
			}
			n := fit.NewNode(&rules, fit.Schemas{}, fit.Facts{Name: "n", Inventory: cards}, nil)
			q := fit.NewRequest(&rules, fit.NewUID("u"), "team", "p", nil, c.containers)
			if cause := fit.NewSearch(&rules, &q).Try(n); cause != c.cause {
				t.Errorf("filter says %v, want %v", cause, c.cause)
			}
			record, cause := fit.NewSearch(&rules, &q).Place(n)
			if (record != nil) != (c.cause == fit.Fits) || cause != c.cause {
				t.Fatalf("bind says %v, want %v: %+v", cause, c.cause, record)
			}
			want := fit.Choice{Cards: c.cards, InitCards: c.initCards, InitTiles: c.initTiles}
			if record != nil {
				got := record.Chosen()
				if got.Tiles = ""; got != want {
					t.Errorf("%+v", record.Chosen())
				}
			}
		})
	}
}
