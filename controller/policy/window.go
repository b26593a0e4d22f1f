package policy

import (
	"slices"
	"time"

	"github.com/acceld/acceld/accel"
)

// Window is a time of day on some days of the week, in a time zone.
type Window struct {
	// Days on which it opens; none means every day.
	Days []time.Weekday
	// From and To are times since midnight, From below 24 h. If To is not after From, the window ends on the next
	// day.
	From, To time.Duration
	// Location is the time zone; nil is UTC.
	Location *time.Location
}

// isOpen reports whether a window is open at now, and when that changes next; zero if it never does. On days when the
// clocks change, a window follows the wall clock.
func isOpen(all []Window, now time.Time) (open bool, change time.Time) {
	if len(all) == 0 {
		return true, time.Time{}
	}
	sooner := func(t time.Time) {
		if t.After(now) && (change.IsZero() || t.Before(change)) {
			change = t
		}
	}
	for _, w := range all {
		at := now.In(w.location())
		for day := -1; day <= 7; day++ { // yesterday's may still be open; the next is within a week
			from, to := w.on(at.Year(), at.Month(), at.Day()+day)
			if from.IsZero() {
				continue
			}
			if !now.Before(from) && now.Before(to) {
				open = true
				sooner(to)
			}
			sooner(from)
		}
	}
	return open, change
}

func (w Window) location() *time.Location {
	if w.Location == nil {
		return time.UTC
	}
	return w.Location
}

// on returns when the window of a day opens and closes; zero if it does not open on that day.
func (w Window) on(year int, month time.Month, day int) (from, to time.Time) {
	midnight := time.Date(year, month, day, 0, 0, 0, 0, w.location())
	if len(w.Days) > 0 && !slices.Contains(w.Days, midnight.Weekday()) {
		return time.Time{}, time.Time{}
	}
	clock := func(day int, d time.Duration) time.Time {
		return time.Date(year, month, day, int(d/time.Hour), int(d/time.Minute)%60, 0, 0, w.location())
	}
	if w.To > w.From {
		return clock(day, w.From), clock(day, w.To)
	}
	return clock(day, w.From), clock(day+1, w.To)
}

// windows returns the windows that a policy names. A time zone that is not known, which [Policy.problems] reports, is
// UTC.
func windows(all []accel.RolloutWindow) (out []Window) {
	for _, w := range all {
		x := Window{}
		for _, name := range w.Days {
			day, _ := accel.Weekday(name)
			x.Days = append(x.Days, day)
		}
		x.From, _ = accel.TimeOfDay(w.From)
		x.To, _ = accel.TimeOfDay(w.To)
		if where, err := time.LoadLocation(w.TimeZone); err == nil {
			x.Location = where
		}
		out = append(out, x)
	}
	return out
}
