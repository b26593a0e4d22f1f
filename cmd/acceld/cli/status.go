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
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/exporter"
)

func statusCommand(c *common) *cobra.Command {
	var format outputFormat
	var watch bool
	cmd := &cobra.Command{
		Use: "status [KIND|DEVICE...]", Short: "Ask the running agent how things stand",
		Long: `status asks the running agent how things stand: for each kind of accelerator on the host its state, why it is not ready, since
when, what is next and who must do what; for each device its health and which pods hold it. Kinds and devices that are named are
shown alone, and the exit code is about them. On a terminal it has colour, unless
NO_COLOR is set, and fits the width. With --watch the page is kept up to date in its place until it is interrupted; in a pipe
there is one line for each change.`,
		RunE: func(cmd *cobra.Command, words []string) error {
			p, problem := c.open()
			if problem != nil {
				return failed(problem)
			}
			a, err := p.agent()
			if err != nil {
				return exit{exitUnreachable, err}
			}
			a.words = words
			out := cmd.OutOrStdout()
			switch _, height := size(out); {
			case watch && height > 0 && !format.json():
				return a.watchScreen(cmd.Context(), out)
			case watch:
				return a.watch(cmd.Context(), out, format.json())
			}
			m, err := a.machine(cmd.Context())
			if err != nil {
				return exit{exitUnreachable, err}
			}
			picked, err := pick(m, words)
			switch {
			case err != nil:
				return err
			case format.json():
				err = writeJSON(out, picked)
			default:
				s := newSheet(out)
				printMachine(s, shown{Machine: m, picked: picked, holders: a.holders(cmd.Context()), atWork: a.progress(cmd.Context(), ""), now: a.clock()})
				_, err = io.WriteString(out, s.String())
			}
			if err == nil && !allReady(picked) {
				return exit{exitNotReady, nil}
			}
			return err
		},
	}
	format.flag(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "keep the page up to date; in a pipe, print a line whenever something changed")
	return cmd
}

// asked is the running agent, as its unix socket answers for it.
type asked struct {
	socket string
	client *http.Client
	// tag is of the machine that came last, for watch.
	tag string
	// words are the kinds and devices to show; none is all.
	words []string
	// ahead is what the agent's clock was ahead of this one's when it answered last.
	ahead time.Duration
}

// clock is the time by the agent's clock.
func (a *asked) clock() time.Time { return time.Now().Add(a.ahead) }

// agent finds the agent's socket; whether somebody answers there is not known yet.
func (p *parts) agent() (*asked, error) {
	file, err := p.Host.Path(p.Config.Socket)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	return &asked{socket: p.Config.Socket, client: &http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", file)
		}},
	}}, nil
}

const (
	// patience is how long the agent may take for an answer, and maxWait how many seconds it may wait for a change.
	patience = 10 * time.Second
	maxWait  = 20
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

// get asks for one path. The caller closes the body.
func (a *asked) get(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://acceld"+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header = header
	resp, err := a.client.Do(req)
	if err != nil {
		var op *net.OpError
		var of *url.Error
		switch {
		case errors.Is(err, fs.ErrPermission):
			return nil, fmt.Errorf("cannot ask the agent on %q: permission denied; ask as root", a.socket)
		case errors.As(err, &op):
			err = op.Err
		case errors.As(err, &of): // its address is always the same
			err = of.Err
		}
		return nil, fmt.Errorf("no agent answers on %q: %w", a.socket, err)
	}
	return resp, nil
}

// text asks for a page as it is, with what it has of an answer that is none; for reports.
func (a *asked) text(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	resp, err := a.get(ctx, path, http.Header{})
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // it was read to the end or is of no use
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return string(body), err
}

// holders asks who was given which device; nil when the agent cannot tell, such as one of an earlier version.
func (a *asked) holders(ctx context.Context) map[string][]exporter.Holder {
	all, _ := a.holdings(ctx)
	return all
}

// holdings is holders with whether the kubelet has said it, ever.
func (a *asked) holdings(ctx context.Context) (all map[string][]exporter.Holder, told bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	resp, err := a.get(ctx, "/v1/holders", http.Header{})
	if err != nil {
		return nil, false
	}
	defer func() { _ = resp.Body.Close() }() // it was read to the end or is of no use
	if resp.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(&all) != nil {
		return nil, false
	}
	return all, resp.Header.Get("Last-Modified") != ""
}

// progress asks how far the work on a kind is; nothing when the agent cannot tell, such as one of an earlier version.
func (a *asked) progress(ctx context.Context, kind string) []accel.Progress {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	resp, err := a.get(ctx, "/v1/progress", http.Header{})
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

func (a *asked) ask(ctx context.Context, header http.Header) (m accel.Machine, err error) {
	resp, err := a.get(ctx, "/v1/machine", header)
	if err != nil {
		return m, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read to the end or is of no use
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		a.ahead = time.Until(at)
	}
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

// allReady reports whether every kind that has a device is ready and every device healthy.
func allReady(m accel.Machine) bool {
	if m.Taken.IsZero() {
		return false // the agent has not read the host yet
	}
	for kind, s := range m.Status {
		if s.State != accel.Ready && s.State != accel.Absent {
			return false
		}
		if accs := m.Have[kind].Accelerators; accel.CountOffered(accs) != len(accs) {
			return false
		}
	}
	return true
}
