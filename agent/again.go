package agent

import (
	"context"
	"time"

	"github.com/acceld/acceld/agent/loop"
	"github.com/acceld/acceld/pace"
)

// again calls pass after each change of the machine and each poke, until ctx ends. While pass reports that something
// could not be done, it is called after a pause that grows, and by pokes.
func again(ctx context.Context, l *loop.Loop, poked <-chan struct{}, pass func(context.Context) (left bool)) error {
	wait := pace.Backoff{First: time.Second, Max: time.Minute}
	failures := 0
	for {
		_, replaced := l.Follow()
		pause := time.Hour
		if pass(ctx) {
			failures++
			pause, replaced = wait.After(failures), nil // the loop has news all the time
		} else {
			failures = 0
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-replaced:
		case <-poked:
		case <-timer.C:
		}
		timer.Stop()
	}
}
