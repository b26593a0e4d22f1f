package kmod

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/template"
	"github.com/acceld/acceld/host"
)

// JoinParameters makes the kernel's argument string, sorted by name: equal parameters give equal strings.
func JoinParameters(parameters map[string]string) string {
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

// sameParameter compares a configured value with the value in sysfs, which shows booleans as Y and N, numbers in base
// 10 and an unset string as "(null)".
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

// kernelBool parses a boolean like the kernel's kstrtobool (lib/kstrtox.c).
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

// parameter finds a parameter of the module and returns its own spelling and its type. Dashes and underscores are the
// same to the kernel (parameq, kernel/params.c).
func (m *Info) parameter(name string) (own, kind string, ok bool) {
	if kind, ok := m.parameters[name]; ok {
		return name, kind, true
	}
	for own, kind := range m.parameters {
		if Normal(own) == Normal(name) {
			return own, kind, true
		}
	}
	return "", "", false
}

// parameterRefused says why the kernel would refuse a value (kernel/params.c). Kind is the type as modinfo names it.
// It returns "" if the kernel would accept the value, or if the type is the module's own.
func parameterRefused(kind, value string) string {
	if element, ok := strings.CutPrefix(kind, "array of "); ok {
		for _, one := range strings.Split(value, ",") {
			if why := parameterRefused(element, one); why != "" {
				return why
			}
		}
		return ""
	}
	const most = 1024 // bytes of a string
	switch kind {
	case "bool", "invbool", "bint":
		if _, ok := kernelBool(value); !ok || value == "" {
			return "not a boolean"
		}
	case "charp", "string":
		if len(value) > most {
			return "longer than 1024 bytes"
		}
	case "byte":
		return numberRefused(value, 8, false)
	case "short":
		return numberRefused(value, 16, true)
	case "ushort":
		return numberRefused(value, 16, false)
	case "int":
		return numberRefused(value, 32, true)
	case "uint", "hexint":
		return numberRefused(value, 32, false)
	case "long", "llong":
		return numberRefused(value, 64, true)
	case "ulong", "ullong":
		return numberRefused(value, 64, false)
	}
	return ""
}

// numberRefused says why kstrtoint and its family would refuse a number (lib/kstrtox.c). They accept the prefixes 0x
// and 0, but none of Go's other number syntax.
func numberRefused(value string, bits int, signed bool) string {
	digits := strings.TrimPrefix(value, "+")
	if signed && digits == value {
		digits = strings.TrimPrefix(value, "-")
	}
	base := 10
	if rest, ok := strings.CutPrefix(strings.ToLower(digits), "0x"); ok {
		base, digits = 16, rest
	} else if len(digits) > 1 && digits[0] == '0' {
		base = 8
	}
	n, err := strconv.ParseUint(digits, base, 64)
	if errors.Is(err, strconv.ErrRange) {
		return "out of range"
	}
	if err != nil || strings.ContainsAny(digits, "+-_") {
		return "not a number"
	}
	limit := uint64(1)<<(bits-1)<<1 - 1 // of an unsigned number
	if signed {
		limit >>= 1
		if strings.HasPrefix(value, "-") {
			limit++
		}
	}
	if n > limit {
		return "out of range"
	}
	return ""
}

// asMap returns parameters as a map from name to value.
func asMap(words []Parameter) map[string]string {
	out := map[string]string{}
	for _, p := range words {
		out[p.Name] = p.Value
	}
	return out
}

// Differing returns a sentence about the first parameter of a live module that differs from its configured value, ""
// if there is none. It skips a parameter that sysfs does not show.
func Differing(h *host.Host, def *accel.Definition, facts accel.Facts, m accel.Module) (string, *accel.Problem) {
	want, problem := template.Parameters(def, facts, m)
	if problem != nil && problem.Reason == accel.APIUnreachable {
		return "", nil // the configured value is unknown: keep the current driver
	}
	if problem != nil {
		return "", problem
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		have, err := h.ReadAttribute(path.Join("/sys/module", Normal(m.Name), "parameters", name))
		if err == nil && !sameParameter(want[name], have) {
			return "parameter " + strconv.Quote(name) + " is " + strconv.Quote(have) + ", wanted is " +
				strconv.Quote(want[name]), nil
		}
	}
	return "", nil
}
