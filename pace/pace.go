// Package pace says how long to wait before something is tried again, and waits. It knows nothing about accelerators.
package pace

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d. The error is that of ctx when ctx ends first.
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

// Backoff is the wait between attempts that fail. It doubles with each failure in a row and is spread over as much as it
// is long: a thousand nodes that lost the same thing do not ask for it together. It is not spread down to zero, with
// which twice as many would ask in the end.
type Backoff struct {
	First, Max time.Duration // the least and the most
}

// After returns how long to wait after n failures in a row, from 1: First to twice that, at last half of Max to Max.
func (b Backoff) After(n int) time.Duration {
	least, most := b.First, max(b.First, b.Max)
	for i := 1; i < n && least < most/2; i++ {
		least *= 2
	}
	least = max(min(least, most/2), b.First)
	return least + rand.N(min(least, most-least)+1)
}
