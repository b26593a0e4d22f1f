package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/agent/purge"
	"github.com/acceld/acceld/host/ledger"
)

// purgeReport is what -o json prints.
type purgeReport struct {
	DryRun   bool             `json:"dryRun"`
	Outcomes []ledger.Outcome `json:"outcomes"`
	// Left is how many things still differ from their state before acceld.
	Left int `json:"left"`
}

func purgeCommand(c *common) *cobra.Command {
	var format outputFormat
	var dry, keep, stay bool
	cmd := &cobra.Command{
		Use: "purge", Short: "Undo everything that acceld changed on this host", Args: noArgs,
		Long: `purge undoes what acceld changed. Containers get no device any more. The files of container runtimes are restored byte
for byte, with their mode, owner and time. The modules that acceld loaded are unloaded, and acceld's own data is
deleted. Files that somebody else has changed since, and drivers in use, are left and named. You can run purge again at
any time; it also finishes a purge that was interrupted. The agent must not run.

The programs, the units and /etc/acceld stay, because they belong to the package or to whoever wrote them. The exit code
is 0 if nothing was left.`,
		RunE: c.opened(func(p *parts, cmd *cobra.Command, _ []string) error {
			r, err := p.runtimeFor(runtimeFlags{})
			if err != nil {
				return err
			}
			outcomes, problem := purge.Run(cmd.Context(), p.Setup, purge.Options{
				DryRun: dry, KeepDrivers: keep,
				Runtime: r,
			})
			if err := printPurge(cmd.OutOrStdout(), format, dry, outcomes); err != nil {
				return err
			}
			if problem != nil {
				return failed(problem)
			}
			if purge.Left(outcomes) > 0 {
				return exit{exitFailed, nil}
			}
			if stay {
				<-cmd.Context().Done()
			}
			return nil
		}),
	}
	format.flag(cmd, "text", "json")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what would be done, change nothing")
	cmd.Flags().BoolVar(&keep, "keep-drivers", false, "leave the kernel modules loaded")
	cmd.Flags().BoolVar(&stay, "stay", false,
		"if nothing was left, wait for a signal instead of exiting, for a pod that would be restarted")
	return cmd
}

// printPurge prints what was done: a list for people, or everything as JSON.
func printPurge(out io.Writer, format outputFormat, dry bool, outcomes []ledger.Outcome) error {
	left := purge.Left(outcomes)
	if format.json() {
		return writeJSON(out, purgeReport{dry, append([]ledger.Outcome{}, outcomes...), left})
	}
	i := palette(colourful(out))
	var b strings.Builder
	width := 0
	for _, o := range outcomes {
		width = max(width, len(o.Path))
	}
	done := 0
	for _, o := range outcomes {
		paint := i.good
		switch o.Action {
		case ledger.Settled:
			continue
		case ledger.Left:
			paint = i.bad
		}
		done++
		line := fmt.Sprintf("%s  %-*s  %s", paint(fmt.Sprintf("%-8s", o.Action)), width, plain(o.Path), plain(o.Detail))
		if o.Reason != "" {
			line += fmt.Sprintf(" (%s)", o.Reason)
		}
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
	}
	switch {
	case left > 0:
		fmt.Fprintf(&b, "%d left: deal with what is named, then run purge again\n", left)
	case done == 0:
		fmt.Fprintln(&b, "nothing of acceld is on this host except its package")
	case dry:
		fmt.Fprintln(&b, "nothing was changed: this is what a purge would do")
	default:
		fmt.Fprintln(&b,
			"the programs, the units and /etc/acceld belong to the package: remove them with the package manager")
	}
	return printPage(out, b.String())
}
