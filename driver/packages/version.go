package packages

import (
	"cmp"
	"strings"
)

// compare orders versions of a format: less than 0 if a is older than b.
func (f Format) compare(a, b string) int {
	epochA, restA := epoch(a)
	epochB, restB := epoch(b)
	if c := compareNumbers(epochA, epochB); c != 0 {
		return c
	}
	versionA, revisionA := revision(restA)
	versionB, revisionB := revision(restB)
	part := compareDeb
	if f == RPM {
		part = compareRPM
	}
	if c := part(versionA, versionB); c != 0 {
		return c
	}
	return part(revisionA, revisionB)
}

// epoch splits a version, such as "1:2.3-4", into "1" and "2.3-4".
func epoch(version string) (number, rest string) {
	if number, rest, ok := strings.Cut(version, ":"); ok {
		return number, rest
	}
	return "0", version
}

// revision splits a version without epoch, such as "2.3-4", into "2.3" and "4".
func revision(version string) (upstream, revision string) {
	if i := strings.LastIndexByte(version, '-'); i >= 0 {
		return version[:i], version[i+1:]
	}
	return version, ""
}

// upstream is a version without epoch and revision: what it is called where it was made.
func upstream(version string) string {
	_, rest := epoch(version)
	out, _ := revision(rest)
	return out
}

// matches reports whether a version is the wanted one, or begins with it and goes on with another part.
func matches(version, wanted string) bool {
	_, rest := epoch(version)
	if wanted == "" || version == wanted {
		return true
	}
	after, ok := strings.CutPrefix(rest, wanted)
	return ok && (after == "" || !letter(after[0]) && !digit(after[0]))
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// digits splits the digits off the beginning.
func digits(s string) (number, rest string) {
	i := 0
	for i < len(s) && digit(s[i]) {
		i++
	}
	return s[:i], s[i:]
}

// compareNumbers orders decimal numbers of any length.
func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// compareDeb orders a part of two versions (deb-version(7)), in which text and numbers alternate. In text, a tilde
// comes before the end, and letters before all other characters.
func compareDeb(a, b string) int {
	for a != "" || b != "" {
		for a != "" && !digit(a[0]) || b != "" && !digit(b[0]) {
			if c := cmp.Compare(orderDeb(a), orderDeb(b)); c != 0 {
				return c
			}
			a, b = a[1:], b[1:]
		}
		var numberA, numberB string
		numberA, a = digits(a)
		numberB, b = digits(b)
		if c := compareNumbers(numberA, numberB); c != 0 {
			return c
		}
	}
	return 0
}

func orderDeb(s string) int {
	switch {
	case s == "" || digit(s[0]):
		return 0
	case s[0] == '~':
		return -1
	case letter(s[0]):
		return int(s[0])
	}
	return int(s[0]) + 256
}

// compareRPM orders a part of two versions as rpmvercmp of rpm does: by segments of digits or letters, where a tilde
// comes before the end, a caret after it, and a number after letters.
func compareRPM(a, b string) int {
	for a != "" || b != "" {
		a, b = strings.TrimLeftFunc(a, separator), strings.TrimLeftFunc(b, separator)
		tildeA, tildeB := strings.HasPrefix(a, "~"), strings.HasPrefix(b, "~")
		caretA, caretB := strings.HasPrefix(a, "^"), strings.HasPrefix(b, "^")
		switch {
		case tildeA && tildeB, caretA && caretB:
			a, b = a[1:], b[1:]
			continue
		case tildeA:
			return -1
		case tildeB:
			return 1
		case caretA && b != "", caretB && a == "":
			return -1
		case caretA, caretB:
			return 1
		case a == "" || b == "":
			return cmp.Compare(len(a), len(b))
		case digit(a[0]) && !digit(b[0]):
			return 1
		case digit(b[0]) && !digit(a[0]):
			return -1
		}
		partA, partB := segment(a), segment(b)
		a, b = a[len(partA):], b[len(partB):]
		c := strings.Compare(partA, partB)
		if digit(partA[0]) {
			c = compareNumbers(partA, partB)
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

// separator reports whether rpm skips a character.
func separator(r rune) bool {
	return r > 127 || !digit(byte(r)) && !letter(byte(r)) && r != '~' && r != '^'
}

// segment is the longest beginning of digits only or letters only.
func segment(s string) string {
	kind := letter
	if digit(s[0]) {
		kind = digit
	}
	i := 1
	for i < len(s) && kind(s[i]) {
		i++
	}
	return s[:i]
}
