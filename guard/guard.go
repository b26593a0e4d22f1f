// Package guard runs the parts of a program so that a panic ends only the part that it happens in. The program lives
// on, the panic is logged with a bounded stack, and whoever waits for the part gets an error. The package may not
// decide what a failure means. What the Go runtime calls fatal, such as two goroutines that write one map, still ends
// the process.
package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/acceld/acceld/pace"
)

// Panic is a panic as an error.
type Panic struct {
	// Value is what was passed to panic, as text of at most maxValue bytes.
	Value string
}

// Error returns the value.
func (p *Panic) Error() string { return "panic: " + p.Value }

// maxValue and maxStack bound what is kept and logged of a panic, in bytes: its value may come from outside, and the
// innermost frames say where it happened.
const (
	maxValue = 512
	maxStack = 8 << 10
)

// Try calls f. If f panics, the panic is logged and is the error, a [*Panic].
func Try(f func() error) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case *Panic: // from Group.Wait, and logged
			err = v
		default:
			p := &Panic{Value: head(fmt.Sprint(v), maxValue)}
			slog.Default().Error("panic", "value", p.Value, "stack", head(string(debug.Stack()), maxStack))
			err = p
		}
	}()
	return f()
}

func head(s string, n int) string { return s[:min(len(s), n)] }

// Go runs f in a goroutine of its own. If f panics, its deferred calls are made, the panic is logged, and the goroutine
// ends. Whoever waits for its result must see that it ended, such as by a channel that f closes.
func Go(f func()) {
	go func() { _ = run(f) }() // the panic is logged
}

func run(f func()) error { return Try(func() error { f(); return nil }) }

// Group is a number of goroutines to wait for. The zero value is empty.
type Group struct {
	all   sync.WaitGroup
	first atomic.Pointer[Panic]
}

// Go runs f in a goroutine of the group.
func (g *Group) Go(f func()) {
	g.all.Go(func() {
		var p *Panic
		if errors.As(run(f), &p) {
			g.first.CompareAndSwap(nil, p)
		}
	})
}

// Keep runs f as [Keep] does, in a goroutine of the group.
func (g *Group) Keep(ctx context.Context, part string, f func(context.Context) error) {
	g.Go(func() { Keep(ctx, part, f) })
}

// Wait waits until the goroutines have ended. If one of them panicked, Wait panics with its [*Panic], so that the panic
// reaches the part that has started them.
func (g *Group) Wait() {
	g.all.Wait()
	if p := g.first.Load(); p != nil {
		panic(p)
	}
}

// Together runs all functions at once until the last has returned. The first that fails or panics ends the context of
// the others, and its error is returned.
func Together(ctx context.Context, all ...func(context.Context) error) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var group sync.WaitGroup
	var once sync.Once
	var first error
	for _, f := range all {
		group.Go(func() {
			if err := Try(func() error { return f(ctx) }); err != nil {
				once.Do(func() { first = err; end() })
			}
		})
	}
	group.Wait()
	return first
}

// steady is how long a part must run until an earlier failure counts as over.
const steady = time.Minute

// noteKey is the key of a context's value that [Report] sets.
type noteKey struct{}

// Report returns a context in which [Keep] tells note why a part has failed, and nil once it works or has ended.
func Report(ctx context.Context, note func(part string, err error)) context.Context {
	return context.WithValue(ctx, noteKey{}, note)
}

// Keep runs f, which people know as part, until it returns nil or ctx ends. If f fails or panics, Keep says so as
// [Report] asks, waits, longer after each failure in a row, and runs it again. Once f has run for a minute, it counts
// as working.
func Keep(ctx context.Context, part string, f func(context.Context) error) {
	note, reported := ctx.Value(noteKey{}).(func(string, error))
	failed := func(err error) {
		if reported {
			note(part, err)
		}
	}
	defer failed(nil)
	backoff := pace.Backoff{First: time.Second, Max: steady}
	for failures := 0; ; {
		began, over := time.Now(), time.AfterFunc(steady, func() { _ = run(func() { failed(nil) }) })
		err := Try(func() error { return f(ctx) })
		over.Stop()
		if err == nil || ctx.Err() != nil {
			return
		}
		if failures++; time.Since(began) >= steady {
			failures = 1
		}
		failed(err)
		_ = pace.Sleep(ctx, backoff.After(failures))
	}
}
