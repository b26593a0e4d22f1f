package kmod

import "testing"

func TestSameParameter(t *testing.T) {
	for _, c := range []struct {
		want, have string
		same       bool
	}{
		{"1", "Y", true},
		{"y", "Y", true},
		{"true", "Y", true},
		{"on", "Y", true},
		{"", "Y", true},
		{"0", "N", true},
		{"off", "N", true},
		{"no", "N", true},
		{"1", "N", false},
		{"0", "Y", false},
		{"maybe", "Y", false},
		{"2", "Y", false},
		{"0x10", "16", true},
		{"16", "16", true},
		{"-1", "-1", true},
		{"16", "17", false},
		{"0xffffffffffffffff", "18446744073709551615", true},
		{"a b", "a b", true},
		{"abc", "abcd", false},
		{"", "(null)", true},
		{"1,2,3", "1,2,3", true},
		{"7", "seven", false},
	} {
		if got := sameParameter(c.want, c.have); got != c.same {
			t.Errorf("wanted %q, sysfs shows %q: %t", c.want, c.have, got)
		}
	}
}

func TestJoinParameters(t *testing.T) {
	if got := JoinParameters(map[string]string{"b": "1", "a": "x y", "c": ""}); got != `a="x y" b=1 c=` {
		t.Error(got)
	}
}
