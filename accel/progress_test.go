package accel

import (
	"testing"
	"time"
)

// TestLeft: Left estimates a time only if it has enough data.
func TestLeft(t *testing.T) {
	since := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		p     Progress
		after time.Duration
		want  time.Duration
		ok    bool
	}{
		"half":      {Progress{Done: 50, Total: 100}, 10 * time.Second, 10 * time.Second, true},
		"a quarter": {Progress{Done: 25, Total: 100}, 20 * time.Second, time.Minute, true},
		"all":       {Progress{Done: 100, Total: 100}, 10 * time.Second, 0, true},
		"the pace of this attempt": {
			Progress{Done: 50, Total: 100, Again: since.Add(90 * time.Second)},
			100 * time.Second, 10 * time.Second, true,
		},
		"no total":     {Progress{Done: 50}, 10 * time.Second, 0, false},
		"nothing done": {Progress{Total: 100}, 10 * time.Second, 0, false},
		"too early":    {Progress{Done: 50, Total: 100}, 4 * time.Second, 0, false},
		"too early, again": {
			Progress{Done: 50, Total: 100, Again: since.Add(8 * time.Second)},
			10 * time.Second,
			0, false,
		},
		"too little":            {Progress{Done: 4, Total: 100}, 10 * time.Second, 0, false},
		"more than was thought": {Progress{Done: 101, Total: 100}, 10 * time.Second, 0, false},
		"over":                  {Progress{Done: 50, Total: 100, Ended: true}, 10 * time.Second, 0, false},
	} {
		c.p.Since = since
		if got, ok := c.p.Left(since.Add(c.after)); got != c.want || ok != c.ok {
			t.Errorf("%s: %v %t, want %v %t", name, got, ok, c.want, c.ok)
		}
	}
}
