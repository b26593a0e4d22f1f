package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/driver"
)

const (
	// worth is how long a stage runs before a log gets a line about it.
	worth = 2 * time.Second
	// frame is the time between two updates of the status line on a terminal. stillEvery is the time between two log
	// lines about one stage.
	frame      = 200 * time.Millisecond
	stillEvery = 30 * time.Second
)

// view shows the progress of the work: on a terminal, in one line that is updated in place; in a log, in occasional
// lines for each stage that takes long. The caller must close it.
type view struct {
	agent.Board
	ctx     context.Context //nolint:containedctx // the context of the command; it ends on an interrupt
	console *console
	quiet   bool
	stop    func()

	telling sync.Mutex
	told    map[string]time.Time // in a log: the time of a stage's last line
	cut     *accel.Progress      // the stage that was interrupted
}

// work starts the view of a command's work on drivers, and returns it with the driver manager that reports to it.
func (p *parts) work(quiet bool) (*view, *driver.Driver) {
	v := newView(p.ctx, p.console, quiet)
	return v, p.Driver(v.note)
}

// newView starts a view; a quiet view shows nothing.
func newView(ctx context.Context, c *console, quiet bool) *view {
	v := &view{ctx: ctx, console: c, quiet: quiet, told: map[string]time.Time{}}
	v.stop = v.Watch(ctx, frame, v.interrupt, v.draw)
	return v
}

// close ends the view and removes its line from the terminal.
func (v *view) close() {
	v.stop()
	v.console.show("")
}

// draw shows the stages that run now.
func (v *view) draw(now time.Time) {
	all := v.List()
	if v.quiet {
		return
	}
	if v.console.inPlace() {
		line := ""
		if len(all) > 0 {
			line = working(all[len(all)-1], now)
			if v.ctx.Err() != nil {
				line = "interrupted, stopping soon: " + line
			}
		}
		v.console.show(line)
		return
	}
	v.telling.Lock()
	defer v.telling.Unlock()
	for _, p := range all {
		last, again := v.told[string(p.Stage)+p.Kind]
		if again && now.Sub(last) >= stillEvery || !again && now.Sub(p.Since) >= worth {
			v.told[string(p.Stage)+p.Kind] = now
			fmt.Fprintln(v.console, working(p, now))
		}
	}
}

// note records a progress report of the driver.
func (v *view) note(p accel.Progress) {
	v.Board.Note(p)
	if !p.Ended {
		return
	}
	v.telling.Lock()
	delete(v.told, string(p.Stage)+p.Kind)
	v.telling.Unlock()
	if v.ctx.Err() != nil && p.Problem != "" {
		v.interrupt(p)
		return
	}
	if now := time.Now(); !v.quiet && now.Sub(p.Since) >= worth {
		fmt.Fprintln(v.console, worked(p, now))
	}
}

// interrupt records the stage that ran when the command was interrupted.
func (v *view) interrupt(p accel.Progress) {
	v.telling.Lock()
	defer v.telling.Unlock()
	if v.cut == nil {
		v.cut = &p
	}
}

// failed returns the error of a command whose work ended with a problem. If an interrupt is the cause, the error says
// that.
func (v *view) failed(p *accel.Problem) error {
	if p == nil || v.ctx.Err() == nil {
		return failed(p)
	}
	return v.interrupted()
}

// interrupted returns the error of an interrupted command; nil if it was not interrupted.
func (v *view) interrupted() error {
	if v.ctx.Err() == nil {
		return nil
	}
	v.telling.Lock()
	defer v.telling.Unlock()
	return exit{exitFailed, errors.New(interruption(v.cut, time.Now()))}
}

// waited waits for something that cannot be cancelled, such as the publication of what was built. It returns the
// error of a command that is interrupted first.
func (v *view) waited(wait func()) error {
	agent.Await(v.ctx, wait)
	return v.interrupted()
}

// interruption describes what was interrupted and what state it left.
func interruption(p *accel.Progress, now time.Time) string {
	if p == nil {
		return "interrupted: nothing was changed"
	}
	text := fmt.Sprintf("interrupted while %s, after %s", p.Stage.Words(), took(now.Sub(p.Since)))
	const resumes = "the same command continues from there"
	left := map[accel.Stage]string{
		accel.StagePush:   "the driver is in the store but not published",
		accel.StageUnload: resumes, accel.StageLoad: resumes, accel.StageProve: resumes,
	}[p.Stage]
	return prefix(*p) + text + ": " + cmp.Or(left, "nothing was changed")
}

// working describes the progress of a stage.
func working(p accel.Progress, now time.Time) string { return prefix(p) + plain(p.Text(now)) }

// worked describes how a stage ended.
func worked(p accel.Progress, now time.Time) string {
	span := took(now.Sub(p.Since))
	if p.Problem != "" {
		why := ""
		if p.Stage == accel.StagePull { // another source may follow
			why = prefixed(": ", plain(p.Problem))
		}
		return fmt.Sprintf("%s%s failed after %s%s", prefix(p), p.Stage.Words(), span, why)
	}
	return fmt.Sprintf("%s%s took %s%s", prefix(p), p.Stage.Words(), span, prefixed(", ", p.Amount()))
}

func prefix(p accel.Progress) string {
	if p.Kind == "" {
		return ""
	}
	return plain(p.Kind) + ": "
}

// took formats a duration for people: "8s", "1m20s".
func took(d time.Duration) string { return max(d, 0).Round(time.Second).String() }
