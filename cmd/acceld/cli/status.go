package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent/client"
)

func statusCommand(c *common) *cobra.Command {
	var format outputFormat
	var watch bool
	cmd := &cobra.Command{
		Use: "status [KIND|DEVICE...]", Short: "Show the state of the accelerators",
		Long: `status asks the running agent for the state of the host's accelerators. For each kind it shows the state and since when,
why it is not ready, what is next and who must do what; for each device, its health and which pods hold it. If you name
kinds or devices, it shows only those, with what each container and service uses of them as far as that is known, and
the exit code is about them. Devices that need attention come first; what is
not known of a device is a dash. With -o wide there are all columns, such as model, link and UUID. On a terminal the output fits the width and has
colour, unless NO_COLOR is set. With --watch it keeps the page up to date until you interrupt it; in a pipe it prints
one line for each change.`,
		RunE: c.opened(func(p *parts, words []string) error {
			a := p.agent()
			a.words = words
			out := p.out
			switch _, height := size(out); {
			case watch && height > 0 && !format.programs():
				return a.watchScreen(p.ctx, out, func(s *tableWriter, m shown) {
					m.wide = format.value == "wide"
					printMachine(s, m)
				})
			case watch:
				return a.watch(p.ctx, out, &format)
			}
			m, err := a.look(p.ctx)
			if err != nil {
				return err
			}
			m.wide = format.value == "wide"
			err = format.print(out, m.picked, func(s *tableWriter) { printMachine(s, m) })
			if err == nil && !allReady(m.picked) {
				return exit{exitNotReady, nil}
			}
			return err
		}),
	}
	format.flags(cmd, "text", "wide", "yaml", "json")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false,
		"keep the page up to date; in a pipe, print a line for each change")
	return cmd
}

// asked is a client of the running agent, with what of its answers to show.
type asked struct {
	*client.Client
	// words are the kinds and devices to show; none means all.
	words []string
	// openers are the processes that have devices open; nil if nobody looks.
	openers func(m accel.Machine) map[string][]string
}

// completed returns a page with the processes that have devices open, if it is not known who was given what.
func (a *asked) completed(page shown) shown {
	if page.holders == nil && a.openers != nil {
		page.openers = a.openers(page.Machine)
	}
	return page
}

// look asks for everything that a page shows.
func (a *asked) look(ctx context.Context) (shown, error) {
	m, err := a.Machine(ctx)
	if err != nil {
		return shown{}, exit{
			exitUnreachable, fmt.Errorf("%w\n  Start it: systemctl start acceld, or look at the DaemonSet's pod", err),
		}
	}
	picked, err := pick(m, a.words)
	return a.completed(shown{
		Machine: m, picked: picked, uses: len(a.words) > 0, holders: a.Holders(ctx),
		atWork: a.Progress(ctx, ""), now: a.Clock(),
	}), err
}

// agent returns a client for the agent's socket; whether an agent answers there is not known yet.
func (p *parts) agent() *asked {
	return &asked{Client: client.New(p.Config.Socket, p.Host.Path), openers: p.openers}
}

// allReady reports whether every kind that has a device is ready, and every device and partition is usable
// and not withheld.
func allReady(m accel.Machine) bool {
	if m.Taken.IsZero() {
		return false // the agent has not read the host yet
	}
	for kind, s := range m.Status {
		if s.State != accel.Ready && s.State != accel.Absent {
			return false
		}
		if accs := accel.Current(m.Have[kind].Accelerators); accel.CountOffered(accs) != len(accs) {
			return false
		}
	}
	return true
}
