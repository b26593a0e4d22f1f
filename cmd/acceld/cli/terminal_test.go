package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWrap(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"short":     {"  one two\n", "  one two\n"},
		"at spaces": {"  one two three four five six\n", "  one two three four\n      five six\n"},
		"colours take no column": {
			"  one two \x1b[1;31mthree\x1b[0m four\n",
			"  one two \x1b[1;31mthree\x1b[0m four\n",
		},
		"characters, not bytes":  {"öööö öööö öööö öööö\n", "öööö öööö öööö öööö\n"},
		"a table's spaces stay":  {"One    two  three four five\n", "One    two  three\n    four five\n"},
		"below what is labelled": {"  driver  one two three\n", "  driver  one two\n          three\n"},
		"a word that is too long": {
			"  /usr/share/containers/oci/hooks.d is it\n",
			"  /usr/share/containers/oci/hooks.d\n      is it\n",
		},
		"no newline at the end": {"one two three four five six", "one two three four\n    five six\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, wrap(c.in, 20)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
