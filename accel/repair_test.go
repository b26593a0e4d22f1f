package accel

import (
	"strings"
	"testing"
	"time"
)

func TestRepairProblems(t *testing.T) {
	for want, r := range map[string]Repair{
		"":                           {},
		" ":                          {Reset: RepairIdle, Attempts: 20, Window: "744h"},
		`reset: "always" is not one`: {Reset: "always"},
		"attempts: 21 is not from":   {Attempts: 21},
		"attempts: -1 is not from":   {Attempts: -1},
		`window: "1s" is not a time`: {Window: "1s"},
		`window: "9999h" is not`:     {Window: "9999h"},
		`window: "soon" is not`:      {Window: "soon"},
	} {
		got := r.Problems()
		want = strings.TrimSpace(want)
		if text := strings.Join(got, "; "); (want == "") != (text == "") || !strings.HasPrefix(text, want) {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
	if n, window := (Repair{}).Times(); n != 3 || window != 24*time.Hour {
		t.Errorf("%d in %s", n, window)
	}
	if n, window := (Repair{Attempts: 1, Window: "2h"}).Times(); n != 1 || window != 2*time.Hour {
		t.Errorf("%d in %s", n, window)
	}
}
