package driver

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
)

// joinParameters makes the kernel's argument string, sorted by name: equal wants give equal strings.
func joinParameters(parameters map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		value := parameters[name]
		if strings.ContainsAny(value, " \t") {
			value = `"` + value + `"`
		}
		out = append(out, name+"="+value)
	}
	return strings.Join(out, " ")
}

// sameParameter compares a wanted value with what sysfs shows of it: booleans as Y and N, numbers in base 10, an unset
// string as "(null)".
func sameParameter(want, have string) bool {
	want, have = strings.TrimSpace(want), strings.TrimSpace(have)
	if want == have || want == "" && have == "(null)" {
		return true
	}
	if have == "Y" || have == "N" {
		b, ok := kernelBool(want)
		return ok && b == (have == "Y")
	}
	if a, err := strconv.ParseInt(want, 0, 64); err == nil {
		b, err := strconv.ParseInt(have, 0, 64)
		return err == nil && a == b
	}
	if a, err := strconv.ParseUint(want, 0, 64); err == nil {
		b, err := strconv.ParseUint(have, 0, 64)
		return err == nil && a == b
	}
	return false
}

// kernelBool reads a boolean as the kernel's kstrtobool does (lib/kstrtox.c).
func kernelBool(s string) (value, ok bool) {
	if s == "" {
		return true, true // a parameter without a value
	}
	switch s[0] {
	case 'y', 'Y', 't', 'T', '1':
		return true, true
	case 'n', 'N', 'f', 'F', '0':
		return false, true
	case 'o', 'O':
		if len(s) > 1 {
			switch s[1] {
			case 'n', 'N':
				return true, true
			case 'f', 'F':
				return false, true
			}
		}
	}
	return false, false
}

// differing returns a sentence about the first parameter of a live module that is not as wanted, "" when there is none.
// A parameter that sysfs does not show cannot be compared and is taken as it is.
func (d *Driver) differing(def *accel.Definition, facts accel.Facts, m accel.Module) (string, *accel.Problem) {
	want, problem := d.expandParameters(def, facts, m)
	if problem != nil {
		return "", problem
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		have, err := d.h.ReadString(path.Join("/sys/module", normal(m.Name), "parameters", name))
		if err == nil && !sameParameter(want[name], have) {
			return "parameter " + strconv.Quote(name) + " is " + strconv.Quote(have) + ", wanted is " + strconv.Quote(want[name]), nil
		}
	}
	return "", nil
}
