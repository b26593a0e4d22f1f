package agent

import (
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
)

// What another node builds is looked for every few seconds, however long it takes: nothing tells this node when it is there.
func TestBuildElsewhereIsLookedForSoon(t *testing.T) {
	k, now := &kind{}, time.Now()
	for range 30 {
		(&Loop{}).note(k, accel.StepDriver, accel.Problemf(accel.BuildElsewhere, "node %q builds", "a"), now)
		if wait := k.have.Failure.RetryAt.Sub(now); wait < time.Second || wait > 10*time.Second {
			t.Fatalf("attempt %d: looked for after %v", k.have.Failure.Attempts, wait)
		}
	}
}
