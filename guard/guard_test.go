package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPanicIsAnError: a panic is an error of bounded length, also across a group and among functions that run together.
func TestPanicIsAnError(t *testing.T) {
	long := func() { panic(strings.Repeat("x", 1<<20)) }
	group := func() error {
		var g Group
		g.Go(long)
		g.Wait()
		return nil
	}
	for name, err := range map[string]error{
		"alone": Try(func() error { long(); return nil }),
		"group": Try(group),
		"together": Together(t.Context(),
			func(ctx context.Context) error { <-ctx.Done(); return nil },
			func(context.Context) error { long(); return nil }),
	} {
		var p *Panic
		if !errors.As(err, &p) || len(err.Error()) > 2*maxValue {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
	done := make(chan struct{})
	Go(func() {
		defer close(done)
		long()
	})
	<-done
}

// TestKeep: what fails is run again, later after each failure, until it has nothing left to do. The part and its
// failure are reported, and that it is over.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs []time.Duration
		var notes []string
		ctx := Report(t.Context(), func(part string, err error) { notes = append(notes, fmt.Sprint(part, ": ", err)) })
		began := time.Now()
		Keep(ctx, "x", func(context.Context) error {
			if runs = append(runs, time.Since(began)); len(runs) == 5 {
				return nil
			}
			panic("again")
		})
		if len(runs) != 5 || runs[1]-runs[0] < time.Second || runs[4]-runs[3] < 8*time.Second {
			t.Errorf("it ran at %v", runs)
		}
		failed := "x: panic: again"
		if want := []string{failed, failed, failed, failed, "x: <nil>"}; !slices.Equal(notes, want) {
			t.Errorf("%q", notes)
		}
	})
}
