package accel

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestGoverning(t *testing.T) {
	at := func(day int) time.Time { return time.Date(2026, time.March, day, 0, 0, 0, 0, time.UTC) }
	policy := func(name string, day, priority int, selector map[string]string, kinds ...string) Policy {
		p := Policy{Name: name, Created: at(day), Spec: PolicySpec{
			NodeSelector: selector, Priority: priority,
			Kinds: map[string]KindConfig{},
		}}
		for _, k := range kinds {
			p.Spec.Kinds[k] = KindConfig{}
		}
		return p
	}
	dry := policy("dry", 1, 99, nil, "a-a")
	dry.Spec.DryRun = true
	pool := map[string]string{"pool": "x"}
	for _, c := range []struct {
		name      string
		policies  []Policy
		want      map[string]string
		conflicts []PolicyConflict
	}{
		{"none", nil, map[string]string{}, nil},
		{
			"of other nodes, and a dry run",
			[]Policy{policy("p", 1, 0, map[string]string{"pool": "y"}, "a-a"), dry},
			map[string]string{},
			nil,
		},
		{
			"the higher one, of each kind",
			[]Policy{policy("p", 1, 0, nil, "a-a", "b-b"), policy("q", 2, 1, pool, "a-a")},
			map[string]string{"a-a": "q", "b-b": "p"},
			nil,
		},
		{
			"of equals the older one",
			[]Policy{policy("z", 1, 0, nil, "a-a"), policy("b", 2, 0, pool, "a-a")},
			map[string]string{"a-a": "z"},
			[]PolicyConflict{{"a-a", "b", "z"}},
		},
		{
			"of one moment by name",
			[]Policy{policy("z", 1, 0, nil, "a-a"), policy("b", 1, 0, nil, "a-a")},
			map[string]string{"a-a": "b"},
			[]PolicyConflict{{"a-a", "z", "b"}},
		},
		{
			"a lower one is no conflict",
			[]Policy{policy("p", 1, 5, nil, "a-a"), policy("q", 1, 4, nil, "a-a")},
			map[string]string{"a-a": "p"},
			nil,
		},
	} {
		by, conflicts := Governing(c.policies, map[string]string{"pool": "x", "more": ""})
		got := map[string]string{}
		for kind, p := range by {
			got[kind] = p.Name
		}
		if diff := cmp.Diff([]any{c.want, c.conflicts}, []any{got, conflicts}); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestPortion(t *testing.T) {
	for text, want := range map[string]int{
		`"25%"`: 10, `"1%"`: 1, `3`: 3, `"3"`: 3, `""`: 0, `"x"`: 0, `"0%"`: 0,
		`0`: 0, `-1`: 0, `"200%"`: 40,
	} {
		var p Portion
		if err := json.Unmarshal([]byte(text), &p); err != nil || p.Of(40) != want {
			t.Errorf("%s of 40 is %d, want %d (%v)", text, p.Of(40), want, err)
		}
	}
}

func TestWordsAndGrants(t *testing.T) {
	for _, text := range []string{"", "waiting 2.0.0", "upgrading key-0123", "failed 2.0.0 RolledBack"} {
		if got := ParseUpgradeReport(text).String(); got != text {
			t.Errorf("%q is read as %q", text, got)
		}
	}
	for _, text := range []string{
		"waiting", "ready 2.0.0", "unclear", "failed 2.0.0 RolledBack now", "waiting 2\u202e0", "waiting\t2.0.0", "waiting 2\xff",
		"failed 2.0.0 Rolled-Back", "failed 2.0.0 " + strings.Repeat("R", 65), "waiting " + strings.Repeat("2", maxReport),
		strings.Repeat(" ", maxReport+1),
	} {
		if w := ParseUpgradeReport(text); w != (UpgradeReport{Phase: ReportUnclear}) {
			t.Errorf("%q is read as %+v", text, w)
		}
	}
	for _, text := range []string{"2\u202e0", strings.Repeat("2", maxReport+1), "2\n0"} {
		if g := ParseGrant(text); g != (Grant{}) {
			t.Errorf("%q is read as %+v", text, g)
		}
	}
	at := time.Date(2026, time.March, 4, 12, 0, 0, 123456000, time.UTC)
	for text, want := range map[string]Grant{
		"": {}, "2.0.0": {Version: "2.0.0"}, "2.0.0 2026-03-04T12:00:00.123456Z": {"2.0.0", at},
		"- 2026-03-04T12:00:00.123456Z": {"", at},
	} {
		if got := ParseGrant(text); got != want || got.String() != text {
			t.Errorf("%q is read as %+v, written as %q", text, got, got.String())
		}
	}
	for r, want := range map[DriverRef]string{
		{Version: "1.0 rc 1", Key: "k"}: "1.0_rc_1",
		{Key: "0123456789abcdef"}:       "key-0123456789ab", {}: "unnamed",
	} {
		if got := r.Target(); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}

// TestDriverDigest: what a policy asks of a driver has one digest, wherever the policy was read from, and a change of
// anything else does not change it.
func TestDriverDigest(t *testing.T) {
	read := func(text string) Policy {
		var p Policy
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	const asked = `{"spec":{"kinds":{"a-a":{"driver":{"version":"2"}}},"definitions":[{"kind":"<a-a>"}]}}`
	want := read(asked).DriverDigest("a-a")
	kept, err := json.Marshal(read(asked))
	if err != nil {
		t.Fatal(err)
	}
	for text, same := range map[string]bool{
		asked:        true,
		string(kept): true,
		`{"spec":{"kinds":{"a-a":{"driver":{"version":"2"}}},"definitions":[ {"kind": "<a-a>"} ]}}`: true,
		`{"spec":{"kinds":{"a-a":{"sharing":{"replicas":2},"driver":{"version":"2","upgrade":{"holders":"wait"}}}},
			"upgrade":{"paused":true},"definitions":[{"kind":"<a-a>"}]}}`: true,
		`{"spec":{"kinds":{"a-a":{"driver":{"version":"3"}}},"definitions":[{"kind":"<a-a>"}]}}`:                                     false,
		`{"spec":{"kinds":{"a-a":{"driver":{"version":"2","parameters":{"m":{"p":"1"}}}}},"definitions":[{"kind":"<a-a>"}]}}`:        false,
		`{"spec":{"kinds":{"a-a":{"driver":{"version":"2"}}},"definitions":[{"kind":"a-b"}]}}`:                                       false,
		`{"named":[{"name":"m/k","text":"t"}],"spec":{"kinds":{"a-a":{"driver":{"version":"2"}}},"definitions":[{"kind":"<a-a>"}]}}`: false,
	} {
		if got := read(text).DriverDigest("a-a"); (got == want) != same || len(got) != 16 {
			t.Errorf("%s: %s, the first is %s", text, got, want)
		}
	}
}

// FuzzHandshake looks for a report or a grant that is not read as it was written, or that grows.
func FuzzHandshake(f *testing.F) {
	for _, text := range []string{
		"", "waiting 2.0.0", "upgrading key-0123", "failed 2.0.0 RolledBack", "2.0.0 2026-03-04T12:00:00.123456Z",
		"- 2026-03-04T12:00:00Z", "unclear", "waiting  2", "failed 2 R R",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		w := ParseUpgradeReport(text)
		if again := ParseUpgradeReport(w.String()); again != w || len(w.String()) > maxReport {
			t.Errorf("%q is read as %+v, and then as %+v", text, w, again)
		}
		g := ParseGrant(text)
		if again := ParseGrant(g.String()); again.Version != g.Version || !again.Since.Equal(g.Since) ||
			len(g.String()) > 2*maxReport {
			t.Errorf("%q is read as %+v, and then as %+v", text, g, again)
		}
	})
}

func TestPolicyProblems(t *testing.T) {
	good := PolicySpec{
		Kinds: map[string]KindConfig{
			"a-a": {Driver: KindDriverOverride{Upgrade: &UpgradePolicy{Holders: HoldersWait, Timeout: "1h"}}},
		},
		Upgrade: &Rollout{
			MaxUnavailable: "25%", Timeout: "1h",
			Windows: []RolloutWindow{{Days: []string{"Sat"}, From: "22:00", To: "04:00"}},
		},
		Partition: &Partition{
			Taints: []Taint{{Key: "a", Effect: "NoSchedule"}},
			PriorityClasses: &PriorityClasses{
				High: PriorityClass{"h", 1}, Low: PriorityClass{"l", 0}, Others: []PriorityClass{{"m", 0}},
			},
		},
	}
	if got := good.Problems(); len(got) > 0 {
		t.Errorf("%v", got)
	}
	for want, spec := range map[string]PolicySpec{
		"kinds.a-a.allocation: ": {Kinds: map[string]KindConfig{"a-a": {Allocation: "x"}}},
		"kinds.a-a.driver.upgrade.by: ": {
			Kinds: map[string]KindConfig{"a-a": {Driver: KindDriverOverride{Upgrade: &UpgradePolicy{By: "x"}}}},
		},
		"kinds.a-a.driver.upgrade.digest: ": {
			Kinds: map[string]KindConfig{"a-a": {Driver: KindDriverOverride{Upgrade: &UpgradePolicy{Digest: "x"}}}},
		},
		"kinds.a-a.driver.branch: ": {
			Kinds: map[string]KindConfig{"a-a": {Driver: KindDriverOverride{Branch: "535"}}},
		},
		"kinds.a-a.driver.sources[0].type:": {
			Kinds: map[string]KindConfig{"a-a": {Driver: KindDriverOverride{Sources: []Source{{Type: "x"}}}}},
		},
		"upgrade.maxUnavailable: ":    {Upgrade: &Rollout{MaxUnavailable: "x"}},
		"upgrade.timeout: ":           {Upgrade: &Rollout{Timeout: "soon"}},
		"upgrade.drain.waitTimeout: ": {Upgrade: &Rollout{Drain: &Drain{WaitTimeout: "-1h"}}},
		"upgrade.windows[0].days: ": {Upgrade: &Rollout{Windows: []RolloutWindow{{
			Days: []string{"Sunday"},
			From: "00:00", To: "01:00",
		}}}},
		"upgrade.windows[0].to: ":      {Upgrade: &Rollout{Windows: []RolloutWindow{{From: "00:00", To: "24:00"}}}},
		"partition.taints[0].effect: ": {Partition: &Partition{Taints: []Taint{{Key: "a", Effect: "No"}}}},
		"partition.priorityClasses: ":  {Partition: &Partition{PriorityClasses: &PriorityClasses{}}},
		"partition.priorityClasses.others[0].name: ": {Partition: &Partition{PriorityClasses: &PriorityClasses{
			High: PriorityClass{"h", 1}, Low: PriorityClass{"l", 0}, Others: []PriorityClass{{"l", 5}},
		}}},
	} {
		if got := spec.Problems(); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%v, want %q", got, want)
		}
	}
}
