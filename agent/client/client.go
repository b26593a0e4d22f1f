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

// New returns a client for a socket. resolve returns the file to which its name leads.
func New(socket string, resolve func(name string) (string, error)) *Client {
	return NewWith(socket, func(ctx context.Context) (net.Conn, error) {
		file, err := resolve(socket)
		if err != nil {
			return nil, err
		}
		var d net.Dialer
		return d.DialContext(ctx, "unix", file)
	})
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

// answer is what the agent said to a request: at most a given number of bytes of the body.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// read requests one path. With an error, it returns what it has read so far.
func (c *Client) read(ctx context.Context, path string, limit int64) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := c.get(ctx, path, http.Header{})
	if err != nil {
		return a, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read to the end or is of no use
	a = answer{status: resp.StatusCode, header: resp.Header}
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, limit))
	return a, err
}

// Text returns a page as it is, whatever its status; for reports. With an error, it returns what it has read so far.
func (c *Client) Text(ctx context.Context, path string) (string, error) {
	a, err := c.read(ctx, path, 16<<20)
	return string(a.body), err
}

// Holders returns who was given which device, by device; nil if the agent cannot tell, for example because no kubelet
// has answered yet, or it is older.
func (c *Client) Holders(ctx context.Context) map[string][]exporter.Holder {
	all, told := c.Holdings(ctx)
	if !told && len(all) == 0 {
		return nil
	}
	return all
}

// Holdings is like Holders and also reports whether the kubelet has ever answered.
func (c *Client) Holdings(ctx context.Context) (all map[string][]exporter.Holder, told bool) {
	a, err := c.read(ctx, "/v1/holders", 16<<20)
	if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &all) != nil {
		return nil, false
	}
	return all, a.header.Get("Last-Modified") != ""
}

// Progress returns the progress of the work on a kind, or on all kinds if kind is empty. It returns nothing if the
// agent cannot tell, for example because it is older.
func (c *Client) Progress(ctx context.Context, kind string) []accel.Progress {
	var all []accel.Progress
	a, err := c.read(ctx, "/v1/progress", 1<<20)
	if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &all) != nil {
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
