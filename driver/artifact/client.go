package artifact

import (
	"context"
	"log/slog"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/pace"
)

// Options of a [Client]. The zero value of each field is usable.
type Options struct {
	Log *slog.Logger
	// Progress is told how far each transfer is, some times a second, by goroutines of its own; it must be quick. The
	// kind is empty: the caller knows it. Nil when nobody looks.
	Progress func(accel.Progress)
	// Limits replaces the built-in ones when its fields are set.
	Limits Limits
	// Backoff is the pause before a registry is asked a second time, three times that before the third and last; 1 s
	// when zero.
	Backoff time.Duration
	// Stall is how long a transfer may stand still; 30 s when zero.
	Stall time.Duration
	// Timeout bounds one call; 10 min when zero.
	Timeout time.Duration
}

// Client moves artifacts. It is safe for concurrent use.
type Client struct {
	h *host.Host
	o Options
}

// New returns a client that reads keys, certificates, credentials and bundles from h, and writes to it.
func New(h *host.Host, o Options) *Client {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = func(accel.Progress) {}
	}
	if o.Limits == (Limits{}) {
		o.Limits = defaultLimits()
	}
	if o.Backoff == 0 {
		o.Backoff = time.Second
	}
	if o.Stall == 0 {
		o.Stall = 30 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Minute
	}
	return &Client{h: h, o: o}
}

// attempts is how often one registry is asked for one artifact.
const attempts = 3

// try does f until it succeeds, fails for good, or was done often enough, and tells t of each further attempt.
func (c *Client) try(ctx context.Context, t *transfer, f func() error) error {
	pause := c.o.Backoff
	for n := 1; ; n++ {
		err := f()
		if err == nil || n == attempts || ctx.Err() != nil || !temporary(err) {
			return err
		}
		t.again(n+1, err)
		if pace.Sleep(ctx, pace.Jitter(pause)) != nil {
			return err
		}
		pause *= 3
	}
}

// asProblem makes the error of a public call; a nil error stays nil.
func asProblem(err error) *accel.Problem {
	if err == nil {
		return nil
	}
	return explain(err)
}
