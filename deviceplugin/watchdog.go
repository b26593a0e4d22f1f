package deviceplugin

import (
	"slices"
	"time"
)

// watchdog judges the kubelet's own view of the devices. A kubelet can lose a plugin without reporting it (measured
// on 1.36.3: 3 of 300 restarts), so an open stream proves nothing. It is plain data: what was seen and when goes in,
// a verdict comes out.
type watchdog struct {
	timing   timing
	revision int
	zero     time.Time // since when the kubelet counts no devices
	differs  time.Time // since when it counts other devices than the healthy ones
	wait     time.Duration
	renewals int // in a row, without a settled view between them
}

// verdict is what follows from one look at the kubelet's view.
type verdict struct {
	settled bool          // the kubelet counts exactly the healthy devices
	renew   bool          // register again
	next    time.Duration // look again after this time
}

// begin resets the timers for a new registration.
func (w *watchdog) begin() {
	w.zero, w.differs, w.wait = time.Time{}, time.Time{}, w.timing.askFirst
}

// observe judges one answer. healthy and allocatable are sorted ids; revision is the revision of the list with
// healthy.
func (w *watchdog) observe(now time.Time, revision int, healthy, allocatable []string) verdict {
	if slices.Equal(healthy, allocatable) {
		w.begin()
		w.renewals = 0
		return verdict{settled: true, next: w.timing.resync}
	}
	if w.differs.IsZero() || revision != w.revision {
		w.begin() // a new list needs time to arrive
		w.revision, w.differs = revision, now
	}
	none := len(healthy) > 0 && len(allocatable) == 0
	switch {
	case !none:
		w.zero = time.Time{}
	case w.zero.IsZero():
		w.zero = now
	}
	if (none && now.Sub(w.zero) >= w.patience(w.timing.zero)) || now.Sub(w.differs) >= w.patience(w.timing.differs) {
		w.renewals++
		return verdict{renew: true}
	}
	next := w.wait
	w.wait = min(2*w.wait, w.timing.askMax)
	if now.Sub(w.differs) > w.timing.differs {
		next = w.timing.differs // long-lasting: ask less often
	}
	return verdict{next: next}
}

// patience returns the timeout for base. It doubles with each renewal that did not help, up to five minutes: two
// plugins for the same resource must not fight at full speed.
func (w *watchdog) patience(base time.Duration) time.Duration {
	return min(base<<min(w.renewals, 10), max(base, 5*time.Minute))
}
