package accel

import (
	"encoding/json"
	"testing"
)

func TestAnswer(t *testing.T) {
	for _, c := range []struct {
		have PluginHave
		word Answer[Word]
		text string
	}{
		{PluginHave{}, Answer[Word]{}, `{"plugin":{"registered":false,"registrations":0,"allocatable":null}}`},
		{
			PluginHave{Allocatable: Known(0)},
			Known(Word{}),
			`{"plugin":{"registered":false,"registrations":0,"allocatable":0},"word":""}`,
		},
		{
			PluginHave{Allocatable: Known(2)},
			Known(Word{Phase: WordWaiting, Version: "2"}),
			`{"plugin":{"registered":false,"registrations":0,"allocatable":2},"word":"waiting 2"}`,
		},
	} {
		type said struct {
			Plugin PluginHave   `json:"plugin"`
			Word   Answer[Word] `json:"word,omitzero"`
		}
		b, err := json.Marshal(said{c.have, c.word})
		if err != nil || string(b) != c.text {
			t.Errorf("%s, %v, want %s", b, err, c.text)
		}
		back := said{PluginHave{Allocatable: Known(7)}, Answer[Word]{}}
		if err := json.Unmarshal(b, &back); err != nil || back.Plugin != c.have || back.Word != c.word {
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
