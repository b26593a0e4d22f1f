package client

import (
	"context"
	"errors"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/pace"
)

// Pause is the time between two requests: changes come in bursts, nobody reads faster, and while no agent answers,
// the client keeps trying.
const Pause = 300 * time.Millisecond

// Await follows the agent until ok accepts a machine or the time is up, and returns the last machine.
func (c *Client) Await(ctx context.Context, limit time.Duration, ok func(accel.Machine) bool) (last accel.Machine,
	accepted bool,
) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c.tag = "" // the agent answers the first request at once, even if its machine has not changed
	for {
		m, err := c.Next(ctx)
		if err == nil {
			last = m
		}
		if err == nil && ok(m) {
			return last, true
		}
		if pace.Sleep(ctx, Pause/10) != nil {
			return last, false
		}
	}
}

// News is the result of one request: an error, or a machine with the holders of its devices.
type News struct {
	Err     error
	Machine accel.Machine
	Holders map[string][]exporter.Holder
	// Now is the agent's clock at its answer.
	Now time.Time
}

// Watch sends every new machine until ctx ends.
func (c *Client) Watch(ctx context.Context) <-chan News {
	tell := make(chan News)
	guard.Go(func() {
		for ctx.Err() == nil {
			m, err := c.Next(ctx)
			n := News{Err: err, Machine: m}
			if err == nil {
				n.Holders, n.Now = c.Holders(ctx), c.Clock()
			}
			if !errors.Is(err, ErrUnchanged) {
				select {
				case tell <- n:
				case <-ctx.Done():
				}
			}
			_ = pace.Sleep(ctx, Pause)
		}
	})
	return tell
}

// WatchProgress sends the progress of the work every period until ctx ends: it changes without a new machine.
func (c *Client) WatchProgress(ctx context.Context, every time.Duration) <-chan []accel.Progress {
	tell := make(chan []accel.Progress)
	guard.Go(func() {
		for ctx.Err() == nil {
			select {
			case tell <- c.Progress(ctx, ""):
			case <-ctx.Done():
			}
			_ = pace.Sleep(ctx, every)
		}
	})
	return tell
}
