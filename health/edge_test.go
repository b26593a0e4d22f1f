package health

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestEvidenceIsShort: a line of the kernel log is evidence in a sentence, and no book.
func TestEvidenceIsShort(t *testing.T) {
	for _, text := range []string{strings.Repeat("ü", 4000), strings.Repeat("x", 301), "\xff" + strings.Repeat("y", 1000)} {
		if got := line(text); len(got) > 300+len("…") || !strings.HasSuffix(got, "…") || !utf8.ValidString(got) {
			t.Errorf("%d bytes of %d: %q", len(got), len(text), got)
		}
	}
	if got := line("  NVRM: it is well \n"); got != "NVRM: it is well" {
		t.Errorf("%q", got)
	}
}
