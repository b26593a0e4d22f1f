package cli

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
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
)

func statusCommand(c *common) *cobra.Command {
	var format outputFormat
	var watch bool
	cmd := &cobra.Command{
		Use: "status", Short: "Ask the running agent how things stand", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, problem := c.open()
			if problem != nil {
				return failed(problem)
			}
			a, err := p.agent()
			if err != nil {
				return exit{exitUnreachable, err}
			}
			if watch {
				return a.watch(cmd.Context(), cmd.OutOrStdout(), format.json())
			}
			m, err := a.machine(cmd.Context())
			if err != nil {
				return exit{exitUnreachable, err}
			}
			if format.json() {
				err = writeJSON(cmd.OutOrStdout(), m)
			} else {
				err = printMachine(cmd.OutOrStdout(), m, colourful(cmd.OutOrStdout()))
			}
			if err == nil && !allReady(m) {
				return exit{exitNotReady, nil}
			}
			return err
		},
	}
	format.flag(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print again whenever something changed")
	return cmd
}

// asked is the running agent, as its unix socket answers for it.
type asked struct {
	socket string
	client *http.Client
	// tag is of the machine that came last, for watch.
	tag string
}

// agent finds the agent's socket; whether somebody answers there is not known yet.
func (p *parts) agent() (*asked, error) {
	file, err := p.host.Path(p.config.Socket)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	return &asked{socket: p.config.Socket, client: &http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", file)
		}},
	}}, nil
}

const (
	// patience is how long the agent may take for an answer, and maxWait how many seconds it may wait for a change.
	patience = 10 * time.Second
	maxWait  = 20
	// breath is between two lines of what is watched.
	breath = 300 * time.Millisecond
)

// machine asks the agent for its machine. The errors are whole sentences that name the socket.
func (a *asked) machine(ctx context.Context) (accel.Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return a.ask(ctx, http.Header{})
}

// next waits until the agent has another machine than the one that came last; none after a while is errUnchanged.
func (a *asked) next(ctx context.Context) (accel.Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, patience+maxWait*time.Second)
	defer cancel()
	return a.ask(ctx, http.Header{"If-None-Match": {a.tag}, "Prefer": {fmt.Sprintf("wait=%d", maxWait)}})
}

var errUnchanged = errors.New("nothing has changed")

func (a *asked) ask(ctx context.Context, header http.Header) (m accel.Machine, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://acceld/v1/machine", nil)
	if err != nil {
		return m, err
	}
	req.Header = header
	resp, err := a.client.Do(req)
	if err != nil {
		var op *net.OpError
		var of *url.Error
		switch {
		case errors.Is(err, fs.ErrPermission):
			return m, fmt.Errorf("cannot ask the agent on %q: permission denied; ask as root", a.socket)
		case errors.As(err, &op):
			err = op.Err
		case errors.As(err, &of): // its address is always the same
			err = of.Err
		}
		return m, fmt.Errorf("no agent answers on %q: %w", a.socket, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read to the end or is of no use
	if resp.StatusCode == http.StatusNotModified {
		return m, errUnchanged
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return m, fmt.Errorf("the agent on %q answered %s%s", a.socket, resp.Status, prefixed(": ", strings.TrimSpace(plain(string(text)))))
	}
	// A large host has 2 MB; beyond 16 it is somebody else's endpoint.
	if err := json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(&m); err != nil {
		return m, fmt.Errorf("the agent on %q answered something else than a machine: %w", a.socket, err)
	}
	if m.Taken.IsZero() && m.Agent.Started.IsZero() {
		return m, fmt.Errorf("the agent on %q answered something else than a machine: it has no time", a.socket)
	}
	a.tag = resp.Header.Get("ETag")
	return m, nil
}

// watch prints the machine at each change until ctx ends.
func (a *asked) watch(ctx context.Context, out io.Writer, asJSON bool) error {
	for last := ""; ctx.Err() == nil; {
		m, err := a.next(ctx)
		if errors.Is(err, errUnchanged) || ctx.Err() != nil {
			continue
		}
		text := plain(summary(m))
		if err != nil {
			text = err.Error()
		}
		if text != last {
			last = text
			if err := printChange(out, m, text, err, asJSON); err != nil {
				return err
			}
		}
		// Changes come in bursts, and nobody reads faster; while no agent answers it is asked again and again.
		select {
		case <-ctx.Done():
		case <-time.After(breath):
		}
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

// allReady reports whether every kind that has a device is ready and every device healthy.
func allReady(m accel.Machine) bool {
	if m.Taken.IsZero() {
		return false // the agent has not read the host yet
	}
	for kind, s := range m.Status {
		if s.State != accel.Ready && s.State != accel.Absent {
			return false
		}
		if accs := m.Have[kind].Accelerators; accel.CountUsable(accs) != len(accs) {
			return false
		}
	}
	return true
}
