package client

import (
	"context"
	"errors"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/exporter"
	"github.com/acceld/acceld/pace"
)

// Pause is between two questions: changes come in bursts, nobody reads faster, and while no agent answers it is asked
// over and over.
const Pause = 300 * time.Millisecond

// News is what a question came to: an error, or a machine with who holds its devices.
type News struct {
	Err     error
	Machine accel.Machine
	Holders map[string][]exporter.Holder
	// Now is the agent's clock when it answered.
	Now time.Time
}

// Watch asks for one machine after the other until ctx ends.
func (c *Client) Watch(ctx context.Context) <-chan News {
	tell := make(chan News)
	go func() {
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
	}()
	return tell
}

// WatchProgress asks over and over how far the work is until ctx ends: it changes without another machine.
func (c *Client) WatchProgress(ctx context.Context, every time.Duration) <-chan []accel.Progress {
	tell := make(chan []accel.Progress)
	go func() {
		for ctx.Err() == nil {
			select {
			case tell <- c.Progress(ctx, ""):
			case <-ctx.Done():
			}
			_ = pace.Sleep(ctx, every)
		}
	}()
	return tell
}
