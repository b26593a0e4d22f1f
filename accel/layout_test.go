package accel

import (
	"maps"
	"strings"
	"testing"
)

func TestLayoutOf(t *testing.T) {
	rows := []Layout{
		{Devices: []string{"0000:01:00.0", "0000:02:00.0"}, Parts: map[string]int{"1g.10gb+me": 1, "2g": 0}},
		{Parts: map[string]int{}},
	}
	def := &Definition{Kind: "example-npu", Partitions: &Partitions{Told: true, Layout: rows}}
	for id, want := range map[string]map[string]int{"0000:02:00.0": {"1g.10gb-me": 1}, "0000:03:00.0": {}} {
		if got, declared := def.LayoutOf(id); !declared || !maps.Equal(got, want) {
			t.Errorf("%s: %v, %t; want %v", id, got, declared, want)
		}
	}
	def.Partitions.Layout = rows[:1]
	if got, declared := def.LayoutOf("0000:03:00.0"); declared {
		t.Errorf("a device that no row names: %v", got)
	}
	if _, declared := (&Definition{}).LayoutOf("0000:01:00.0"); declared {
		t.Error("a kind without partitions has a layout")
	}
}

func TestLayoutOverride(t *testing.T) {
	k := KindConfig{Layout: []Layout{{Parts: map[string]int{"half": 2}}}}
	def := &Definition{Kind: "example-npu", Partitions: &Partitions{Told: true}}
	applied, misfit := k.Apply(def)
	if misfit != "" || len(applied.Partitions.Layout) != 1 || len(def.Partitions.Layout) != 0 {
		t.Errorf("%q, applied %+v, before %+v", misfit, applied.Partitions, def.Partitions)
	}
	if _, misfit := k.Apply(&Definition{Kind: "example-npu"}); !strings.HasPrefix(misfit, "layout: ") {
		t.Errorf("a kind that cannot be divided: %q", misfit)
	}
	if p := (KindConfig{Layout: []Layout{{}, {}}}).Problems(); len(p) != 1 ||
		!strings.HasPrefix(p[0], "layout[0].devices: is missing") {
		t.Errorf("problems: %q", p)
	}
}
