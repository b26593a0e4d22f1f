package accel

import "testing"

func TestInBranch(t *testing.T) {
	for _, c := range []struct {
		version, branch string
		want            bool
	}{
		{"535.309.01", "535", true},
		{"535.309.01", "535.309", true},
		{"535", "535", true},
		{"5350.1", "535", false},
		{"535.309.01", "535.30", false},
		{"535", "535.309", false},
		{"535.309.01", "", false},
		{"", "535", false},
	} {
		if got := InBranch(c.version, c.branch); got != c.want {
			t.Errorf("%q is in %q: %v", c.version, c.branch, got)
		}
	}
}

func TestBranchProblems(t *testing.T) {
	for branch, good := range map[string]bool{
		"": true, "535": true, "1.2": true, "6.10.5": true,
		"535.": false, ".5": false, "v5": false, "5-1": false, "5\t": false, "535*": false, "9999999999": false,
	} {
		got := KindConfig{Driver: KindDriverOverride{Branch: branch}}.Problems()
		if good != (len(got) == 0) {
			t.Errorf("%q: %v", branch, got)
		}
	}
	if got := BranchProblems("535", "535.1"); len(got) != 1 {
		t.Errorf("both: %v", got)
	}
}

// TestBranchOverrides: what the configuration says of one replaces both.
func TestBranchOverrides(t *testing.T) {
	for _, c := range []struct{ def, kind, want [2]string }{
		{[2]string{"1.0", ""}, [2]string{"", "2"}, [2]string{"", "2"}},
		{[2]string{"", "1"}, [2]string{"2.0", ""}, [2]string{"2.0", ""}},
		{[2]string{"", "1"}, [2]string{"", ""}, [2]string{"", "1"}},
	} {
		def := &Definition{Driver: DriverDefinition{Version: c.def[0], Branch: c.def[1]}}
		got, misfit := KindConfig{Driver: KindDriverOverride{Version: c.kind[0], Branch: c.kind[1]}}.Apply(def)
		if misfit != "" || got.Driver.Version != c.want[0] || got.Driver.Branch != c.want[1] {
			t.Errorf("%v: %+v %s", c, got.Driver, misfit)
		}
	}
}
