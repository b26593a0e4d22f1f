package agent

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/acceld/acceld/guard"
)

// TestOneAfterTheOther: a plugin starts when the previous one of its kind has ended, not when that was asked to stop.
func TestOneAfterTheOther(t *testing.T) {
	var group guard.Group
	p := &plugins{Setup: &Setup{Log: slog.New(slog.DiscardHandler)}, group: &group, poke: func() {}}
	ending := make(chan struct{})
	begun := make(chan string, 2)
	first := &serving{}
	p.serve(t.Context(), "slot", first, func(ctx context.Context) error {
		begun <- "first"
		<-ctx.Done()
		<-ending // calls in flight
		return ctx.Err()
	})
	if got := <-begun; got != "first" || first.stopped() {
		t.Fatalf("%s began", got)
	}
	second := &serving{}
	p.serve(t.Context(), "slot", second, func(context.Context) error { begun <- "second"; return nil })
	for !first.stopped() {
		runtime.Gosched()
	}
	select {
	case got := <-begun:
		t.Errorf("%s began while the first had calls in flight", got)
	case <-time.After(20 * time.Millisecond):
	}
	close(ending)
	if got := <-begun; got != "second" {
		t.Errorf("%s began", got)
	}
	group.Wait()
	<-second.done
}
