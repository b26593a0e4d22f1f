package host

import (
	"testing"
	"time"
)

// TestProcessorTime: work counts, waiting does not.
func TestProcessorTime(t *testing.T) {
	const pause = 200 * time.Millisecond
	if took := ProcessorTime(func() { time.Sleep(pause) }); took >= pause/2 {
		t.Errorf("waiting took %v", took)
	}
	begin := time.Now()
	took := ProcessorTime(func() {
		for time.Since(begin) < pause {
			continue
		}
	})
	if lasted := time.Since(begin); took <= 0 || took > lasted {
		t.Errorf("work of %v took %v", lasted, took)
	}
}
