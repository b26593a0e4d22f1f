package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/vendors"
)

// parts is what most commands need.
type parts struct {
	*common
	*agent.Setup
	ctx       context.Context //nolint:containedctx // the context of the command; it ends on an interrupt
	in        io.Reader
	out, errs io.Writer // out writes above the status line of standard error
}

// setupOptions returns the options from the flags of every command, with the vendors' catalog.
func (c *common) setupOptions() agent.SetupOptions {
	return agent.SetupOptions{
		HostRoot: c.hostRoot, ConfigFile: c.config, ConfigNamed: c.asked, LogTo: c.console,
		LogStderr: c.console.out == os.Stderr,
		Catalog: agent.Catalog{
			Definitions: vendors.Definitions, Parse: vendors.Parse, Load: vendors.Load,
			MetricPages: vendors.MetricPages,
		},
	}
}

// opened returns the body of a command that needs configuration and definitions.
func (c *common) opened(run func(p *parts, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		p, problem := c.open(cmd)
		if problem != nil {
			return failed(problem)
		}
		return run(p, args)
	}
}

// facts reads the host.
func (p *parts) facts() accel.Facts { return p.Detect(detect.Options{}) }

// factsFor reads the host. If release is not empty, the kernel is the installed one of that release. It notes on
// standard error what the files of that kernel do not reveal.
func (p *parts) factsFor(release string) accel.Facts {
	facts := p.facts()
	if release == "" {
		return facts
	}
	var notes []string
	facts.Kernel, notes = detect.InstalledKernel(p.Host, release, facts.Kernel)
	for _, n := range notes {
		fmt.Fprintln(p.errs, "acceld:", n)
	}
	return facts
}

// open reads configuration and definitions for cmd.
func (c *common) open(cmd *cobra.Command) (*parts, *accel.Problem) {
	s, problem := agent.Open(c.setupOptions())
	if problem != nil {
		return nil, problem
	}
	return &parts{
		c, s, cmd.Context(), cmd.InOrStdin(), c.console.over(cmd.OutOrStdout()), cmd.ErrOrStderr(),
	}, nil
}
