package accel

import "time"

// Latest returns the latest of the times; the zero time if there are none.
func Latest(all ...time.Time) (last time.Time) {
	for _, t := range all {
		if t.After(last) {
			last = t
		}
	}
	return last
}
