package stage

import (
	"math/rand/v2"
	"os"
	"testing"
)

// share of what is done over and over is a test's part of it.
const share = 5

func every() bool { return os.Getenv("ACCELD_EVERY") == "1" }

// Times says how often a test does something that `make e2e` and `make faults` do n times: n, or in `make test` a fifth of it.
func Times(t testing.TB, n int) int {
	if every() {
		return n
	}
	some := max(1, n/share)
	t.Logf("%d times; %d with ACCELD_EVERY=1", some, n)
	return some
}

// Long leaves a scenario, or a part of one, that is costly or like another to `make e2e` and `make faults`, and says so.
func Long(t testing.TB, why string) {
	t.Helper()
	if !every() {
		t.Skipf("%s: ACCELD_EVERY=1 runs it, as make e2e does", why)
	}
}

// Rest reports whether what follows in a scenario is left to `make e2e` and `make faults`, for the reason that it is told.
func Rest(t testing.TB, why string) bool {
	t.Helper()
	if every() {
		return false
	}
	t.Logf("%s: the rest is for ACCELD_EVERY=1, as make e2e has it", why)
	return true
}

// Sample says which of many like steps a test takes: from first on each step-th. With ACCELD_EVERY=1, as `make e2e` and
// `make faults` have it, that is every one; `make test` takes a fifth of them, from another one each time.
func Sample(t testing.TB) (first, step int) {
	if every() {
		return 0, 1
	}
	first = rand.IntN(share)
	t.Logf("each %dth step, from number %d on; ACCELD_EVERY=1 takes all", share, first)
	return first, share
}
