package accel

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCardName(t *testing.T) {
	for id, want := range map[string]string{
		"0000:01:00.0":         "0000-01-00.0",
		"0000:01:00.0-half-p0": "0000-01-00.0-half-p0", "a,b|c+d/e": "a-b-c-d-e",
	} {
		if got := CardName(id); got != want {
			t.Errorf("%q is card %q, want %q", id, got, want)
		}
	}
}

// TestCapacityOverride: configured amounts take precedence over the definition's, but do not change how claims share
// them.
func TestCapacityOverride(t *testing.T) {
	share := &Share{Default: "1Gi"}
	def := &Definition{Capacity: []Capacity{
		{Name: "memory", File: "memory", Scale: 2, Share: share},
		{Name: "engines", Value: "2"},
	}}
	k := KindConfig{Capacity: map[string]string{"memory": "8Gi", "slots": "4"}}
	got, misfit := k.Apply(def)
	if misfit != "" {
		t.Fatal(misfit)
	}
	want := []Capacity{
		{Name: "memory", Value: "8Gi", Share: share},
		{Name: "engines", Value: "2"},
		{Name: "slots", Value: "4"},
	}
	if diff := cmp.Diff(want, got.Capacity); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if def.Capacity[0].File == "" || len(k.Problems()) > 0 {
		t.Errorf("the definition is %+v, problems %v", def.Capacity, k.Problems())
	}
	many := KindConfig{Capacity: map[string]string{}}
	for _, r := range "abcdefghijklmnopq" {
		many.Capacity[string(r)] = "1"
	}
	for want, bad := range map[string]KindConfig{
		`capacity: the name "a.b"`: {Capacity: map[string]string{"a.b": "1"}},
		"capacity.memory: ":        {Capacity: map[string]string{"memory": "much"}}, "capacity: there are more": many,
		"capacity.digits: ":   {Capacity: map[string]string{"digits": strings.Repeat("9", 19)}},
		"capacity.fraction: ": {Capacity: map[string]string{"fraction": "1." + strings.Repeat("0", 1<<20)}},
	} {
		if got := bad.Problems(); len(got) != 1 || !strings.HasPrefix(got[0], want) || len(got[0]) > 200 {
			t.Errorf("%v, want %q", got, want)
		}
	}
}

func TestValidationProblems(t *testing.T) {
	good := func() PolicySpec {
		return PolicySpec{
			Kinds: map[string]KindConfig{"a-a": {}},
			Validation: &Validation{
				Workloads: map[string]Workload{"a-a": {Image: "i", Resource: "example.com/a"}},
				Timeout:   "5m",
			},
		}
	}
	if got := good().Problems(); len(got) > 0 {
		t.Errorf("%v", got)
	}
	for want, change := range map[string]func(*PolicySpec){
		"validation.workloads.a-a: the policy does not hold": func(s *PolicySpec) { s.Kinds = nil },
		"validation.workloads.a-a.image: ": func(s *PolicySpec) {
			s.Validation.Workloads["a-a"] = Workload{Resource: "example.com/a"}
		},
		"validation.workloads.a-a.resource: ": func(s *PolicySpec) {
			s.Validation.Workloads["a-a"] = Workload{Image: "i", Resource: "a"}
		},
		"validation.timeout: ": func(s *PolicySpec) { s.Validation.Timeout = "1ms" },
	} {
		s := good()
		change(&s)
		if got := s.Problems(); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%v, want %q", got, want)
		}
	}
}
