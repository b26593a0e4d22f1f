package accel

import (
	"fmt"
	"regexp"
	"strings"
)

// Form is what a text must look like.
type Form struct {
	// Expr matches all of the text. People never see it.
	Expr *regexp.Regexp
	// Say is what the text must be, for people, such as "an amount such as 8Gi".
	Say string
}

// Problem says that a text does not have the form, and what to write if that can be told; empty if it has the form.
func (f Form) Problem(text string) string {
	if f.Expr.MatchString(text) {
		return ""
	}
	for _, mended := range mended(text) {
		if mended != "" && f.Expr.MatchString(mended) {
			return fmt.Sprintf("%.64q is not %s: write %q", text, f.Say, mended)
		}
	}
	return fmt.Sprintf("%.64q is not %s", text, f.Say)
}

// mended returns what somebody may have meant: in lower case, without 0x, spaces or the end of a module's file name,
// with the other kind of dash.
func mended(text string) []string {
	if len(text) > longestWord {
		return nil
	}
	lower := strings.ToLower(strings.TrimSpace(text))
	out := []string{strings.TrimSpace(text), lower, strings.TrimPrefix(lower, "0x"), strings.TrimSuffix(text, ".ko")}
	for _, end := range []string{"B", "iB", "b"} { // 4GB
		if number, is := strings.CutSuffix(text, end); is {
			out = append(out, number, number+"i")
		}
	}
	return append(out, strings.ReplaceAll(lower, "_", "-"), strings.ReplaceAll(lower, " ", "-"),
		strings.ReplaceAll(text, "-", "_"), strings.ReplaceAll(text, " ", ""))
}
