// Package client queries a running agent over its unix socket, for the commands. It changes nothing and prints
// nothing.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/exporter"
)

// Client queries a running agent over its unix socket. It is not safe for concurrent use, except [Client.Progress].
type Client struct {
	socket string
	http   *http.Client
	// tag is the ETag of the last machine, for Next.
	tag string
	// ahead is how far the agent's clock was ahead of this one at its last answer.
	ahead time.Duration
}

// New returns a client for the socket at file; name is its path in messages.
func New(name, file string) *Client {
	var d net.Dialer
	return NewWith(name, func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "unix", file) })
}

// NewWith returns a client that connects with dial; name is for messages.
func NewWith(name string, dial func(ctx context.Context) (net.Conn, error)) *Client {
	return &Client{socket: name, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}}}
}

// Clock returns the time by the agent's clock.
func (c *Client) Clock() time.Time { return time.Now().Add(c.ahead) }

const (
	// timeout is how long the agent may take to answer. maxWait is how many seconds it may wait for a change.
	timeout = 10 * time.Second
	maxWait = 20
)

// Machine returns the agent's machine. Errors are whole sentences that name the socket.
func (c *Client) Machine(ctx context.Context) (accel.Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.ask(ctx, http.Header{})
}

// Next waits until the agent's machine differs from the last one. After maxWait seconds without a change it returns
// [ErrUnchanged].
func (c *Client) Next(ctx context.Context) (accel.Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+maxWait*time.Second)
	defer cancel()
	return c.ask(ctx, http.Header{"If-None-Match": {c.tag}, "Prefer": {fmt.Sprintf("wait=%d", maxWait)}})
}

// ErrUnchanged means that the agent's machine has not changed.
var ErrUnchanged = errors.New("nothing has changed")

// get requests one path. The caller closes the body.
func (c *Client) get(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://acceld"+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header = header
	resp, err := c.http.Do(req)
	if err != nil {
		var op *net.OpError
		var of *url.Error
		switch {
		case errors.Is(err, fs.ErrPermission):
			return nil, fmt.Errorf("cannot ask the agent on %q: permission denied; ask as root", c.socket)
		case errors.As(err, &op):
			err = op.Err
		case errors.As(err, &of): // drop its URL, which is always the same
			err = of.Err
		}
		return nil, fmt.Errorf("no agent answers on %q: %w", c.socket, err)
	}
	return resp, nil
}

// Text returns a page as it is, whatever its status; for reports. With an error, it returns what it has read so far.
func (c *Client) Text(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := c.get(ctx, path, http.Header{})
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // it was read to the end or is of no use
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return string(body), err
}

// Holders returns who was given which device, by device; nil if the agent cannot tell, for example because it is
// older.
func (c *Client) Holders(ctx context.Context) map[string][]exporter.Holder {
	all, _ := c.Holdings(ctx)
	return all
}

// Holdings is like Holders and also reports whether the kubelet has ever answered.
func (c *Client) Holdings(ctx context.Context) (all map[string][]exporter.Holder, told bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := c.get(ctx, "/v1/holders", http.Header{})
	if err != nil {
		return nil, false
	}
	defer func() { _ = resp.Body.Close() }() // it was read to the end or is of no use
	if resp.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(&all) != nil {
		return nil, false
	}
	return all, resp.Header.Get("Last-Modified") != ""
}

// Progress returns the progress of the work on a kind, or on all kinds if kind is empty. It returns nothing if the
// agent cannot tell, for example because it is older.
func (c *Client) Progress(ctx context.Context, kind string) []accel.Progress {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := c.get(ctx, "/v1/progress", http.Header{})
	if err != nil {
		return nil
	}
	defer func() { _ = resp.Body.Close() }() // it was read to the end or is of no use
	var all []accel.Progress
	if resp.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&all) != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(p accel.Progress) bool { return kind != "" && p.Kind != kind })
}

func (c *Client) ask(ctx context.Context, header http.Header) (m accel.Machine, err error) {
	resp, err := c.get(ctx, "/v1/machine", header)
	if err != nil {
		return m, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read to the end or is of no use
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		c.ahead = time.Until(at)
	}
	if resp.StatusCode == http.StatusNotModified {
		return m, ErrUnchanged
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		what := resp.Status
		if said := strings.TrimSpace(strings.Map(printable, string(text))); said != "" {
			what += ": " + said
		}
		return m, fmt.Errorf("the agent on %q answered %s", c.socket, what)
	}
	// A large host's machine takes 2 MB. If it exceeds 16 MB, this is another program's endpoint.
	if err := json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(&m); err != nil {
		return m, fmt.Errorf("the agent on %q answered something else than a machine: %w", c.socket, err)
	}
	if m.Taken.IsZero() && m.Agent.Started.IsZero() {
		return m, fmt.Errorf("the agent on %q answered something else than a machine: it has no time", c.socket)
	}
	c.tag = resp.Header.Get("ETag")
	return m, nil
}

// printable replaces control characters, which a terminal would obey.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return ' '
}
