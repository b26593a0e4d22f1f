package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

func statusCommand(c *common) *cobra.Command {
	var format outputFormat
	var watch bool
	cmd := &cobra.Command{
		Use: "status", Short: "Ask the running agent how things stand", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, problem := c.open()
			if problem != nil {
				return failed(problem)
			}
			client, err := endpoint(p.host, p.config.Socket)
			if err != nil {
				return exit{exitUnreachable, err}
			}
			if watch {
				return watchStatus(cmd.Context(), client, cmd.OutOrStdout(), format.json())
			}
			m, err := machine(cmd.Context(), client)
			if err != nil {
				return exit{exitUnreachable, fmt.Errorf("no agent answers on %q: %w", p.config.Socket, err)}
			}
			if format.json() {
				err = writeJSON(cmd.OutOrStdout(), m)
			} else {
				err = printMachine(cmd.OutOrStdout(), m, colourful(cmd.OutOrStdout()))
			}
			if err == nil && !allReady(m) {
				return exit{exitNotReady, errors.New("")}
			}
			return err
		},
	}
	format.flag(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print again whenever something changed")
	return cmd
}

// endpoint returns a client of the agent's unix socket.
func endpoint(h *host.Host, socket string) (*http.Client, error) {
	p, err := h.Path(socket)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	return &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", p)
		}},
	}, nil
}

// machine asks the agent for its machine.
func machine(ctx context.Context, client *http.Client) (m accel.Machine, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://acceld/v1/machine", nil)
	if err != nil {
		return m, err
	}
	resp, err := client.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return m, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return m, fmt.Errorf("the agent answered %s", resp.Status)
	}
	return m, json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(&m)
}

// watchStatus prints the machine at each change until ctx ends.
func watchStatus(ctx context.Context, client *http.Client, out io.Writer, asJSON bool) error {
	// The endpoint answers from memory; asking it twice a second is a person's patience, not a mechanism.
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	last := ""
	for {
		m, err := machine(ctx, client)
		var text string
		if err != nil {
			text = "no agent answers: " + err.Error()
		} else {
			text = summary(m)
		}
		if text != last && ctx.Err() == nil {
			last = text
			if err := printChange(out, m, text, err, asJSON); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func printChange(out io.Writer, m accel.Machine, text string, asked error, asJSON bool) error {
	switch {
	case asked == nil && asJSON:
		return writeJSON(out, m)
	case asJSON:
		return nil
	default:
		_, err := fmt.Fprintf(out, "%s  %s\n", time.Now().Format("15:04:05"), text)
		return err
	}
}

// colourful reports whether out is a terminal that wants colour (no-color.org).
func colourful(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// allReady reports whether every kind that has a device is ready and every device healthy.
func allReady(m accel.Machine) bool {
	for kind, s := range m.Status {
		if s.State != accel.Ready && s.State != accel.Absent {
			return false
		}
		if accs := m.Have[kind].Accelerators; accel.CountHealthy(accs) != len(accs) {
			return false
		}
	}
	return true
}
