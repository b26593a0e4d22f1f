package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/driver"
)

func driverPreflightCommand(c *common) *cobra.Command {
	var all, keep bool
	var kernel string
	var format outputFormat
	cmd := &cobra.Command{
		Use: "preflight [KIND...]", Short: "Prepare the drivers of kinds for another kernel",
		Long: `preflight prepares the drivers of the named kinds for an installed kernel, which need not be running. It takes them from
the store or the host, fetches or builds them, and checks them against that kernel's files. It loads nothing. What it
built stays in the store, so after a reboot into that kernel the driver only has to be loaded.`,
		RunE: c.opened(func(p *parts, kinds []string) error {
			if kernel == "" {
				return fmt.Errorf("name the kernel with --kernel (installed: %s)",
					cmp.Or(strings.Join(detect.InstalledKernels(p.Host), ", "), "none"))
			}
			if all == (len(kinds) > 0) {
				return errors.New("name the kinds, or use --all")
			}
			facts := p.factsFor(kernel)
			defs, err := p.chosen(kinds)
			if err != nil {
				return err
			}
			if all {
				defs = p.withDevices(facts)
			}
			v, d := p.work(format.json())
			results := []driver.PreflightResult{} // [], not null
			for _, def := range defs {
				if v.ctx.Err() == nil {
					results = append(results, d.Preflight(v.ctx, def, facts, driver.PreflightOptions{Discard: !keep}))
				}
			}
			v.close()
			if err := v.interrupted(); err != nil && !format.json() {
				return err
			}
			err = format.print(p.out, results, func(s *tableWriter) {
				printPreflight(&s.b, kernel, results)
			})
			if err == nil && slices.ContainsFunc(results, func(r driver.PreflightResult) bool { return !r.Ready }) {
				err = exit{exitFailed, nil}
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&kernel, "kernel", "", "the kernel's release, as uname -r prints it")
	cmd.Flags().BoolVar(&all, "all", false, "every kind that has a device")
	cmd.Flags().BoolVar(&keep, "keep", true, "keep what was built or fetched")
	format.flag(cmd, "text")
	return cmd
}

// printPreflight writes what a reboot into the kernel will find for each kind.
func printPreflight(out io.Writer, kernel string, results []driver.PreflightResult) {
	if len(results) == 0 {
		fmt.Fprintln(out, "no device")
	}
	for _, r := range results {
		if !r.Ready {
			fmt.Fprintf(out, "%s: no driver for kernel %s: %s\n", r.Kind, kernel, explain(r.Problem))
			continue
		}
		took := time.Duration(r.Seconds * float64(time.Second)).Round(100 * time.Millisecond)
		fmt.Fprintf(out, "%s: %s is ready for kernel %s (%s, %v)\n",
			r.Kind, strings.TrimSpace("driver "+r.Version), kernel, r.Source.Where(), took)
	}
}
