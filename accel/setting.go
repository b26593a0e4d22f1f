package accel

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Setting is something that can be set on the devices of a kind, such as a power limit: an attribute of the driver, or,
// without File, something that the kind's probe program sets ([ProbeSetting]). A value is one of Values, or a number.
type Setting struct {
	// Name is how the configuration names it, with its unit, such as "powerLimitWatts".
	Name string `json:"name"`
	// File is an attribute relative to the PCI function's sysfs directory, which can be read and written. It may be a
	// glob pattern that matches one file, such as "hwmon/hwmon*/power1_cap".
	File string `json:"file,omitempty" privileged:"writes to the device"`
	// Values are words that can be configured, each with the text of the attribute, or of the program, that it stands
	// for, such as {on: "1", off: "0"}.
	Values map[string]string `json:"values,omitempty"`
	// Factor is how many of the attribute's units are one of the name's: 1000000 if the name says watts and the
	// attribute has microwatts. 1 when 0.
	Factor int64 `json:"factor,omitempty"`
	// Min and Max bound a number, in the unit of the name. MinFile and MaxFile are attributes with the bounds of a
	// device, in the attribute's unit, relative to the same directory as File.
	Min     *float64 `json:"min,omitempty"`
	Max     *float64 `json:"max,omitempty"`
	MinFile string   `json:"minFile,omitempty"`
	MaxFile string   `json:"maxFile,omitempty"`
	// Needs is what the change of a value needs; nothing when empty.
	Needs SettingNeeds `json:"needs,omitempty"`
	// Lasting says that the device keeps the value over a reboot. So does the record of what was there before.
	Lasting bool `json:"lasting,omitempty"`
	// Undo is the value that undoes it if the device does not say what was there before.
	Undo SettingValue `json:"undo,omitempty"`
	// Value is what is to be set; nothing when empty. Usually the configuration of the kind has it instead.
	Value SettingValue `json:"value,omitempty"`
}

// SettingNeeds is what the change of a setting needs.
type SettingNeeds string

// The values of SettingNeeds.
const (
	SettingNeedsIdle  SettingNeeds = "idle"  // it is written only while nobody has the device
	SettingNeedsReset SettingNeeds = "reset" // it takes effect after a reset of the device, or a reboot
)

// SettingValue is the value of a setting: a word or a number. YAML and JSON may have a text, a number or a switch: true
// is "on" and false is "off", because YAML 1.1 reads an unquoted on or off as these.
type SettingValue string

// UnmarshalJSON implements json.Unmarshaler. What is no value at all is kept as it is, so that its problem names it.
func (v *SettingValue) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) != nil {
		text = string(b)
	}
	switch text {
	case "true":
		text = "on"
	case "false":
		text = "off"
	}
	*v = SettingValue(text)
	return nil
}

// Bounds of settings and of their values.
const (
	maxSettings    = 32
	maxSettingText = 64 // bytes
	maxFactor      = 1_000_000_000
)

// Forms of names, of values that can be configured, and of what an attribute may have.
var (
	settingName  = regexp.MustCompile(`^[a-z][A-Za-z0-9]{0,62}$`)
	settingValue = regexp.MustCompile(`^[A-Za-z0-9_.+-]{1,64}$`)
	settingText  = regexp.MustCompile(`^[\x21-\x7e]([\x20-\x7e]{0,62}[\x21-\x7e])?$`)
)

// SettingName reports whether a text has the form of a setting's name.
func SettingName(text string) bool { return settingName.MatchString(text) }

// SettingText reports whether a text may be what an attribute of a setting has: one short line.
func SettingText(text string) bool { return settingText.MatchString(text) }

func (v SettingValue) problem() string {
	if settingValue.MatchString(string(v)) {
		return ""
	}
	return fmt.Sprintf("%.80q is neither a word nor a number", string(v))
}

// Setting returns the setting with a name.
func (def *Definition) Setting(name string) (s Setting, found bool) {
	i := slices.IndexFunc(def.Settings, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		return s, false
	}
	return def.Settings[i], true
}

