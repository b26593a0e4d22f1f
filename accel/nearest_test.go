package accel

import "testing"

func TestNearest(t *testing.T) {
	for _, c := range []struct {
		word  string
		words []string
		want  string
	}{
		{"logLvl", []string{"logLevel", "listen"}, "logLevel"},
		{"log-level", []string{"logLevel"}, "logLevel"},
		{"drop-in", []string{"never", "dropin", "full"}, "dropin"},
		{"registrx", []string{"registry"}, "registry"},
		{"cat", []string{"dog"}, ""},
		{"ab", []string{"cd"}, ""},
		{"gpux", []string{"gpua", "gpub"}, ""}, // one as near as the other
		{"", []string{"a"}, ""},
		{"x", []string{""}, ""},
	} {
		if got := Nearest(c.word, c.words); got != c.want {
			t.Errorf("%q of %q: %q, want %q", c.word, c.words, got, c.want)
		}
	}
	if got := NotOneOf("infp", "debug", "info"); got != `"infp" is not one of debug, info: did you mean "info"?` {
		t.Error(got)
	}
	if got := NotOneOf("info", "debug", "info"); got != "" {
		t.Error(got)
	}
}
