package artifact

import (
	"cmp"
	"context"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/transfer"
	"github.com/acceld/acceld/host"
)

// Options of a [Client]. The zero value of each field is usable.
type Options struct {
	// Progress receives progress reports of each transfer, a few times a second, from several goroutines. It must
	// return quickly. The kind is empty, because only the caller knows it. Nil discards the reports.
	Progress func(accel.Progress)
	// Known reports whether the caller already has an artifact, by what is known before its layers are fetched. They
	// then stay where they are. Nil fetches every artifact.
	Known func(Pulled) bool
	// Trust is the host's policy on signatures; the zero value demands none.
	Trust accel.Trust
	// Limits replaces all built-in limits if any of its fields is set.
	Limits Limits
	// Backoff is the pause, with jitter, before the second attempt at a registry. The pause before the third and last
	// attempt is three times as long. 1 s when zero.
	Backoff time.Duration
	// Stall is how long a transfer may make no progress, which is less than 64 KiB; 30 s when zero.
	Stall time.Duration
	// Timeout bounds how long registries take to deliver for one pull, or how long one push takes; 10 min when zero.
	Timeout time.Duration
}

// Client pulls, pushes and exports artifacts. It is safe for concurrent use.
type Client struct {
	h *host.Host
	o Options
}

// New returns a client that reads keys, certificates, credentials and bundles from h, and writes to it.
func New(h *host.Host, o Options) *Client {
	if o.Progress == nil {
		o.Progress = func(accel.Progress) {}
	}
	o.Limits = cmp.Or(o.Limits, defaultLimits())
	o.Backoff = cmp.Or(o.Backoff, time.Second)
	o.Stall = cmp.Or(o.Stall, 30*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Minute)
	return &Client{h: h, o: o}
}

// begin reports a transfer whose size is not known yet.
func (c *Client) begin(stage accel.Stage, what string) *transfer.Meter {
	return transfer.Begin(c.o.Progress, stage, what)
}

// end reports the end of a transfer; err is nil if everything was transferred.
func end(t *transfer.Meter, err error) {
	if err != nil {
		t.End(explain(err).Message)
		return
	}
	t.End("")
}

// try calls f until it succeeds, fails permanently or was called often enough. It reports each retry to t.
func (c *Client) try(ctx context.Context, t *transfer.Meter, f func() error) error {
	again := func(n int, err error) { t.Again(n, explain(err).Message) }
	return transfer.Try(ctx, c.o.Backoff, temporary, again, f)
}
