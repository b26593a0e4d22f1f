package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
)

// Board lists the work on drivers that is in progress. The zero Board is empty. It is safe for concurrent use.
type Board struct {
	// Noted is called after each report and must return quickly; nil for nobody.
	Noted func()

	mu  sync.Mutex
	now []accel.Progress
}

// Note records a progress report.
func (b *Board) Note(p accel.Progress) {
	if b.Noted != nil {
		defer b.Noted()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.now, func(x accel.Progress) bool { return x.Kind == p.Kind && x.Stage == p.Stage })
	switch {
	case i >= 0 && p.Ended:
		b.now = slices.Delete(b.now, i, i+1)
	case i >= 0:
		b.now[i] = moved(b.now[i], p)
	case !p.Ended:
		b.now = append(b.now, p)
	}
}

// moved returns a report with the time of the last change of what is done, unless the report has it.
func moved(last, p accel.Progress) accel.Progress {
	switch {
	case !p.Moved.IsZero():
	case p.Done != last.Done:
		p.Moved = time.Now()
	default:
		p.Moved = last.Moved
	}
	return p
}

// Replace replaces the whole list.
func (b *Board) Replace(now []accel.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = now
}

// List returns the work in progress. The stage that began last comes last.
func (b *Board) List() []accel.Progress {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]accel.Progress{}, b.now...)
}

// Watch calls draw with the current time every period, and once when ctx ends, until the caller calls stop. stop
// returns after the last call of draw. When ctx ends, Watch first calls interrupted with the stage that began last,
// if there is one.
func (b *Board) Watch(
	ctx context.Context, every time.Duration, interrupted func(last accel.Progress), draw func(now time.Time),
) (stop func()) {
	ticking, end := context.WithCancel(context.WithoutCancel(ctx))
	var over guard.Group
	over.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for done := ctx.Done(); ; {
			select {
			case <-ticking.Done():
				return
			case <-done:
				done = nil
				if all := b.List(); len(all) > 0 {
					interrupted(all[len(all)-1])
				}
			case <-tick.C:
			}
			draw(time.Now())
		}
	})
	return func() {
		end()
		over.Wait()
	}
}

// Await waits for something that cannot be cancelled. It returns false if ctx ends first.
func Await(ctx context.Context, wait func()) bool {
	done := make(chan struct{})
	guard.Go(func() {
		defer close(done)
		wait()
	})
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
