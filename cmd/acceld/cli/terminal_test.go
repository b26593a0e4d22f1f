package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBreakAt(t *testing.T) {
	for name, c := range map[string]struct {
		prefix string
		hang   int
		text   string
		want   string
	}{
		"short":     {"  ", 6, "one two", "  one two\n"},
		"at spaces": {"  ", 6, "one two three four five six", "  one two three four\n      five six\n"},
		"colours take no column": {
			"  ", 6, "one two \x1b[1;31mthree\x1b[0m four",
			"  one two \x1b[1;31mthree\x1b[0m four\n",
		},
		"characters, not bytes":  {"", 4, "öööö öööö öööö öööö", "öööö öööö öööö öööö\n"},
		"a table's spaces stay":  {"", 4, "One    two  three four five", "One    two  three\n    four five\n"},
		"below what is labelled": {"  driver  ", 10, "one two three", "  driver  one two\n          three\n"},
		"a word that is too long": {
			"  ", 6, "/usr/share/containers/oci/hooks.d is it",
			"  /usr/share/containers/oci/hooks.d\n      is it\n",
		},
		"nothing before it": {"", 4, "one two three four five six", "one two three four\n    five six\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &tableWriter{width: 20}
			s.breakAt(c.prefix, c.hang, c.text)
			if diff := cmp.Diff(c.want, s.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
