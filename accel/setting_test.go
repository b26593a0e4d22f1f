package accel

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// watts is a power limit, in an attribute with microwatts.
func watts() Setting {
	return Setting{
		Name: "powerLimitWatts", File: "hwmon/hwmon*/power1_cap", Factor: 1_000_000, MinFile: "min", MaxFile: "max",
	}
}

func TestSettingText(t *testing.T) {
	low, high := 1.0, 100.0
	mode := Setting{Name: "m", Values: map[string]string{"on": "1", "off": "0"}}
	clock := Setting{Name: "c", Values: map[string]string{"off": "off"}, Min: &low, Max: &high}
	for name, c := range map[string]struct {
		s     Setting
		value SettingValue
		text  string
		fails string
	}{
		"a word":              {mode, "on", "1", ""},
		"another":             {mode, "off", "0", ""},
		"its text is no word": {mode, "1", "", `"1" is not one of off, on`},
		"whole watts":         {watts(), "250", "250000000", ""},
		"half watts":          {watts(), "250.5", "250500000", ""},
		"an exponent":         {watts(), "2.5e2", "250000000", ""},
		"no number":           {watts(), "much", "", `"much" is not a number`},
		"not a number":        {watts(), "NaN", "", `"NaN" is not a number`},
		"infinite":            {watts(), "Inf", "", `"Inf" is not a number`},
		"a word or a number":  {clock, "off", "off", ""},
		"the number":          {clock, "50", "50", ""},
		"neither":             {clock, "on", "", `"on" is neither a number nor one of off`},
		"too low":             {clock, "0", "", "0 is below 1"},
		"too high":            {clock, "100.5", "", "100.5 is above 100"},
		"too long":            {watts(), "1e300", "", "the number is too long"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := c.s.Text(c.value)
			if text != c.text || (err == nil) != (c.fails == "") || err != nil && err.Error() != c.fails {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

func TestSettingWord(t *testing.T) {
	mode := Setting{Values: map[string]string{"on": "1", "off": "0"}}
	for text, want := range map[string]string{"1": "on", "0": "off", "0x1": "on", "2": "2", "": ""} {
		if got := mode.Word(text); got != want {
			t.Errorf("%q reads as %q", text, got)
		}
	}
	for text, want := range map[string]string{"250000000": "250", "1": "0.000001", "auto": "auto", "NaN": "NaN"} {
		if got := watts().Word(text); got != want {
			t.Errorf("%q reads as %q", text, got)
		}
	}
}

func TestSameSetting(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"1", "1", true},
		{"1", "1.0", true},
		{"0x10", "16", true},
		{"010", "10", true},
		{"auto", "auto", true},
		{"auto", "low", false},
		{"1", "2", false},
		{"", "0", false},
		{"NaN", "NaN", true},
		{"NaN", "nan", false},
	} {
		if SameSetting(c.a, c.b) != c.same || SameSetting(c.b, c.a) != c.same {
			t.Errorf("%q and %q", c.a, c.b)
		}
	}
}

func TestSettingWithin(t *testing.T) {
	s := watts()
	for _, c := range []struct{ text, least, most, want string }{
		{"250000000", "100000000", "300000000", ""},
		{"100000000", "100000000", "100000000", ""},
		{"99000000", "100000000", "", "99 is below 100, the least that this device allows"},
		{"301000000", "", "300000000", "301 is above 300, the most that this device allows"},
		{"auto", "1", "2", ""},
		{"5", "", "", ""},
	} {
		err := s.Within(c.text, c.least, c.most)
		if got := ""; (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

// TestSettingValueOfYAML: a text, a number and a switch are values; YAML 1.1 reads on and off as switches.
func TestSettingValueOfYAML(t *testing.T) {
	var got map[string]SettingValue
	const text = `{"a": "x", "b": 250, "c": true, "d": false, "e": 0.5, "f": "true", "g": {"h": 1}, "i": [1], "j": null}`
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]SettingValue{
		"a": "x", "b": "250", "c": "on", "d": "off", "e": "0.5", "f": "on", "g": `{"h": 1}`, "i": "[1]", "j": "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	wrong := KindConfig{Settings: got}.Problems()
	if diff := cmp.Diff([]string{
		`settings.g: "{\"h\": 1}" is neither a word nor a number`, `settings.i: "[1]" is neither a word nor a number`,
		`settings.j: "" is neither a word nor a number`,
	}, wrong); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	hostile := KindConfig{Settings: map[string]SettingValue{"../x": "1", "a": "1\nreboot", "b": "/etc/passwd"}}.Problems()
	if len(hostile) != 3 {
		t.Errorf("%q", hostile)
	}
}

func TestSettingProblems(t *testing.T) {
	low, high := 5.0, 1.0
	many := make([]Setting, 33)
	for name, c := range map[string]struct {
		all     []Setting
		program bool
		want    []string
	}{
		"right":            {[]Setting{watts(), {Name: "mode", File: "m", Values: map[string]string{"a": "b c"}}}, false, nil},
		"of the program":   {[]Setting{{Name: "limit"}}, true, nil},
		"without program":  {[]Setting{{Name: "limit"}}, false, []string{"settings[0].file: is needed, because the kind has no probe program"}},
		"a name":           {[]Setting{{Name: "Power Limit"}}, true, []string{`settings[0].name: "Power Limit" is not a name such as powerLimitWatts`}},
		"twice":            {[]Setting{{Name: "a"}, {Name: "a"}}, true, []string{`settings[1].name: "a" is there twice`}},
		"needs":            {[]Setting{{Name: "a", Needs: "luck"}}, true, []string{`settings[0].needs: "luck" is not one of idle, reset`}},
		"reset of a file":  {[]Setting{{Name: "a", File: "f", Values: map[string]string{"b": "c"}, Needs: SettingNeedsReset}}, true, []string{"settings[0].needs: only a probe program can tell what takes effect after a reset"}},
		"without bounds":   {[]Setting{{Name: "a", File: "f", Max: &high}}, false, []string{"settings[0].min: a number needs min or minFile, and max or maxFile"}},
		"bounds, no file":  {[]Setting{{Name: "a", MinFile: "f"}}, true, []string{"settings[0].minFile: the bounds of a setting without a file are the probe program's"}},
		"bounds":           {[]Setting{{Name: "a", Min: &low, Max: &high}}, true, []string{"settings[0].min: 5 is above max"}},
		"factor":           {[]Setting{{Name: "a", Factor: -1}}, true, []string{"settings[0].factor: -1 is not from 1 to 1000000000"}},
		"a text":           {[]Setting{{Name: "a", Values: map[string]string{"b": "c\nd"}}}, true, []string{`settings[0].values.b: "c\nd" is not a short line of text`}},
		"a word":           {[]Setting{{Name: "a", Values: map[string]string{"b c": "d"}}}, true, []string{`settings[0].values: "b c" is neither a word nor a number`}},
		"two of one text":  {[]Setting{{Name: "a", Values: map[string]string{"b": "x", "c": "x"}}}, true, []string{`settings[0].values.c: "x" is b already`}},
		"undo":             {[]Setting{{Name: "a", Values: map[string]string{"b": "x"}, Undo: "c"}}, true, []string{`settings[0].undo: "c" is not one of b`}},
		"value":            {[]Setting{{Name: "a", Value: "much"}}, true, []string{`settings[0].value: "much" is not a number`}},
		"more than enough": {many, true, []string{"settings: there are 33, at most 32 are possible"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := SettingProblems(c.all, c.program)
			if name == "more than enough" {
				got = got[:1]
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestConfiguredSettings: the configuration sets what the definition has, within what it allows.
func TestConfiguredSettings(t *testing.T) {
	low, high := 1.0, 100.0
	def := &Definition{Kind: "a-b", Settings: []Setting{
		{Name: "limit", File: "limit", Min: &low, Max: &high}, {Name: "other", File: "o", Min: &low, Max: &high, Value: "7"},
	}}
	set := func(name string, v SettingValue) (*Definition, string) {
		return KindConfig{Settings: map[string]SettingValue{name: v}}.Apply(def)
	}
	got, misfit := set("limit", "80")
	if misfit != "" || got.Settings[0].Value != "80" || got.Settings[1].Value != "7" || !got.Sets() {
		t.Errorf("%+v, %q", got, misfit)
	}
	if def.Settings[0].Value != "" {
		t.Error("the definition itself has changed")
	}
	if s, found := got.Setting("limit"); !found || s.Value != "80" {
		t.Errorf("%+v", s)
	}
	if _, found := got.Setting("none"); found {
		t.Error("there is no such setting")
	}
	if (&Definition{Settings: def.Settings[:1]}).Sets() {
		t.Error("nothing is configured")
	}
	for name, want := range map[string]string{
		"power": "settings.power: the definition has no such setting (there are: limit, other)",
		"limit": "settings.limit: 101 is above 100",
	} {
		if _, misfit := set(name, "101"); misfit != want {
			t.Errorf("%q", misfit)
		}
	}
	if _, misfit := (KindConfig{Settings: map[string]SettingValue{"x": "1"}}).Apply(&Definition{}); !strings.HasSuffix(
		misfit, "no such setting") {
		t.Errorf("%q", misfit)
	}
}

func TestSettingHave(t *testing.T) {
	for _, c := range []struct {
		SettingHave
		text   string
		reason Reason
	}{
		{SettingHave{Name: "a", Want: "1", Value: "1", State: SettingApplied}, "a is 1", ""},
		{SettingHave{Name: "a", Want: "1", State: SettingApplied, Message: "so it was written"}, "a was set to 1: so it was written", ""},
		{SettingHave{Name: "a", Want: "1", Value: "1", State: SettingApplied, Drifts: 1}, "a is 1; changed by something else once", ""},
		{SettingHave{Name: "a", Want: "1", Value: "2", State: SettingWaits, Message: "for a reset"}, "a is 2, configured is 1: waits for a reset", ""},
		{SettingHave{Name: "a", Want: "1", State: SettingUnsupported, Message: "no"}, "a, configured is 1: unsupported: no", SettingFailed},
		{SettingHave{Name: "a", Want: "1", Value: "2", State: SettingRefused, Message: "no"}, "a is 2, configured is 1: failed: no", SettingFailed},
		{SettingHave{Name: "a", Want: "1", Value: "2", State: SettingGivenUp, Message: "6 times", Drifts: 6}, "a is 2, configured is 1: contested: 6 times; changed by something else 6 times", SettingContested},
		{SettingHave{Name: "a", Value: "2", State: SettingRefused, Message: "no"}, "a is 2, no longer configured: failed: no", SettingFailed},
	} {
		if c.String() != c.text || c.Reason() != c.reason {
			t.Errorf("%q, %s", c.String(), c.Reason())
		}
	}
	a := Accelerator{Settings: []SettingHave{
		{Name: "a", State: SettingApplied}, {Name: "b", State: SettingApplied, Drifts: 1}, {Name: "c", State: SettingWaits},
	}}
	if d := a.Deviations(); len(d) != 2 || d[0].Name != "b" || len(a.Settings) != 3 || a.Settings[0].Name != "a" {
		t.Errorf("%+v of %+v", d, a.Settings)
	}
}

// TestSettingChanges: a failure is a change once, and again only for another reason.
func TestSettingChanges(t *testing.T) {
	machine := func(s SettingState) Machine {
		return Machine{
			Status: map[string]Status{"k": {}},
			Have: map[string]Have{"k": {Accelerators: []Accelerator{{
				ID: "x", Health: Health{State: Healthy}, Settings: []SettingHave{{Name: "a", State: s}},
			}}}},
		}
	}
	for _, c := range []struct {
		from, to SettingState
		changes  int
	}{
		{SettingApplied, SettingRefused, 1},
		{SettingRefused, SettingRefused, 0},
		{SettingRefused, SettingUnsupported, 0},
		{SettingUnsupported, SettingGivenUp, 1},
		{SettingRefused, SettingApplied, 0},
		{SettingApplied, SettingWaits, 0},
	} {
		all := Diff(machine(c.from), machine(c.to))
		if len(all) != c.changes {
			t.Errorf("%s to %s: %+v", c.from, c.to, all)
		}
		for _, x := range all {
			if s := x.(SettingChange); s.Of() != "k" || s.Device != "x" || s.Setting.State != c.to {
				t.Errorf("%+v", s)
			}
		}
	}
}
