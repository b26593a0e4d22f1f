package cli

import (
	"fmt"

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
		RunE: c.opened(func(p *parts, _ []string) error {
			r, err := p.runtimeFor(runtimeFlags{})
			if err != nil {
				return err
			}
			outcomes, problem := purge.Run(p.ctx, p.Setup, purge.Options{
				DryRun: dry, KeepDrivers: keep,
				Runtime: r,
			})
			report := purgeReport{dry, append([]ledger.Outcome{}, outcomes...), purge.Left(outcomes)}
			if err := format.print(p.out, report, func(s *tableWriter) {
				printPurge(s, report)
			}); err != nil {
				return err
			}
			if problem != nil {
				return failed(problem)
			}
			if report.Left > 0 {
				return exit{exitFailed, nil}
			}
			if stay {
				<-p.ctx.Done()
			}
			return nil
		}),
	}
	format.flag(cmd, "text")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what would be done, change nothing")
	cmd.Flags().BoolVar(&keep, "keep-drivers", false, "leave the kernel modules loaded")
	cmd.Flags().BoolVar(&stay, "stay", false,
		"if nothing was left, wait for a signal instead of exiting, for a pod that would be restarted")
	return cmd
}

// printPurge lists what was done, or would be.
func printPurge(s *tableWriter, r purgeReport) {
	width, done := 0, 0
	for _, o := range r.Outcomes {
		width = max(width, len(o.Path))
	}
	for _, o := range r.Outcomes {
		paint := s.good
		switch o.Action {
		case ledger.Settled:
			continue
		case ledger.Left:
			paint = s.bad
		}
		done++
		text := fmt.Sprintf("%-*s  %s", width, plain(o.Path), plain(o.Detail))
		if o.Reason != "" {
			text += fmt.Sprintf(" (%s)", o.Reason)
		}
		action := fmt.Sprintf("%-8s", o.Action)
		s.fold(paint(action)+"  ", len(action)+2, text)
	}
	switch {
	case r.Left > 0:
		s.line(0, fmt.Sprintf("%d left: deal with what is named, then run purge again", r.Left))
	case done == 0:
		s.line(0, "nothing of acceld is on this host except its package")
	case r.DryRun:
		s.line(0, "nothing was changed: this is what a purge would do")
	default:
		s.line(0, "the programs, the units and /etc/acceld belong to the package: remove them with the package manager")
	}
}
