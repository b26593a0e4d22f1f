package vendors

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestSettingFaults changes one thing in the settings of a good definition.
func TestSettingFaults(t *testing.T) {
	const set = `settings:
  - name: powerLimitWatts
    file: hwmon/hwmon*/power1_cap
    factor: 1000000
    minFile: hwmon/hwmon*/power1_cap_min
    max: 300
    value: 250
  - name: mode
    file: mode
    values: {on: "1", off: "0"}
    value: on
`
	def, faults := Read([]byte(good + set))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if s := def.Settings; s[0].Value != "250" || s[1].Value != "on" || s[1].Values["off"] != "0" {
		t.Errorf("%+v", s)
	}
	if got := def.Privileged(); !strings.Contains(strings.Join(got, "; "), "settings[0].file: writes to the device") {
		t.Errorf("%q", got)
	}
	for _, c := range []struct{ old, new, want string }{
		{"file: mode", "file: /sys/kernel/x", `settings[1].file: "/sys/kernel/x" leaves the directory`},
		{"file: mode", "file: ../mode", `settings[1].file: "../mode" leaves the directory`},
		{"file: mode", `file: "mode|other"`, `settings[1].file: "mode|other" is not a pattern of one file`},
		{"file: mode", `file: "mode[" `, `settings[1].file: "mode[" is not a pattern of one file`},
		{"power1_cap_min", "../min", `settings[0].minFile: "hwmon/hwmon*/../min" leaves the directory`},
		{"    file: mode\n", "", `settings[1].file: is needed, because the kind has no probe program`},
		{"value: on", "value: maybe", `settings[1].value: "maybe" is not one of off, on`},
		{"value: on", "value: [on]", `settings[1].value: must be a word, a number, on or off`},
		{"value: 250", "value: 301", `settings[0].value: 301 is above 300`},
		{"factor: 1000000", "factor: 0.1", `settings[0].factor: "0.1" is not a whole number`},
		{`"1"`, `"1\n2"`, "settings[1].values.on: "},
	} {
		if !strings.Contains(set, c.old) {
			t.Fatalf("nothing to change: %q", c.old)
		}
		_, faults := Read([]byte(good + strings.Replace(set, c.old, c.new, 1)))
		found := false
		for _, f := range faults {
			found = found || strings.HasPrefix(f.String(), c.want) && f.Line > 24
		}
		if !found {
			t.Errorf("%q: %v, want %q", c.new, faults, c.want)
		}
	}
	confined := strings.Replace(good, "kind:", "confined: true\nkind:", 1)
	if _, faults := Read([]byte(confined + set)); len(faults) == 0 {
		t.Error("a confined definition writes to devices")
	}
}

// TestSettingsOfVendors: the names that the documentation gives.
func TestSettingsOfVendors(t *testing.T) {
	defs, problem := Definitions()
	if problem != nil {
		t.Fatal(problem)
	}
	for kind, names := range map[string][]string{
		"nvidia-gpu": {"persistence", "powerLimitWatts", "computeMode", "ecc", "lockedClockMHz"},
		"amd-gpu":    {"powerLimitWatts", "performanceLevel"},
		"qemu-edu":   {"limitPercent"},
	} {
		def := defs[kind]
		for _, name := range names {
			if s, found := def.Setting(name); !found || s.Value != "" {
				t.Errorf("%s: %s: %+v", kind, name, s)
			}
		}
	}
	watts, _ := defs["amd-gpu"].Setting("powerLimitWatts")
	if text, err := watts.Text(accel.SettingValue("250")); err != nil || text != "250000000" {
		t.Errorf("250 W are %q, %v", text, err)
	}
}
