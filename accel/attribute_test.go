package accel

import (
	"slices"
	"testing"
)

func TestNatural(t *testing.T) {
	want := []string{
		"", "6.1.0-47-amd64", "6.1.0-47-amd64-x", "6.1.0-56-amd64", "6.1.0-99-amd64", "6.1.0-100-amd64", "6.9.0",
		"6.10.0",
		"a", "a1", "a01", "a2", "a10", "a10b", "b", "hwmon2/temp10", "hwmon10/temp2", "tile0/gt1", "tile1/gt0",
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, Natural)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for i, a := range want {
		for j, b := range want {
			if c := Natural(a, b); c < 0 != (i < j) || c > 0 != (i > j) {
				t.Errorf("%q and %q: %d", a, b, c)
			}
		}
	}
}

// TestDefaults: a definition replaces the default metrics and limits by name.
func TestDefaults(t *testing.T) {
	def := &Definition{
		Metrics: []MetricSource{{Name: "accelerator_temperature_celsius", File: "temperature"}},
		Limits:  []Limit{{Metric: "accelerator_temperature_celsius", Above: 90}},
	}
	files, names := map[string]string{}, 0
	for _, m := range def.AllMetrics() {
		files[m.Name] = m.File
		names++
	}
	if len(files) != names || names != len(DefaultMetrics()) ||
		files["accelerator_temperature_celsius"] != "temperature" || files["accelerator_power_usage_watts"] == "" {
		t.Errorf("metrics: %v", files)
	}
	var of []string
	for _, l := range def.AllLimits() {
		of = append(of, l.Metric+" "+l.AboveMetric)
	}
	if want := []string{
		"accelerator_temperature_celsius ",
		"accelerator_memory_temperature_celsius accelerator_memory_temperature_critical_celsius",
	}; !slices.Equal(of,
		want) {
		t.Errorf("limits: %q", of)
	}
	if len(def.Metrics) != 1 || len(def.Limits) != 1 {
		t.Error("the definition was changed")
	}
}
