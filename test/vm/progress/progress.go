// Package progress tells a person what the test bed is doing, one line per step with the elapsed time. It only writes
// lines to the writer it was given; it may not decide anything.
package progress

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Log prints steps. A nil Log is silent.
type Log struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
	steps int   // begun so far
	open  []int // at work
}

// stillEvery is how often a long step says that it is still at work, so that nobody takes it for hung.
const stillEvery = 20 * time.Second

// New returns a Log that counts its elapsed time from now.
func New(out io.Writer) *Log {
	return &Log{out: out, start: time.Now()}
}

// Say prints one line.
func (l *Log) Say(format string, args ...any) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.out, "bed %6.1fs  %s\n", time.Since(l.start).Seconds(), fmt.Sprintf(format, args...))
}

// Do runs a step and says when it starts, that it still runs, and how it ended.
func (l *Log) Do(step string, work func() error) error {
	if l == nil {
		return work()
	}
	l.mu.Lock()
	l.steps++
	number := l.steps
	l.open = append(l.open, number)
	l.mu.Unlock()
	l.Say("%s …", step)
	began := time.Now()
	done := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() { l.tick(step, number, began, done) })
	err := work()
	close(done)
	ticking.Wait()
	l.mu.Lock()
	l.open = slices.DeleteFunc(l.open, func(n int) bool { return n == number })
	l.mu.Unlock()
	outcome := "done"
	if err != nil {
		outcome = "failed"
	}
	l.Say("%s: %s in %.1fs", step, outcome, time.Since(began).Seconds())
	return err
}

// tick speaks for the step that began last of those at work; the ones around it need not say it too.
func (l *Log) tick(step string, number int, began time.Time, done <-chan struct{}) {
	ticker := time.NewTicker(stillEvery)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			l.mu.Lock()
			last := number == slices.Max(l.open)
			l.mu.Unlock()
			if !last {
				continue
			}
			l.Say("%s: still at it after %.0fs", step, time.Since(began).Seconds())
		}
	}
}
