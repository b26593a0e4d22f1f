package stage

import (
	"math/rand/v2"
	"os"
	"testing"
)

// Sample says which of many like steps a test takes: from first on each step-th. With ACCELD_EVERY=1, as `make e2e` and
// `make faults` have it, that is every one; `make test` takes a third of them, from another one each time.
func Sample(t testing.TB) (first, step int) {
	if os.Getenv("ACCELD_EVERY") == "1" {
		return 0, 1
	}
	const share = 3
	first = rand.IntN(share)
	t.Logf("each %drd step, from number %d on; ACCELD_EVERY=1 takes all", share, first)
	return first, share
}
