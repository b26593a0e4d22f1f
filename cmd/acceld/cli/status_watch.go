package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/pace"
)

// breath is between two lines, or pages, of what is watched; pulse is how often the ages on a page are told anew.
const (
	breath = 300 * time.Millisecond
	pulse  = time.Second
)

// watch prints the machine at each change until ctx ends.
func (a *asked) watch(ctx context.Context, out io.Writer, asJSON bool) error {
	for last := ""; ctx.Err() == nil; {
		m, err := a.next(ctx)
		if err == nil {
			m, err = pick(m, a.words)
		}
		text := plain(agent.Summary(m))
		if err != nil {
			text = err.Error()
		}
		if text != last && !errors.Is(err, errUnchanged) && ctx.Err() == nil {
			last = text
			if err := printChange(out, m, text, err, asJSON); err != nil {
				return err
			}
		}
		// Changes come in bursts, and nobody reads faster; while no agent answers it is asked again and again.
		_ = pace.Sleep(ctx, breath)
	}
	return nil
}

func printChange(out io.Writer, m accel.Machine, text string, failed error, asJSON bool) error {
	switch {
	case failed == nil && asJSON:
		return writeJSON(out, m)
	case asJSON:
		return nil
	default:
		return printPage(out, time.Now().Format("15:04:05")+"  "+text+"\n")
	}
}

// tidings are what a question came to.
type tidings struct {
	page shown
	err  error
}

// news asks for one machine after the other until ctx ends.
func (a *asked) news(ctx context.Context, tell chan<- tidings) {
	for ctx.Err() == nil {
		m, err := a.next(ctx)
		n := tidings{err: err}
		if err == nil {
			n.page = shown{Machine: m, holders: a.holders(ctx), now: a.clock()}
			n.page.picked, n.err = pick(m, a.words)
		}
		if !errors.Is(err, errUnchanged) {
			select {
			case tell <- n:
			case <-ctx.Done():
			}
		}
		// Changes come in bursts, and nobody reads faster; while no agent answers it is asked again and again.
		_ = pace.Sleep(ctx, breath)
	}
}

// advances asks over and over how far the work is until ctx ends: it changes without another machine.
func (a *asked) advances(ctx context.Context, tell chan<- []accel.Progress) {
	for ctx.Err() == nil {
		select {
		case tell <- a.progress(ctx, ""):
		case <-ctx.Done():
		}
		_ = pace.Sleep(ctx, pulse)
	}
}

// watchScreen keeps the page up to date in its place on a terminal until ctx ends, and leaves the last one there.
func (a *asked) watchScreen(ctx context.Context, out io.Writer) error {
	tell := make(chan tidings)
	go a.news(ctx, tell)
	advanced := make(chan []accel.Progress)
	go a.advances(ctx, advanced)
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	show := screen{out: out}
	var last tidings
	var atWork []accel.Progress
	var came time.Time // when last.page came, by this clock
	draw := func() string {
		s := newSheet(out)
		s.width = max(s.width-1, 0) // the last column stays free
		if last.err != nil {
			s.line(0, s.bad("no news")+"  "+last.err.Error())
		}
		if !came.IsZero() {
			page := last.page
			page.atWork = atWork
			page.now = page.now.Add(time.Since(came))
			printMachine(s, page)
		}
		return s.String()
	}
	for {
		select {
		case <-ctx.Done():
			return show.close(draw())
		case n := <-tell:
			if last.err = n.err; n.err == nil {
				last.page, came = n.page, time.Now()
			}
		case atWork = <-advanced:
		case <-resized:
		case <-tick.C:
		}
		width, height := size(out)
		if last.err == nil && came.IsZero() {
			continue // nothing has come yet
		}
		if err := show.show(draw(), width, height); err != nil {
			return err
		}
	}
}
