package loop

import (
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
)

// The end of another node's build is an event: the loop then looks for the artifact, however long its backoff had
// become.
func TestForgiveBuildElsewhere(t *testing.T) {
	k, now := &kind{}, time.Now()
	l := &Loop{kinds: map[string]*kind{"a": k}}
	for range 9 {
		k.note(accel.StepDriver, accel.Problemf(accel.BuildElsewhere, "node %q builds", "b"), now)
	}
	if wait := k.have.Failure.RetryAt.Sub(now); wait < time.Minute {
		t.Errorf("without a word it is looked for after %v", wait)
	}
	l.forgive()
	if wait := time.Until(k.have.Failure.RetryAt); wait > 0 {
		t.Errorf("told, it is looked for after %v", wait)
	}
}
