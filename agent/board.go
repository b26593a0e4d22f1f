package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
)

// Board has the work on drivers that is going on. The zero one is empty, and it is safe for concurrent use.
type Board struct {
	mu  sync.Mutex
	now []accel.Progress
}

// Note takes a report.
func (b *Board) Note(p accel.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.now, func(x accel.Progress) bool { return x.Kind == p.Kind && x.Stage == p.Stage })
	switch {
	case i >= 0 && p.Ended:
		b.now = slices.Delete(b.now, i, i+1)
	case i >= 0:
		b.now[i] = p
	case !p.Ended:
		b.now = append(b.now, p)
	}
}

// Replace takes what is going on now instead of what was.
func (b *Board) Replace(now []accel.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = now
}

// List returns what is going on, the stage that began last at the end.
func (b *Board) List() []accel.Progress {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]accel.Progress{}, b.now...)
}

// Watch calls draw with the time every period, and when ctx ends, until stop is called, which returns after the last
// call. When ctx ends, interrupted is called first with the stage that began last, if there is one.
func (b *Board) Watch(
	ctx context.Context, every time.Duration, interrupted func(last accel.Progress), draw func(now time.Time),
) (stop func()) {
	ticking, end := context.WithCancel(context.WithoutCancel(ctx))
	var over sync.WaitGroup
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

// Await waits for something that cannot be called off, and reports false when ctx ends before.
func Await(ctx context.Context, wait func()) bool {
	done := make(chan struct{})
	go func() {
		wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
