// Package pace decides how long to wait before a retry, and waits. It knows nothing about accelerators.
package pace

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits until d is over, or ctx ends; then it returns the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
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

// Backoff is the wait after a failed attempt. It doubles with each failure in a row. A random part, up to the length
// of the wait itself, keeps a thousand nodes that lost the same service from retrying together. The random range does
// not begin at zero, because that would double the load of a persistent failure.
type Backoff struct {
	First, Max time.Duration // the shortest and the longest wait
}

// After returns how long to wait after n failures in a row, n from 1: between First and twice First after the first
// failure, in the end between half of Max and Max.
func (b Backoff) After(n int) time.Duration {
	least, most := b.First, max(b.First, b.Max)
	for i := 1; i < n && least < most/2; i++ {
		least *= 2
	}
	least = max(min(least, most/2), b.First)
	return least + rand.N(min(least, most-least)+1)
}
