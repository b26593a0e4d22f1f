package fit_test

import (
	"testing"

	"github.com/acceld/acceld/controller/fit"
)

// TestInventoryNames: amounts have full names or names without the prefix. A card with only other prefixes is
// ignored, and no pod fits on one without amounts.
func TestInventoryNames(t *testing.T) {
	rules, err := fit.Rules{Prefix: "a.example.com/", Cards: []string{"gpu"}}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, cards string
		want        string // the card that a pod gets; empty: none
		cause       fit.Cause
	}{
		{"full names", `[{"name":"c","has":{"a.example.com/gpu":"1","a.example.com/memory":"8G"}}]`, "c", fit.Fits},
		{"without prefix", `[{"name":"c","has":{"gpu":"1","memory":"8G"}}]`, "c", fit.Fits},
		{
			"the full name goes before the other one",
			`[{"name":"c","has":{"gpu":"1","memory":"1","a.example.com/memory":"8G"}}]`, "c", fit.Fits,
		},
		{
			"another prefix", `[{"name":"b","has":{"b.example.com/gpu":"1","b.example.com/memory":"8G"}}]`, "",
			fit.NoCards,
		},
		{
			"one of each",
			`[{"name":"b","has":{"b.example.com/gpu":"1","b.example.com/memory":"9G"}},{"name":"c","has":{"a.example.com/gpu":"1","a.example.com/memory":"8G"}}]`,
			"c", fit.Fits,
		},
		{"nothing", `[{"name":"c","has":{}}]`, "", fit.TooMuch},
	} {
		t.Run(c.name, func(t *testing.T) {
			cards, err := fit.ParseInventory(c.cards)
			if err != nil {
				t.Fatal(err)
			}
			n := fit.NewNode(&rules, fit.Schemas{}, fit.Facts{Name: "n", Inventory: cards}, nil)
			q := fit.NewRequest(&rules, fit.NewUID("u"), "team", "p", nil,
				[]fit.Asked{{Name: "m", Amounts: map[string]int64{
					"a.example.com/gpu":    1,
					"a.example.com/memory": 5e9,
				}}})
			record, cause := fit.NewSearch(&rules, &q).Place(n)
			got := ""
			if record != nil {
				got = record.Chosen().Cards
			}
			if got != c.want || cause != c.cause && c.want == "" {
				t.Errorf("card %q, %v", got, cause)
			}
		})
	}
}
