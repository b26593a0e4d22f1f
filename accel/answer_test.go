package accel

import (
	"encoding/json"
	"testing"
)

func TestAnswer(t *testing.T) {
	for _, c := range []struct {
		have PluginHave
		word Answer[UpgradeReport]
		text string
	}{
		{PluginHave{}, Answer[UpgradeReport]{}, `{"plugin":{"registered":false,"registrations":0,"allocatable":null}}`},
		{
			PluginHave{Allocatable: Known(0)},
			Known(UpgradeReport{}),
			`{"plugin":{"registered":false,"registrations":0,"allocatable":0},"upgradeReport":""}`,
		},
		{
			PluginHave{Allocatable: Known(2)},
			Known(UpgradeReport{Phase: ReportWaiting, Version: "2"}),
			`{"plugin":{"registered":false,"registrations":0,"allocatable":2},"upgradeReport":"waiting 2"}`,
		},
	} {
		type said struct {
			Plugin        PluginHave            `json:"plugin"`
			UpgradeReport Answer[UpgradeReport] `json:"upgradeReport,omitzero"`
		}
		b, err := json.Marshal(said{c.have, c.word})
		if err != nil || string(b) != c.text {
			t.Errorf("%s, %v, want %s", b, err, c.text)
		}
		back := said{PluginHave{Allocatable: Known(7)}, Answer[UpgradeReport]{}}
		if err := json.Unmarshal(b, &back); err != nil || back.Plugin != c.have || back.UpgradeReport != c.word {
			t.Errorf("%s became %+v, %v", b, back, err)
		}
	}
	var a Answer[int]
	if json.Unmarshal([]byte(`"two"`), &a) == nil {
		t.Error("a text was taken for a number")
	}
	if a.Is(0) || a.Or(3) != 3 || !Known(0).Is(0) || Known(0).Is(1) || Known(0).Or(3) != 0 {
		t.Error("not knowing is not zero")
	}
}
