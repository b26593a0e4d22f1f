package stage

import (
	"math/rand/v2"
	"os"
	"testing"
)

// share of what is done over and over is a test's part of it.
const share = 3

func every() bool { return os.Getenv("ACCELD_EVERY") == "1" }

// Times says how often a test does something that `make e2e` and `make faults` do n times: n, or in `make test` a third of it.
func Times(t testing.TB, n int) int {
	if every() {
		return n
	}
	some := max(1, n/share)
	t.Logf("%d times; %d with ACCELD_EVERY=1", some, n)
	return some
}

// Long leaves a scenario that takes very long to `make e2e` and `make faults`, and says so.
func Long(t testing.TB, why string) {
	t.Helper()
	if !every() {
		t.Skipf("%s: ACCELD_EVERY=1 runs it, as make e2e does", why)
	}
}

// Sample says which of many like steps a test takes: from first on each step-th. With ACCELD_EVERY=1, as `make e2e` and
// `make faults` have it, that is every one; `make test` takes a third of them, from another one each time.
func Sample(t testing.TB) (first, step int) {
	if every() {
		return 0, 1
	}
	first = rand.IntN(share)
	t.Logf("each %drd step, from number %d on; ACCELD_EVERY=1 takes all", share, first)
	return first, share
}
