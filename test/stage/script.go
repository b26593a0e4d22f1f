package stage

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/test/vm/bed"
)

// Within is the test's context with an end after d.
func Within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Check ends the test with an error, if there is one.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Sh runs a fixed script in the guest, which must succeed within d, and returns what it said.
func Sh(t testing.TB, g *bed.Guest, d time.Duration, script string, args ...string) string {
	t.Helper()
	res, err := g.Sh(Within(t, d), script, args...)
	if err := Must(res, err); err != nil {
		t.Fatalf("script %q: %v", script, err)
	}
	return strings.TrimSpace(res.Stdout)
}
