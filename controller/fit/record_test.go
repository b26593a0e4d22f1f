package fit_test

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/controller/fit"
)

// TestUID: UUIDs take 16 bytes, and no two UIDs are the same.
func TestUID(t *testing.T) {
	const id = "0123abcd-4567-89ab-cdef-0123456789ab"
	own := fit.NewUID(id)
	if string(own[:]) != "\x01\x23\xab\xcd\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab" {
		t.Errorf("%q", own)
	}
	seen := map[fit.UID]string{}
	for _, text := range []string{
		id, string(own[:]), "", "u", "uid-p", strings.ToUpper(id), strings.Replace(id, "-", "0", 1), id + "0", id[1:], "x" + id[1:],
		strings.ReplaceAll(id, "-", ""), "0123456789abcdef", "0123456789abcdef?", id[:8] + "_" + id[9:],
	} {
		if first, twice := seen[fit.NewUID(text)]; twice {
			t.Errorf("%q and %q are the same", first, text)
		}
		seen[fit.NewUID(text)] = text
	}
}
