package source

import (
	"slices"
	"strings"
	"testing"
)

func TestMatching(t *testing.T) {
	const unknown = "535.any-version"
	got := matching([]string{
		"v535.1.0-6.1", "v535.2.0-6.1", "v535.2.0-6.2", "535.3.0-6.1", "v-6.1", "v535..4-6.1", "v535/5-6.1", "v535.6",
		"xv535.7-6.1", "build-535.8",
	}, unknown, "v"+unknown+"-6.1", "build-"+unknown, "none")
	if want := []string{"535.1.0", "535.2.0", "535.8"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// FuzzMatching: what a registry or a directory is full of gives versions that are part of the names, and no more.
func FuzzMatching(f *testing.F) {
	f.Add("v535.1.0-6.1", "v", "-6.1")
	f.Add("535", "", "")
	f.Add("aa", "a", "a")
	f.Fuzz(func(t *testing.T, name, before, after string) {
		for _, v := range matching([]string{name}, "\x00", before+"\x00"+after) {
			if before+v+after != name || strings.ContainsAny(v, "/\x00 \n") || strings.Contains(v, "..") || v == "" {
				t.Errorf("%q of %q", v, name)
			}
		}
	})
}
