package accel

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRivalries: each function has one owner, the same one whatever the order, and kinds that come after the owner
// keep it too.
func TestRivalries(t *testing.T) {
	kind := func(name string, after []string, rows ...Match) *Definition {
		return &Definition{Kind: name, After: after, Match: rows}
	}
	class, longer := Match{Vendor: "f00d", Class: "03"}, Match{Vendor: "f00d", Class: "0302"}
	device, bound := Match{Vendor: "f00d", Device: "0001"}, Match{Vendor: "f00d", Class: "03", Driver: "npu"}
	d := PCIDevice{Address: "0000:01:00.0", Vendor: "f00d", Device: "0001", Class: "030200", Driver: "npu"}
	pci := []PCIDevice{{Address: "0000:00:01.0", Vendor: "8086", Class: "060400"}, d}
	for name, c := range map[string]struct {
		kinds []*Definition
		want  []Rivalry
	}{
		"one kind":       {[]*Definition{kind("a-x", nil, class)}, nil},
		"other devices":  {[]*Definition{kind("a-x", nil, class), kind("b-x", nil, Match{Vendor: "beef"})}, nil},
		"equal rows":     {[]*Definition{kind("b-x", nil, class), kind("a-x", nil, class)}, []Rivalry{{d.Address, "a-x", []string{"b-x"}}}},
		"a device ID":    {[]*Definition{kind("a-x", nil, bound), kind("b-x", nil, device)}, []Rivalry{{d.Address, "b-x", []string{"a-x"}}}},
		"a driver":       {[]*Definition{kind("a-x", nil, longer), kind("b-x", nil, bound)}, []Rivalry{{d.Address, "b-x", []string{"a-x"}}}},
		"a longer class": {[]*Definition{kind("a-x", nil, class), kind("b-x", nil, longer)}, []Rivalry{{d.Address, "b-x", []string{"a-x"}}}},
		"the best row": {
			[]*Definition{kind("a-x", nil, longer), kind("b-x", nil, class, device)},
			[]Rivalry{{d.Address, "b-x", []string{"a-x"}}},
		},
		"one adds to the other": {[]*Definition{kind("b-x", nil, class), kind("a-x", []string{"b-x"}, device)}, nil},
		"by way of a third": {
			[]*Definition{kind("c-x", nil, class), kind("b-x", []string{"c-x"}), kind("a-x", []string{"b-x"}, device)}, nil,
		},
		"it adds to the one that loses": {
			[]*Definition{kind("a-x", nil, device), kind("b-x", nil, class), kind("c-x", []string{"b-x"}, class)},
			[]Rivalry{{d.Address, "a-x", []string{"b-x", "c-x"}}},
		},
		"it adds to nothing": {[]*Definition{kind("a-x", []string{"z-x"}, device), kind("b-x", nil, class)}, nil},
		"each after the other": {
			[]*Definition{kind("a-x", []string{"b-x"}, class), kind("b-x", []string{"a-x"}, class)}, nil,
		},
	} {
		defs := map[string]*Definition{}
		for _, def := range c.kinds {
			defs[def.Kind] = def
		}
		got := Rivalries(defs, pci)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for kind := range defs {
			loses := len(c.want) > 0 && slices.Contains(c.want[0].Others, kind)
			if lost := Lost(kind, got); lost[d.Address] != loses || len(lost) > 1 {
				t.Errorf("%s: %s loses %v", name, kind, lost)
			}
			if p := Contested(kind, got); len(c.want) > 0 && (p == nil || p.Reason != DeviceContested ||
				!strings.Contains(p.Message, c.want[0].Owner) || !strings.Contains(p.Message, c.want[0].Others[0])) {
				t.Errorf("%s: %s is told %v", name, kind, p)
			}
		}
	}
	if Contested("z-x", []Rivalry{{d.Address, "a-x", []string{"b-x"}}}) != nil {
		t.Error("a kind that is not concerned is told")
	}
}
