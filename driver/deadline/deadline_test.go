package deadline

import (
	"context"
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

// TestTogether: a device does not count as hanging because another caller's operation is in progress or was called off.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Operations{}
		slow := func() error { time.Sleep(ofDevice - time.Second); return nil }
		errs := make(chan error, 3)
		for range 3 {
			go func() { errs <- d.Do(t.Context(), "x", slow) }()
		}
		for range 3 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Do(ctx, "x", slow); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNoAnswer) {
			t.Error(err)
		}
		if err := d.Do(t.Context(), "x", slow); err != nil {
			t.Error(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { errs <- d.Do(t.Context(), "x", slow) }()
		synctest.Wait()
		if err := d.Do(ctx, "x", slow); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNoAnswer) {
			t.Error(err)
		}
		if err := <-errs; err != nil {
			t.Error(err)
		}
	})
}
