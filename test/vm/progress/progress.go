// Package progress tells a person what the test bed is doing: which steps are at work, how much of each is done, and
// how long it took and may still take. On a terminal each step is a line that changes in place; in a log it is a line
// when it begins, one every half minute, and one when it ends. It only writes to the writer it was given; it may not
// decide anything.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

// Log prints steps. A nil Log is silent.
type Log struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
	bars  *mpb.Progress // on a terminal
}

// every is how often a step speaks in a log.
const every = 30 * time.Second

// New returns a Log that counts its elapsed time from now.
func New(out io.Writer) *Log { return Since(out, time.Now()) }

// Since returns a Log that counts its elapsed time from start.
func Since(out io.Writer, start time.Time) *Log {
	l := &Log{out: out, start: start}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		l.bars = mpb.New(mpb.WithOutput(f), mpb.WithRefreshRate(500*time.Millisecond))
		l.out = l.bars // writes go above the lines that change
	}
	return l
}

// Say prints one line.
func (l *Log) Say(format string, args ...any) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.out, "%7.1fs  %s\n", time.Since(l.start).Seconds(), fmt.Sprintf(format, args...))
}

// Print prints a text as it is.
func (l *Log) Print(text string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(l.out, text)
}

// Close waits until everything is on the terminal. No step may be at work.
func (l *Log) Close() {
	if l != nil && l.bars != nil {
		l.bars.Shutdown()
	}
}

// Do runs a step and says when it starts, that it is still at work, and how it ended.
func (l *Log) Do(name string, work func() error) error {
	return l.Count(name, func(*Step) error { return work() })
}

// Count is Do for a step that says how far it is. The step of a silent Log is nil.
func (l *Log) Count(name string, work func(*Step) error) error {
	if l == nil {
		return work(nil)
	}
	s := &Step{name: name, began: time.Now()}
	stop := l.follow(s)
	err := work(s)
	stop()
	outcome := "done"
	if err != nil {
		outcome = "failed"
	}
	l.Say("%s: %s in %.1fs", name, outcome, time.Since(s.began).Seconds())
	return err
}

// follow shows a step until stop is called.
func (l *Log) follow(s *Step) (stop func()) {
	if l.bars != nil {
		bar := l.bars.New(0, mpb.NopStyle(), mpb.BarRemoveOnComplete(), mpb.PrependDecorators(
			decor.Any(func(decor.Statistics) string { return "  " + s.String() })))
		return func() { bar.Abort(true); bar.Wait() }
	}
	l.Say("%s …", s.name)
	done := make(chan struct{})
	var speaking sync.WaitGroup
	speaking.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				l.Say("%s", s)
			}
		}
	})
	return func() { close(done); speaking.Wait() }
}

// Step is what is at work. Its methods may be called from any goroutine; a nil Step ignores them.
type Step struct {
	name  string
	began time.Time
	stage atomic.Pointer[stage]
}

// stage is a part of a step with a count of its own.
type stage struct {
	unit        string
	total, done atomic.Int64
	began       time.Time
	// most says that total is an upper bound.
	most bool
}

// Of begins to count: so many units, such as "packages". A total of zero is one that nobody knows.
func (s *Step) Of(unit string, total int) { s.begin(&stage{unit: unit}, total) }

// AtMost is Of where the total is an upper bound.
func (s *Step) AtMost(unit string, total int) { s.begin(&stage{unit: unit, most: true}, total) }

func (s *Step) begin(g *stage, total int) {
	if s == nil {
		return
	}
	g.began = time.Now()
	g.total.Store(int64(total))
	s.stage.Store(g)
}

// Add counts n more.
func (s *Step) Add(n int) {
	if s != nil && s.stage.Load() != nil {
		s.stage.Load().done.Add(int64(n))
	}
}

// Set says how many are done.
func (s *Step) Set(n int) {
	if s != nil && s.stage.Load() != nil {
		s.stage.Load().done.Store(int64(n))
	}
}

// String is the step's name with how far it is, how long it took, and how much longer it takes at this pace.
func (s *Step) String() string {
	taken := time.Since(s.began)
	g := s.stage.Load()
	if g == nil {
		return fmt.Sprintf("%s: %s", s.name, round(taken))
	}
	done, total := g.done.Load(), g.total.Load()
	if total == 0 {
		return fmt.Sprintf("%s: %d %s, %s", s.name, done, g.unit, round(taken))
	}
	of := "of"
	if g.most {
		of = "of at most"
	}
	text := fmt.Sprintf("%s: %d %s %d %s, %s", s.name, done, of, total, g.unit, round(taken))
	if pace := time.Since(g.began); done > 0 && done < total && !g.most {
		text += fmt.Sprintf(", about %s left", round(pace*time.Duration(total-done)/time.Duration(done)))
	}
	return text
}

func round(d time.Duration) time.Duration { return d.Round(time.Second) }
