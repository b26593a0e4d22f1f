package artifact

import (
	"context"
	"time"
)

// allowance is how long registries may take to deliver for one pull. It does not pass while the host unpacks what they
// have delivered: that takes as long as its disk and processor need, and is bounded by [Limits].
type allowance struct {
	left   time.Duration // for all registries
	shared time.Duration // the share of the registry that is being asked
	rest   time.Duration // what is left of that share
	since  time.Time     // when rest began to pass
	timer  *time.Timer
}

// share gives one of n repositories its share of the time that is left, so that a slow mirror leaves some for the
// registry behind it. When the share is used up, the context is canceled with the cause [context.DeadlineExceeded]. The
// caller must call stop before it asks for the next share.
func (a *allowance) share(ctx context.Context, n int) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	a.shared = a.left / time.Duration(n)
	a.rest, a.since = a.shared, time.Now()
	a.timer = time.AfterFunc(a.rest, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() {
		a.timer.Stop()
		a.count()
		cancel(nil)
	}
}

// count subtracts the time that has passed.
func (a *allowance) count() {
	passed := time.Since(a.since)
	a.left, a.rest = a.left-passed, a.rest-passed
}

// pause calls do with the clock stopped. If no time is left, it does not call do.
func (a *allowance) pause(do func() error) error {
	if !a.timer.Stop() {
		return context.DeadlineExceeded
	}
	a.count()
	err := do()
	a.since = time.Now()
	a.timer.Reset(a.rest)
	return err
}
