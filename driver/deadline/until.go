package deadline

import (
	"context"
	"time"
)

// Until polls done at growing intervals, 1 ms to 100 ms, until done returns true, limit passes or ctx ends. It returns
// what done returned last.
func Until(ctx context.Context, limit time.Duration, done func() bool) bool {
	over := time.NewTimer(limit)
	defer over.Stop()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		if done() {
			return true
		}
		select {
		case <-time.After(wait):
		case <-over.C:
			return done()
		case <-ctx.Done():
			return false
		}
	}
}
