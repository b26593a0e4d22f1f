package nvml

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/probe"
)

// settable is a machine on whose GPUs everything can be set.
func settable(s *stand) {
	for name, value := range map[string]string{
		"persistence": "0", "limit": "700000", "limit.range": "200000 700000", "compute": "0", "ecc": "1", "clock.max": "1980",
	} {
		s.script["gpu.*."+name] = value
	}
	s.script.gpu(2, "refuse.compute", "3") // not supported
	s.script.gpu(3, "refuse.limit", "4")   // no permission
	s.script.gpu(5, "lost", "1")
}

// has waits until the program says of a GPU what a test expects of one setting.
func (s *stand) has(gpu int, name string, want accel.ProbeSetting) {
	s.Helper()
	s.until(name, func([]accel.Accelerator) bool {
		all, known, _ := s.supervisor.Settings(s.def.Kind, addresses()[gpu])
		return known && all[name] == want
	})
}

// set sets something, and returns what the program answers.
func (s *stand) set(gpu int, name string, value accel.SettingValue) string {
	s.Helper()
	setting, found := s.def.Setting(name)
	if !found {
		setting = accel.Setting{Name: name}
	}
	text, err := setting.Text(value)
	s.check(err)
	r := accel.ProbeSet{Device: addresses()[gpu], Setting: name, Value: text}
	answer := s.supervisor.Set(s.Context(), s.def.Kind, r)
	if answer.Unsupported {
		return "unsupported: " + answer.Problem
	}
	return answer.Problem
}

// TestSettings: the true program reads and sets through NVML what the definition of the kind has.
func TestSettings(t *testing.T) {
	s := newStand(t, settable)
	s.until("known", func(accs []accel.Accelerator) bool { return accs[7].Model != "" })
	all, _, _ := s.supervisor.Settings(s.def.Kind, addresses()[0])
	want := map[string]accel.ProbeSetting{
		"persistence": {Value: "off"}, "powerLimitWatts": {Value: "700", Min: "200", Max: "700"},
		"computeMode": {Value: "default"}, "ecc": {Value: "on"}, "lockedClockMHz": {Max: "1980"},
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("what there is (-want +got):\n%s", diff)
	}
	for _, x := range s.def.Settings {
		if _, there := all[x.Name]; !there {
			t.Errorf("the definition has %q, and the program does not", x.Name)
		}
	}
	for _, c := range []struct {
		gpu     int
		name    string
		value   accel.SettingValue
		problem string
		then    accel.ProbeSetting
	}{
		{0, "persistence", "on", "", accel.ProbeSetting{Value: "on"}},
		{0, "powerLimitWatts", "550.5", "", accel.ProbeSetting{Value: "550.5", Min: "200", Max: "700"}},
		{0, "powerLimitWatts", "100", "NVML refuses it: an error", accel.ProbeSetting{Value: "550.5", Min: "200", Max: "700"}},
		{0, "computeMode", "exclusive", "", accel.ProbeSetting{Value: "exclusive"}},
		{0, "ecc", "off", "", accel.ProbeSetting{Value: "on", Pending: "off"}},
		{0, "ecc", "on", "", accel.ProbeSetting{Value: "on"}},
		{0, "lockedClockMHz", "1400", "", accel.ProbeSetting{Max: "1980"}},
		{0, "lockedClockMHz", "off", "", accel.ProbeSetting{Max: "1980"}},
		{2, "computeMode", "exclusive", "unsupported: NVML refuses it: an error", accel.ProbeSetting{Value: "default"}},
		{3, "powerLimitWatts", "500", "NVML refuses it: an error", accel.ProbeSetting{Value: "700", Min: "200", Max: "700"}},
		{1, "fanSpeed", "1", "NVML has no such setting", accel.ProbeSetting{}},
	} {
		if got := s.set(c.gpu, c.name, c.value); got != c.problem {
			t.Errorf("%s = %s: %q", c.name, c.value, got)
		}
		s.has(c.gpu, c.name, c.then)
	}
	if got := s.set(5, "powerLimitWatts", "500"); got != "the driver has lost it" {
		t.Errorf("a lost GPU: %q", got)
	}
	for _, hostile := range []string{"", "-5", "1e99", "NaN", "on\non", "exclusive; reboot"} {
		for _, name := range []string{"persistence", "powerLimitWatts", "computeMode", "ecc", "lockedClockMHz"} {
			r := accel.ProbeSet{Device: addresses()[1], Setting: name, Value: hostile}
			if got := s.supervisor.Set(t.Context(), s.def.Kind, r); got.Problem == "" {
				t.Errorf("%s = %q was set", name, hostile)
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(s.player.Library), "set"))
	s.check(err)
	if locked := "gpu.0.clock.max 1400\ngpu.0.clock.max 0\n"; !strings.Contains(string(text), locked) {
		t.Errorf("the clock was not locked and unlocked:\n%s", text)
	}
	if strings.Contains(string(text), "gpu.1.") {
		t.Errorf("something was set on GPU 1:\n%s", text)
	}
}

// TestSettingsWithoutAgent: a purge sets through a program of its own.
func TestSettingsWithoutAgent(t *testing.T) {
	s := newStand(t, settable)
	s.until("known", func(accs []accel.Accelerator) bool { return accs[7].Model != "" })
	if got := s.set(0, "powerLimitWatts", "500"); got != "" {
		t.Fatal(got)
	}
	defer s.supervisor.Pause(t.Context(), s.def.Kind)()
	session, err := probe.Start(t.Context(), s.host, built, s.def)
	s.check(err)
	defer session.Close()
	if all, known := session.Settings(addresses()[0]); !known || all["powerLimitWatts"].Value != "500" {
		t.Errorf("%v, %t", all, known)
	}
	s.check(session.Set(t.Context(), accel.ProbeSet{Device: addresses()[0], Setting: "powerLimitWatts", Value: "700"}))
	if all, _ := session.Settings(addresses()[0]); all["powerLimitWatts"].Value != "700" {
		t.Errorf("%v", all)
	}
}
