package accel

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func noon() time.Time { return time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC) }

func TestParseMaintenance(t *testing.T) {
	long := strings.Repeat("é", maxMaintenanceMessage)
	got := ParseMaintenance([]RawCondition{
		{Type: "Ready", Status: "True", Reason: "KubeletReady"},
		{Type: "Drained", Status: "False", Reason: "KubectlDrainFailed"},
		{Type: "MaintenancePlanned", Status: "True", Reason: "night shift", Message: long},
		{Type: "DrainInProgress", Status: "True", Reason: "AcceldUpgrade"},
		{
			Type: "MaintenanceInProgress", Status: "True", Reason: "Fan.v2", Message: "rack\n7\x1b[2J \u202ename",
			Since: noon().In(time.FixedZone("", 3600)),
		},
		{Type: "MaintenanceInProgress", Status: "True", Reason: "Second"},
		{Type: "GracefulNodeShutdownInProgress", Status: "Unknown", Reason: "NodeShutdown"},
	})
	want := []Maintenance{
		{MaintenanceInProgress, "Fan.v2", "rack 7[2J name", noon()},
		{Condition: MaintenancePlanned, Reason: "Unclear", Message: strings.Repeat("é", 100) + "…"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := ParseMaintenance(nil); got != nil {
		t.Errorf("%v", got)
	}
}

func TestMaintenanceWords(t *testing.T) {
	for _, c := range []struct {
		m    Maintenance
		want string
	}{
		{
			Maintenance{MaintenanceInProgress, "Fan", "rack 7", noon()},
			`node is under maintenance: reason Fan by condition MaintenanceInProgress since 2026-03-04T12:00:00Z ("rack 7")`,
		},
		{Maintenance{Condition: Drained}, "node is under maintenance: no reason by condition Drained"},
		{
			Maintenance{Condition: MaintenancePlanned, Reason: "Window"},
			"maintenance of the node is planned: reason Window by condition MaintenancePlanned",
		},
		{
			Maintenance{Condition: ShutdownInProgress, Reason: "NodeShutdown"},
			"node shuts down: reason NodeShutdown by condition GracefulNodeShutdownInProgress",
		},
	} {
		if got := c.m.String(); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

func TestHinders(t *testing.T) {
	of := func(all ...MaintenanceCondition) (out []Maintenance) {
		for _, c := range all {
			out = append(out, Maintenance{Condition: c})
		}
		return out
	}
	for _, c := range []struct {
		all             []Maintenance
		ignore          []MaintenanceCondition
		upgrade, repair MaintenanceCondition
	}{
		{nil, nil, "", ""},
		{of(DrainInProgress), nil, DrainInProgress, DrainInProgress},
		{of(Drained), nil, Drained, Drained},
		{of(MaintenanceInProgress, Drained), nil, MaintenanceInProgress, MaintenanceInProgress},
		{of(ShutdownInProgress), nil, ShutdownInProgress, ShutdownInProgress},
		{of(MaintenancePlanned), nil, MaintenancePlanned, ""},
		{of(MaintenancePlanned), []MaintenanceCondition{MaintenancePlanned}, "", ""},
		{of(DrainInProgress, Drained), []MaintenanceCondition{DrainInProgress}, Drained, Drained},
		{of(MaintenanceInProgress), []MaintenanceCondition{MaintenanceInProgress}, "", ""},
	} {
		for work, want := range map[NodeWork]MaintenanceCondition{UpgradeWork: c.upgrade, RepairWork: c.repair} {
			var got MaintenanceCondition
			if m := Hinders(c.all, work, c.ignore); m != nil {
				got = m.Condition
			}
			if got != want {
				t.Errorf("%v, ignoring %v: %s is kept from beginning by %q, want %q", c.all, c.ignore, work, got, want)
			}
		}
	}
	for _, c := range MaintenanceConditions() {
		if got := (Maintenance{Condition: c}).Unavailable(); got != (c != MaintenancePlanned) {
			t.Errorf("%s: unavailable %v", c, got)
		}
	}
}

func TestIgnoredConditions(t *testing.T) {
	k := KindConfig{IgnoreConditions: []MaintenanceCondition{Drained, "Ready"}}
	if got := strings.Join(k.Problems(), "; "); !strings.HasPrefix(got, `ignoreConditions[1]: "Ready" is not one of`) {
		t.Error(got)
	}
	def := &Definition{Kind: "k-x", IgnoreConditions: []MaintenanceCondition{DrainInProgress}}
	k.IgnoreConditions = []MaintenanceCondition{Drained}
	applied, misfit := k.Apply(def)
	if misfit != "" || !cmp.Equal(applied.IgnoreConditions, k.IgnoreConditions) {
		t.Error(misfit, applied.IgnoreConditions)
	}
	if applied, _ := (KindConfig{}).Apply(def); !cmp.Equal(applied.IgnoreConditions, def.IgnoreConditions) {
		t.Error(applied.IgnoreConditions)
	}
	if got := k.Privileged(); len(got) > 0 {
		t.Error(got)
	}
}

// working is a machine with two devices of one kind.
func working(u *Upgrade, holders Holders, repairs ...*RepairHave) Machine {
	have := Have{Driver: DriverHave{Serves: true, Upgrade: u}, UpgradeReport: Known(UpgradeReport{})}
	for i, r := range repairs {
		have.Accelerators = append(have.Accelerators, Accelerator{
			ID: string(rune('a' + i)), Repair: r, Health: Health{State: Unhealthy},
		})
	}
	def := &Definition{Kind: "k-x"}
	def.Driver.Upgrade.Holders = holders
	return Machine{
		Taken: noon(), Want: Want{Kinds: map[string]*Definition{"k-x": def}}, Have: map[string]Have{"k-x": have},
		Status: map[string]Status{"k-x": {State: Ready}},
	}
}

func TestOwnMaintenance(t *testing.T) {
	up := func(p UpgradePhase) *Upgrade {
		return &Upgrade{From: DriverRef{Version: "1"}, To: DriverRef{Version: "2"}, Phase: p}
	}
	const replaces = "acceld replaces the driver of k-x: version 2, was version 1"
	upgrades := func(drains bool) Answer[OwnMaintenance] { return Known(OwnMaintenance{OwnUpgrade, replaces, drains}) }
	none, all := Known(OwnMaintenance{}), "acceld resets every accelerator of the node"
	runs, evicts, waits := &RepairHave{State: RepairRuns}, &RepairHave{State: RepairWaits, Evicts: true},
		&RepairHave{State: RepairWaits}
	midway := working(nil, "", nil)
	have := midway.Have["k-x"]
	have.UpgradeReport = Answer[UpgradeReport]{}
	midway.Have["k-x"] = have
	replacing := working(up(UpgradeReplacing), "", nil)
	have = replacing.Have["k-x"]
	have.UpgradeReport = Answer[UpgradeReport]{}
	replacing.Have["k-x"] = have
	unseen, unread := working(nil, "", nil), working(nil, "", nil)
	unseen.Status["k-x"] = Status{}
	unread.Taken = time.Time{}
	absent := working(nil, "")
	absent.Have["k-x"], absent.Status["k-x"] = Have{}, Status{State: Absent}
	gone := working(nil, "", runs, nil)
	gone.Have["k-x"].Accelerators[1].Health.State = Gone
	for name, c := range map[string]struct {
		m    Machine
		want Answer[OwnMaintenance]
	}{
		"nothing":                     {working(nil, "", nil, nil), none},
		"no device":                   {absent, none},
		"waits":                       {working(up(UpgradeWaiting), HoldersEvict, nil), none},
		"waits for pods to end":       {working(up(UpgradeDraining), HoldersWait, nil), none},
		"evicts":                      {working(up(UpgradeDraining), HoldersEvict, nil), upgrades(true)},
		"replaces":                    {working(up(UpgradeReplacing), HoldersEvict, nil), upgrades(false)},
		"replaces, unknown report":    {replacing, upgrades(false)},
		"an earlier agent was midway": {midway, Answer[OwnMaintenance]{}},
		"not looked at yet":           {unseen, Answer[OwnMaintenance]{}},
		"not read yet":                {unread, Answer[OwnMaintenance]{}},
		"one device of two":           {working(nil, "", runs, nil), none},
		"one waits":                   {working(nil, "", runs, waits), none},
		"the only one":                {working(nil, "", runs), Known(OwnMaintenance{OwnRepair, all, false})},
		"the only one that is left":   {gone, Known(OwnMaintenance{OwnRepair, all, false})},
		"both, with evictions":        {working(nil, "", runs, evicts), Known(OwnMaintenance{OwnRepair, all, true})},
	} {
		if got := c.m.OwnMaintenance(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	for _, own := range []string{OwnUpgrade, OwnRepair} {
		if !(RawCondition{Reason: own}).Own() {
			t.Errorf("%s is not acceld's own", own)
		}
	}
	if (RawCondition{Reason: "KubectlDrainStarted"}).Own() || (RawCondition{}).Own() {
		t.Error("what somebody else wrote is taken for acceld's own")
	}
}

// FuzzMaintenance looks for a condition of a node whose text is not bounded, or does not stay on its line.
func FuzzMaintenance(f *testing.F) {
	f.Add("DrainInProgress", "True", "KubectlDrainStarted", "draining")
	f.Add("MaintenanceInProgress", "True", "\x1b[2J", "a\nb\u2028c\xff")
	f.Fuzz(func(t *testing.T, kind, status, reason, message string) {
		for _, m := range ParseMaintenance([]RawCondition{{kind, status, reason, message, noon()}}) {
			text := m.String()
			if len(text) > 1200 || !utf8.ValidString(text) ||
				strings.ContainsFunc(text, func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }) {
				t.Errorf("%q", text)
			}
			if status != "True" || strings.HasPrefix(reason, "Acceld") || string(m.Condition) != kind {
				t.Errorf("%+v of %q %q %q", m, kind, status, reason)
			}
			again := ParseMaintenance([]RawCondition{{string(m.Condition), "True", m.Reason, m.Message, m.Since}})
			if m.Message != "" && len(m.Message) <= maxMaintenanceMessage && !cmp.Equal(again, []Maintenance{m}) {
				t.Errorf("%+v is read as %+v", m, again)
			}
		}
	})
}
