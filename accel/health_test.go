package accel

import "testing"

func TestWorse(t *testing.T) {
	states := append([]HealthState{""}, HealthStates()...)
	for i, s := range states {
		for j, o := range states {
			if s.Worse(o) != (i > j) {
				t.Errorf("%q worse than %q: %v", s, o, s.Worse(o))
			}
			a, b := Health{State: s, Action: ActionService}, Health{State: o}
			if a.Worse(b) != (i >= j) || b.Worse(a) != (j > i) {
				t.Errorf("%+v and %+v", a, b)
			}
		}
	}
}

func TestPermissions(t *testing.T) {
	for want, sources := range map[string][]NodeSource{
		"rw":   {{}},
		"r":    {{Permissions: "r"}, {}},
		"rwm":  {{Permissions: "mr"}, {Permissions: "w"}, {Permissions: "rm"}},
		"xrwm": {{Permissions: "rwm"}, {Permissions: "x"}}, // for validation to find
	} {
		if got := Permissions(sources); got != want {
			t.Errorf("%+v together are %q, want %q", sources, got, want)
		}
	}
}
