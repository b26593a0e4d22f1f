package agent

import (
	"slices"
	"sync"

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
