package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
)

// pulse is how often the ages on a page are updated.
const pulse = time.Second

// watch prints the machine at each change until ctx ends.
func (a *asked) watch(ctx context.Context, out io.Writer, format *outputFormat) error {
	news, last := a.Watch(ctx), ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-news:
			m, err := n.Machine, n.Err
			if err == nil {
				m, err = pick(m, a.words)
			}
			text := plain(agent.Summary(m))
			if err != nil {
				text = err.Error()
			}
			if text == last || ctx.Err() != nil {
				continue
			}
			last = text
			if err != nil && format.programs() {
				continue
			}
			if err := format.print(out, m, func(s *tableWriter) {
				s.line(0, time.Now().Format(time.TimeOnly)+"  "+text)
			}); err != nil {
				return err
			}
		}
	}
}

// watchScreen keeps a page on a terminal up to date in place until ctx ends, and leaves the last page there.
func (a *asked) watchScreen(ctx context.Context, out io.Writer, print func(*tableWriter, shown)) error {
	news, advanced := a.Watch(ctx), a.WatchProgress(ctx, pulse)
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	show := screen{out: out}
	var last shown
	var failure error // why there is no news
	var atWork []accel.Progress
	var came time.Time // when last arrived, by this clock
	draw := func() string {
		s := newSheet(out)
		s.width = max(s.width-1, 0) // the last column stays free
		if failure != nil {
			s.line(0, s.bad("out of date")+"  "+failure.Error())
		}
		if !came.IsZero() {
			page := last
			page.atWork = atWork
			page.now = page.now.Add(time.Since(came))
			print(s, page)
		}
		return s.String()
	}
	for {
		select {
		case <-ctx.Done():
			return show.close(draw())
		case n := <-news:
			page := shown{Machine: n.Machine, holders: n.Holders, now: n.Now}
			if failure = n.Err; failure == nil {
				page.picked, failure = pick(n.Machine, a.words)
			}
			if failure == nil {
				last, came = a.completed(page), time.Now()
			}
		case atWork = <-advanced:
		case <-resized:
		case <-tick.C:
		}
		width, height := size(out)
		if failure == nil && came.IsZero() {
			continue // nothing has arrived yet
		}
		if err := show.show(draw(), width, height); err != nil {
			return err
		}
	}
}
