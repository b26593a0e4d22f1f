package kmod

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
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
	a, ok := new(big.Int).SetString(want, 0)
	b, shown := new(big.Int).SetString(have, 0)
	return ok && shown && a.Cmp(b) == 0
}

// kernelBool parses a boolean like the kernel's kstrtobool (lib/kstrtox.c).
func kernelBool(s string) (value, ok bool) {
	s = strings.ToLower(s)
	switch {
	case s == "", strings.ContainsAny(s[:1], "yt1"), strings.HasPrefix(s, "on"): // empty: a parameter without a value
		return true, true
	case strings.ContainsAny(s[:1], "nf0"), strings.HasPrefix(s, "of"):
		return false, true
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
	switch kind {
	case "bool", "invbool", "bint":
		if _, ok := kernelBool(value); !ok || value == "" {
			return "not a boolean"
		}
	case "charp", "string":
		if len(value) > 1024 {
			return "longer than 1024 bytes"
		}
	}
	signed := map[string]int{"short": 16, "int": 32, "long": 64, "llong": 64} // the bits of each type
	unsigned := map[string]int{"byte": 8, "ushort": 16, "uint": 32, "hexint": 32, "ulong": 64, "ullong": 64}
	if bits, ok := signed[kind]; ok {
		return numberRefused(value, bits, true)
	}
	if bits, ok := unsigned[kind]; ok {
		return numberRefused(value, bits, false)
	}
	return ""
}

// numberRefused says why kstrtoint and its family would refuse a number (lib/kstrtox.c). They accept the prefixes 0x
// and 0, but none of Go's other number syntax.
func numberRefused(value string, bits int, signed bool) string {
	digits, sign := strings.TrimPrefix(value, "+"), ""
	if rest, ok := strings.CutPrefix(value, "-"); ok && signed {
		digits, sign = rest, "-"
	}
	base := 10
	if rest, ok := strings.CutPrefix(strings.ToLower(digits), "0x"); ok {
		base, digits = 16, rest
	} else if len(digits) > 1 && digits[0] == '0' {
		base = 8
	}
	_, err := strconv.ParseUint(digits, base, bits)
	if signed {
		_, err = strconv.ParseInt(sign+digits, base, bits)
	}
	switch {
	case strings.ContainsAny(digits, "+-_"):
		return "not a number"
	case errors.Is(err, strconv.ErrRange):
		return "out of range"
	case err != nil:
		return "not a number"
	}
	return ""
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
			return fmt.Sprintf("parameter %q is %q, wanted is %q", name, have, want[name]), nil
		}
	}
	return "", nil
}
