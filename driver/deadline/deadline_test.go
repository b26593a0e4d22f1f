package deadline

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Operations{}
		hang := make(chan struct{})
		start := time.Now()
		var runs atomic.Int32
		operation := func() error { runs.Add(1); <-hang; return nil }
		if err := d.Do(t.Context(), "x", operation); !errors.Is(err, ErrNoAnswer) || time.Since(start) != ofDevice {
			t.Error(err, time.Since(start))
		}
		for range 3 { // a device that hangs costs one goroutine, not one for each call
			if err := d.Do(t.Context(), "x", operation); !errors.Is(err, ErrNoAnswer) || time.Since(start) != ofDevice {
				t.Error(err)
			}
		}
		if runs.Load() != 1 {
			t.Error(runs.Load())
		}
		if err := d.Do(t.Context(), "y", func() error { return nil }); err != nil {
			t.Error(err)
		}
		close(hang)
		synctest.Wait()
		if err := d.Do(t.Context(), "x", operation); err != nil || runs.Load() != 2 {
			t.Error(err, runs.Load())
		}
	})
}
