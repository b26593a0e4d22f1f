package accel

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFunctionSettings: what makes virtual functions is set before the definition's own settings, in this order.
func TestFunctionSettings(t *testing.T) {
	names := func(def *Definition) (all []string) {
		for _, s := range def.AllSettings() {
			all = append(all, s.Name+"="+string(s.Value))
		}
		return all
	}
	on, own := true, []Setting{{Name: "mode", File: "mode", Value: "x"}}
	for name, c := range map[string]struct {
		functions *Functions
		want      []string
	}{
		"none configured":  {nil, []string{"mode=x"}},
		"none at all":      {&Functions{}, []string{"functions=0", "mode=x"}},
		"four":             {&Functions{Count: 4}, []string{"functions=4", "mode=x"}},
		"four with driver": {&Functions{Count: 4, Autoprobe: &on}, []string{"functionsAutoprobe=on", "functions=4", "mode=x"}},
		"without a driver": {&Functions{Autoprobe: new(bool)}, []string{"functionsAutoprobe=off", "functions=0", "mode=x"}},
	} {
		def := &Definition{Functions: c.functions, Settings: own}
		if diff := cmp.Diff(c.want, names(def)); diff != "" || !def.Sets() {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for _, s := range def.AllSettings() {
			if _, err := s.Text(s.Value); s.OfFunctions() && err != nil {
				t.Errorf("%s: %s: %v", name, s.Name, err)
			}
		}
	}
}

func TestFunctionProblems(t *testing.T) {
	for count, want := range map[int]string{0: "", 65535: "", -1: "count: -1 is not from 0 to 65535", 65536: "count: 65536"} {
		got := strings.Join((Functions{Count: count}).Problems(), "; ")
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%d: %q", count, got)
		}
	}
	k := KindConfig{Functions: &Functions{Count: -1}}
	if got := k.Problems(); !slices.Contains(got, "functions.count: -1 is not from 0 to 65535") {
		t.Errorf("%q", got)
	}
	all := SettingProblems([]Setting{{Name: SettingFunctions, File: "x", Values: map[string]string{"a": "b"}}}, false)
	if !slices.Contains(all, `settings[0].name: "functions" is what the field functions sets`) {
		t.Errorf("%q", all)
	}
	own := Setting{Name: "x", File: "x", Values: map[string]string{"a": "b"}, Needs: SettingNeedsFunctions}
	needs := SettingProblems([]Setting{own}, false)
	if !slices.Contains(needs, `settings[0].needs: "functions" is not one of idle, reset`) {
		t.Errorf("%q", needs)
	}
}

// TestFunctionsOverride: the configuration replaces what the definition has, and a policy may not.
func TestFunctionsOverride(t *testing.T) {
	def := &Definition{Functions: &Functions{Count: 2}}
	applied, misfit := KindConfig{Functions: &Functions{Count: 4}}.Apply(def)
	if misfit != "" || applied.Functions.Count != 4 || def.Functions.Count != 2 {
		t.Errorf("%+v, %q", applied.Functions, misfit)
	}
	if applied, _ = (KindConfig{}).Apply(def); applied.Functions.Count != 2 {
		t.Errorf("%+v", applied.Functions)
	}
	for _, count := range []int{0, 4} { // none at all is a change, too
		k := KindConfig{Functions: &Functions{Count: count}}
		if why := PolicyTrustData.Override(k); !strings.Contains(why, "functions: makes virtual functions") {
			t.Errorf("%d: %q", count, why)
		}
	}
	if why := PolicyTrustData.Definition(&Definition{Functions: &Functions{}}, true); !strings.Contains(why, "functions") {
		t.Errorf("%q", why)
	}
}
