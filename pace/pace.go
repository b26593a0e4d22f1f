// Package pace says how long to wait before something is tried again, and waits. It knows nothing about accelerators.
package pace

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits until d is over or ctx ends; then it returns the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Jitter varies d by up to a fifth either way, so that nodes that started together do not act together.
func Jitter(d time.Duration) time.Duration {
	return d - d/5 + rand.N(2*(d/5)+1)
}

// Backoff is the wait after an attempt that failed. It doubles with each failure in a row. A random part, as long as
// the wait itself, keeps a thousand nodes that lost the same thing from asking for it together. The spread does not
// begin at zero: that would double the load of a failure that stays.
type Backoff struct {
	First, Max time.Duration // the least and the most
}

// After returns how long to wait after n failures in a row, n from 1: between First and twice First after the first
// failure, between half of Max and Max in the end.
func (b Backoff) After(n int) time.Duration {
	least, most := b.First, max(b.First, b.Max)
	for i := 1; i < n && least < most/2; i++ {
		least *= 2
	}
	least = max(min(least, most/2), b.First)
	return least + rand.N(min(least, most-least)+1)
}
