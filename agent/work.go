package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/pace"
)

// work tells the loop when the work on drivers has advanced so far that people should see it: a pull or a build takes
// minutes in which nothing else on the machine changes. Without work it sleeps.
type work struct {
	board   *Board
	changed func()
	news    chan struct{}
	// every is the minimum time between two looks at work in progress.
	every time.Duration
}

// newWork returns a follower of a board.
func newWork(board *Board, changed func()) *work {
	w := &work{board: board, changed: changed, news: make(chan struct{}, 1), every: time.Second}
	board.Noted = func() {
		select {
		case w.news <- struct{}{}:
		default:
		}
	}
	return w
}

func (w *work) run(ctx context.Context) error {
	last := ""
	for {
		list := w.board.List()
		if now := glance(list, time.Now()); now != last {
			last = now
			w.changed()
		}
		if len(list) == 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-w.news:
			}
			continue
		}
		if pace.Sleep(ctx, w.every) != nil { // also without a report: a transfer may hang
			return nil //nolint:nilerr // it was asked to end
		}
	}
}

// glance is the part of the work in progress that is worth a new snapshot when it changes: not each second, not each
// byte, not each command. That a transfer brings nothing is.
func glance(list []accel.Progress, now time.Time) string {
	var b strings.Builder
	for _, p := range list {
		percent, known := p.Percent()
		if !known {
			percent = int(p.Done)
			if p.Stage.Unit() == accel.UnitByte {
				percent = int(p.Done / 10e6)
			}
		}
		fmt.Fprintln(&b, p.Report(now), p.Kind, p.Step, percent, p.Attempt)
	}
	return b.String()
}
