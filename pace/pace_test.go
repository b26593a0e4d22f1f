package pace

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := Sleep(t.Context(), time.Hour); err != nil || time.Since(began) != time.Hour {
			t.Errorf("slept %v, error %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		if err := Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("slept %v, error %v", time.Since(began), err)
		}
	})
}

func TestJitter(t *testing.T) {
	least, most := spread(func() time.Duration { return Jitter(100 * time.Millisecond) })
	if least < 80*time.Millisecond || most > 120*time.Millisecond || most-least < 30*time.Millisecond {
		t.Errorf("100 ms became %v to %v", least, most)
	}
	if d := Jitter(0); d != 0 {
		t.Errorf("nothing became %v", d)
	}
}

func TestBackoff(t *testing.T) {
	b := Backoff{First: time.Second, Max: time.Minute}
	for n, want := range map[int][2]int{
		-1: {1, 2}, 0: {1, 2}, 1: {1, 2}, 2: {2, 4}, 5: {16, 32}, 6: {30, 60}, 7: {30, 60}, 1 << 40: {30, 60},
	} {
		low, high := time.Duration(want[0])*time.Second, time.Duration(want[1])*time.Second
		least, most := spread(func() time.Duration { return b.After(n) })
		if least < low || most > high {
			t.Errorf("after %d failures %v to %v, want %v to %v", n, least, most, low, high)
		}
		if width := high - low; least > low+width/10 || most < high-width/10 {
			t.Errorf("after %d failures %v to %v: not spread over all of %v to %v", n, least, most, low, high)
		}
	}
	for _, b := range []Backoff{{}, {First: time.Second, Max: time.Second}} {
		if d := b.After(9); d != b.First {
			t.Errorf("%+v waits %v", b, d)
		}
	}
}

// spread returns the shortest and the longest of many draws.
func spread(draw func() time.Duration) (least, most time.Duration) {
	least = draw()
	for range 1000 {
		d := draw()
		least, most = min(least, d), max(most, d)
	}
	return least, most
}
