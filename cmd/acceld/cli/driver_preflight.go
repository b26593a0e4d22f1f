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

	"github.com/acceld/acceld/accel"
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
		RunE: c.opened(func(p *parts, cmd *cobra.Command, kinds []string) error {
			if kernel == "" {
				return fmt.Errorf("name the kernel with --kernel (installed: %s)",
					cmp.Or(strings.Join(detect.InstalledKernels(p.Host), ", "), "none"))
			}
			if all == (len(kinds) > 0) {
				return errors.New("name the kinds, or use --all")
			}
			facts := detect.Detect(p.Host, detect.Options{})
			if all {
				kinds = p.withDevices(facts)
			}
			defs, err := p.chosen(kinds)
			if err != nil {
				return err
			}
			facts.Kernel = p.kernelFor(cmd, kernel, facts.Kernel)
			v := newView(cmd.Context(), p.console, format.json())
			results := p.preflight(v, defs, facts, !keep)
			v.close()
			if format.json() {
				err = writeJSON(cmd.OutOrStdout(), results)
			} else if err = v.interrupted(); err == nil {
				err = printPreflight(cmd.OutOrStdout(), kernel, results)
			}
			if err == nil && slices.ContainsFunc(results, func(r driver.PreflightResult) bool { return !r.Ready }) {
				err = exit{exitFailed, nil}
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&kernel, "kernel", "", "the kernel's release, as uname -r prints it")
	cmd.Flags().BoolVar(&all, "all", false, "every kind that has a device")
	cmd.Flags().BoolVar(&keep, "keep", true, "keep what was built or fetched")
	format.flag(cmd, "text", "json")
	return cmd
}

// kernelFor returns the running kernel, or an installed one if its release is named. It notes on standard error what
// the files of that kernel do not reveal.
func (p *parts) kernelFor(cmd *cobra.Command, release string, running accel.Kernel) accel.Kernel {
	if release == "" {
		return running
	}
	k, notes := detect.InstalledKernel(p.Host, release, running)
	for _, n := range notes {
		fmt.Fprintln(cmd.ErrOrStderr(), "acceld:", n)
	}
	return k
}

// preflight runs the preflight of each definition.
func (p *parts) preflight(v *view, defs []*accel.Definition, facts accel.Facts, discard bool) []driver.PreflightResult {
	d := p.Driver(v.note)
	results := []driver.PreflightResult{} // [], not null
	for _, def := range defs {
		if v.ctx.Err() != nil {
			break
		}
		results = append(results, d.Preflight(v.ctx, def, facts, driver.PreflightOptions{Discard: discard}))
	}
	return results
}

func printPreflight(out io.Writer, kernel string, results []driver.PreflightResult) error {
	if len(results) == 0 {
		_, err := fmt.Fprintln(out, "no device")
		return err
	}
	for _, r := range results {
		var err error
		if r.Ready {
			took := time.Duration(r.Seconds * float64(time.Second)).Round(100 * time.Millisecond)
			_, err = fmt.Fprintf(out, "%s: %s is ready for kernel %s (%s, %v)\n",
				r.Kind, strings.TrimSpace("driver "+r.Version), kernel, r.Source.Where(), took)
		} else {
			_, err = fmt.Fprintf(out, "%s: no driver for kernel %s: %s\n", r.Kind, kernel, explain(r.Problem))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
