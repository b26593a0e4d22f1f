package agent

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
)

// TestWork: the loop hears of work when it begins, advances visibly, hangs and ends, and never more than once a second.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var board Board
		var told atomic.Int64
		w := newWork(&board, func() { told.Add(1) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.run(ctx) }()
		news := func(what string, want bool) {
			t.Helper()
			before := told.Load()
			time.Sleep(1100 * time.Millisecond)
			synctest.Wait()
			if got := told.Load() > before; got != want {
				t.Errorf("%s: told %v, want %v", what, got, want)
			}
		}
		pull := accel.Progress{Kind: "qemu-edu", Stage: accel.StagePull, What: "registry.example/edu:1", Since: time.Now()}
		news("nothing", false)
		board.Note(pull)
		news("a pull begins", true)
		pull.Done, pull.Total = 50, 100
		board.Note(pull)
		news("half of it", true)
		if p := board.List()[0]; time.Since(p.Moved) > 2*time.Second {
			t.Errorf("the last byte came at %v", p.Moved)
		}
		before := told.Load()
		for range 9 {
			board.Note(pull)
			time.Sleep(50 * time.Millisecond)
		}
		synctest.Wait()
		if n := told.Load() - before; n > 1 {
			t.Errorf("told %d times of nothing new", n)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		before = told.Load()
		time.Sleep(4 * time.Second) // no report comes
		synctest.Wait()
		if told.Load() != before+1 {
			t.Errorf("a pull that hangs: told %d times", told.Load()-before)
		}
		if quiet, silent := board.List()[0].Silent(time.Now()); !silent || quiet < 5*time.Second {
			t.Errorf("silent %v for %v", silent, quiet)
		}
		pull.Ended = true
		board.Note(pull)
		news("it ends", true)
		news("nothing any more", false)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
