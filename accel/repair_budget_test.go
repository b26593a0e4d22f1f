package accel

import (
	"strings"
	"testing"
	"time"
)

func TestRepairBudget(t *testing.T) {
	for want, b := range map[string]RepairBudget{
		"":  {},
		" ": {MaxParallel: "2%", MaxDevices: "3", Domain: "topology.kubernetes.io/rack", MaxPerDomain: 2, Breaker: "100%"},
		`repair.maxParallel: "0" is neither a number`:                   {MaxParallel: "0"},
		`repair.maxDevices: "few" is neither a number`:                  {MaxDevices: "few"},
		`repair.breaker: "-1" is neither a number`:                      {Breaker: "-1"},
		`repair.maxPerDomain: 2 needs the label of a domain`:            {MaxPerDomain: 2},
		`repair.maxPerDomain: -1 needs the label of a domain`:           {MaxPerDomain: -1, Domain: "rack"},
		`repair.domain: "a rack" is not the key of a label`:             {Domain: "a rack"},
		`repair.timeout: "soon" is not a time such as 30m`:              {Timeout: "soon"},
		`repair.windows[0].from: "25:00" is not a time of the day such`: {Windows: []RolloutWindow{{From: "25:00", To: "01:00"}}},
	} {
		got := strings.Join(PolicySpec{Repair: &b}.Problems(), "; ")
		want = strings.TrimSpace(want)
		if (want == "") != (got == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%+v: %q, want %q", b, got, want)
		}
	}
	for nodes, want := range map[int]int{1: 2, 10: 2, 30: 3, 5000: 500} {
		if got := (RepairBudget{}).Trips(nodes); got != want {
			t.Errorf("of %d nodes %d, want %d", nodes, got, want)
		}
	}
	if a, b := (RepairBudget{Timeout: "5m"}).Counts(), (RepairBudget{}).Counts(); a != 5*time.Minute || b != time.Hour {
		t.Errorf("%s, %s", a, b)
	}
	if got := strings.Join((Repair{By: "fleet"}).Problems(), "; "); got != "by: is for a policy of the cluster to set" {
		t.Error(got)
	}
}

func TestRepairReport(t *testing.T) {
	for _, text := range []string{"", "waiting 1/8", "repairing 8/8", "ill 2/16", "waiting 4096/4096"} {
		if got := ParseRepairReport(text).String(); got != text {
			t.Errorf("%q is read as %q", text, got)
		}
	}
	for _, text := range []string{
		"waiting", "waiting 1", "waiting 0/8", "waiting 9/8", "waiting -1/8", "waiting +1/8", "waiting 1/8 ", " waiting 1/8",
		"waiting 01/8", "waiting 1/4097", "given-up 1/8", "unclear 1/1", "waiting 1/8/9", strings.Repeat("x", 400),
	} {
		if got := ParseRepairReport(text); got != (RepairReport{RepairPhaseUnclear, 1, 1}) || !got.Acts() {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
	since := time.Date(2026, 3, 4, 12, 0, 0, 5000, time.UTC)
	for _, p := range []RepairPermit{{}, {true, since}, {false, since}} {
		if got := ParseRepairPermit(p.String()); got != p {
			t.Errorf("%+v is read as %+v", p, got)
		}
	}
	for _, text := range []string{"yes", "yes soon", "2.0.0 2026-03-04T12:00:00Z", strings.Repeat("yes", 200)} {
		if ParseRepairPermit(text).Given {
			t.Errorf("%q permits", text)
		}
	}
}

// FuzzRepairReport looks for a report or a permission that is not read as it was written.
func FuzzRepairReport(f *testing.F) {
	for _, text := range []string{"", "waiting 1/8", "repairing 8/8", "yes 2026-03-04T12:00:00Z", "- 2026-03-04T12:00:00Z"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := ParseRepairReport(text)
		if r.Phase != RepairPhaseUnclear && r.String() != text || r.Phase != "" && (r.Ill < 1 || r.Ill > r.Devices) {
			t.Errorf("%q is read as %+v", text, r)
		}
		p := ParseRepairPermit(text)
		if again := ParseRepairPermit(p.String()); again.Given != p.Given || !again.Since.Equal(p.Since) {
			t.Errorf("%q is read as %+v, and then as %+v", text, p, again)
		}
	})
}