// Sets reports whether something is to be set on the devices of the kind.
func (def *Definition) Sets() bool {
	return slices.ContainsFunc(def.AllSettings(), func(s Setting) bool { return s.Value != "" })
}

// numeric reports whether a number can be configured.
func (s Setting) numeric() bool {
	return len(s.Values) == 0 || s.Min != nil || s.Max != nil || s.MinFile != "" || s.MaxFile != ""
}

// Text returns the text of the attribute, or of the program, that a value stands for. It is an error if the definition
// does not allow the value. The bounds of one device are not looked at.
func (s Setting) Text(v SettingValue) (string, error) {
	if text, ok := s.Values[string(v)]; ok {
		return text, nil
	}
	words := strings.Join(slices.Sorted(maps.Keys(s.Values)), ", ")
	n, err := strconv.ParseFloat(string(v), 64)
	switch {
	case !s.numeric():
		return "", errors.New(NotOneOf(string(v), slices.Sorted(maps.Keys(s.Values))...))
	case (err != nil || math.IsNaN(n) || math.IsInf(n, 0)) && words == "":
		return "", fmt.Errorf("%.80q is not a number", string(v))
	case err != nil || math.IsNaN(n) || math.IsInf(n, 0):
		return "", fmt.Errorf("%.80q is neither a number nor one of %s", string(v), words)
	case s.Min != nil && n < *s.Min:
		return "", fmt.Errorf("%s is below %s", plainNumber(n), plainNumber(*s.Min))
	case s.Max != nil && n > *s.Max:
		return "", fmt.Errorf("%s is above %s", plainNumber(n), plainNumber(*s.Max))
	}
	if s.Factor > 1 {
		n = math.Round(n * float64(s.Factor))
	}
	text := plainNumber(n)
	if len(text) > maxSettingText {
		return "", errors.New("the number is too long")
	}
	return text, nil
}

// Word returns how people read a text of the attribute: a word, or a number in the unit of the setting's name.
func (s Setting) Word(text string) string {
	for _, word := range slices.Sorted(maps.Keys(s.Values)) {
		if SameSetting(s.Values[word], text) {
			return word
		}
	}
	if n, ok := settingNumber(text); ok && s.numeric() {
		return plainNumber(n / float64(max(s.Factor, 1)))
	}
	return text
}

func plainNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// settingNumber reads a number as attributes have it: decimal, or hexadecimal with 0x.
func settingNumber(text string) (n float64, ok bool) {
	if rest, hex := strings.CutPrefix(text, "0x"); hex {
		i, err := strconv.ParseUint(rest, 16, 64)
		return float64(i), err == nil
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// SameSetting reports whether two texts of an attribute are the same value: equal, or the same number.
func SameSetting(a, b string) bool {
	if a == b {
		return true
	}
	x, isNumber := settingNumber(a)
	y, too := settingNumber(b)
	return isNumber && too && x == y
}

// Within returns why a text of the attribute is outside the bounds of a device, which are texts too; nil if it is not,
// or is no number. An empty bound is none.
func (s Setting) Within(text, least, most string) error {
	n, ok := settingNumber(text)
	if !ok {
		return nil
	}
	if low, ok := settingNumber(least); ok && n < low {
		return fmt.Errorf("%s is below %s, the least that this device allows", s.Word(text), s.Word(least))
	}
	if high, ok := settingNumber(most); ok && n > high {
		return fmt.Errorf("%s is above %s, the most that this device allows", s.Word(text), s.Word(most))
	}
	return nil
}

// SettingProblems returns the errors in the settings of a definition, each as "<field>: <sentence>". Program says
// whether the kind has a probe program.
func SettingProblems(all []Setting, program bool) (out []string) {
	if len(all) > maxSettings {
		out = append(out, fmt.Sprintf("settings: there are %d, at most %d are possible", len(all), maxSettings))
	}
	seen := map[string]bool{}
	for i, s := range all {
		out = append(out, under(fmt.Sprintf("settings[%d].", i), s.problems(program))...)
		if seen[s.Name] {
			out = append(out, fmt.Sprintf("settings[%d].name: %q is there twice", i, s.Name))
		}
		seen[s.Name] = true
	}
	return out
}

func (s Setting) problems(program bool) (out []string) {
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if !SettingName(s.Name) {
		bad("name: %.80q is not a name such as powerLimitWatts", s.Name)
	}
	if s.OfFunctions() {
		bad("name: %q is what the field functions sets", s.Name)
	}
	if s.File == "" && !program {
		bad("file: is needed, because the kind has no probe program")
	}
	if !slices.Contains([]SettingNeeds{"", SettingNeedsIdle, SettingNeedsReset}, s.Needs) {
		bad("needs: %s", NotOneOf(s.Needs, SettingNeedsIdle, SettingNeedsReset))
	}
	if s.Needs == SettingNeedsReset && s.File != "" {
		bad("needs: only a probe program can tell what takes effect after a reset")
	}
	if s.File == "" && (s.MinFile != "" || s.MaxFile != "") {
		bad("minFile: the bounds of a setting without a file are the probe program's")
	}
	if s.File != "" && s.numeric() && (s.Min == nil && s.MinFile == "" || s.Max == nil && s.MaxFile == "") {
		bad("min: a number needs min or minFile, and max or maxFile")
	}
	if s.Factor < 0 || s.Factor > maxFactor {
		bad("factor: %d is not from 1 to %d", s.Factor, maxFactor)
	}
	if s.Min != nil && s.Max != nil && *s.Min > *s.Max {
		bad("min: %s is above max", plainNumber(*s.Min))
	}
	texts := map[string]string{}
	for _, word := range slices.Sorted(maps.Keys(s.Values)) {
		text := s.Values[word]
		if why := SettingValue(word).problem(); why != "" {
			bad("values: %s", why)
		}
		if !SettingText(text) {
			bad("values.%s: %.80q is not a short line of text", word, text)
		}
		if texts[text] != "" {
			bad("values.%s: %q is %s already", word, text, texts[text])
		}
		texts[text] = word
	}
	for field, v := range map[string]SettingValue{"undo": s.Undo, "value": s.Value} {
		if v == "" {
			continue
		}
		if _, err := s.Text(v); err != nil {
			bad("%s: %v", field, err)
		}
	}
	slices.Sort(out)
	return out
}

// settingProblems returns the errors in what a configuration sets, whatever the definition allows.
func (k KindConfig) settingProblems() (out []string) {
	if len(k.Settings) > maxSettings {
		out = append(out, fmt.Sprintf("settings: there are %d, at most %d are possible", len(k.Settings), maxSettings))
	}
	for _, name := range slices.Sorted(maps.Keys(k.Settings)) {
		if !SettingName(name) {
			out = append(out, fmt.Sprintf("settings: %.80q is not a name such as powerLimitWatts", name))
		}
		if why := k.Settings[name].problem(); why != "" {
			out = append(out, fmt.Sprintf("settings.%.63s: %s", name, why))
		}
	}
	return out
}

// settings returns the settings of def with the configured values; misfit says what the definition does not allow.
func (k KindConfig) settings(def *Definition) (all []Setting, misfit string) {
	if len(k.Settings) == 0 {
		return def.Settings, ""
	}
	all = slices.Clone(def.Settings)
	for _, name := range slices.Sorted(maps.Keys(k.Settings)) {
		i := slices.IndexFunc(all, func(s Setting) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Sprintf("settings.%s: the definition has no such setting%s", name, settingNames(name, all))
		}
		if _, err := all[i].Text(k.Settings[name]); err != nil {
			return nil, fmt.Sprintf("settings.%s: %v", name, err)
		}
		all[i].Value = k.Settings[name]
	}
	return all, ""
}

func settingNames(word string, all []Setting) string {
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	if names == nil {
		return ""
	}
	return thereAre(word, names)
}
