package loop

import (
	"time"

	"github.com/acceld/acceld/accel"
)

// forgive retries the steps that wait for a change of the machine or for another node's build, because something
// changed.
func (l *Loop) forgive() {
	for _, k := range l.kinds {
		if f := k.have.Failure; f != nil && (f.RetryAt.IsZero() || f.Reason == accel.BuildElsewhere) {
			k.have.Failure = dueNow(f)
		}
		if k.up != nil && k.up.failure != nil && k.up.failure.RetryAt.IsZero() {
			k.up.failure = dueNow(k.up.failure)
		}
	}
}

// dueNow returns f, to be tried again now. Snapshots share f, so it stays as it is.
func dueNow(f *accel.Failure) *accel.Failure {
	again := *f
	again.RetryAt = time.Now()
	return &again
}

// untilRetry returns how long until the earliest step that waits for the clock is due, at most the pulse. It ignores
// a time well in the past, or none: that step waits for something else.
func (l *Loop) untilRetry() time.Duration {
	wait := pulse
	next := func(at time.Time) {
		if left := time.Until(at); left > -settle {
			wait = min(wait, max(left, time.Millisecond))
		}
	}
	for _, k := range l.kinds {
		if k.running != accel.StepNone {
			continue
		}
		if f := k.have.Failure; f != nil {
			next(f.RetryAt)
		}
		if k.up != nil && k.up.failure != nil && !k.up.busy {
			next(k.up.failure.RetryAt)
		}
		if k.ended != accel.StepNone && k.ended == k.status.Next {
			next(k.endedAt.Add(calm))
		}
	}
	return wait
}
