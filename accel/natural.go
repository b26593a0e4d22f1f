package accel

import (
	"cmp"
	"strings"
)

// Natural compares names as people count: "hwmon2" comes before "hwmon10". The result is negative, 0 or positive, as
// with strings.Compare.
func Natural(a, b string) int {
	for a != "" && b != "" {
		x, y := number(a), number(b)
		if x == "" || y == "" {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		m, n := strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if c := cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n), cmp.Compare(len(x), len(y))); c != 0 {
			return c
		}
		a, b = a[len(x):], b[len(y):]
	}
	return cmp.Compare(len(a), len(b))
}

// number returns the decimal number at the start of s; empty if there is none.
func number(s string) string { return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))] }
