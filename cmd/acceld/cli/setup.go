package cli

import (
	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/vendors"
)

// parts is what most commands need.
type parts struct {
	*agent.Setup
	// console shows the log and the progress of the work.
	console *console
}

// setupOptions returns the options from the flags of every command, with the vendors' catalog.
func (c *common) setupOptions() agent.SetupOptions {
	return agent.SetupOptions{
		HostRoot: c.hostRoot, ConfigFile: c.config, ConfigNamed: c.asked, LogTo: c.console,
		Catalog: agent.Catalog{
			Definitions: vendors.Definitions, Parse: vendors.Parse, Load: vendors.Load,
			MetricPages: vendors.MetricPages,
		},
	}
}

// opened returns the body of a command that needs configuration and definitions.
func (c *common) opened(run func(p *parts, cmd *cobra.Command, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		p, problem := c.open()
		if problem != nil {
			return failed(problem)
		}
		return run(p, cmd, args)
	}
}

// open reads configuration and definitions.
func (c *common) open() (*parts, *accel.Problem) {
	s, problem := agent.Open(c.setupOptions())
	if problem != nil {
		return nil, problem
	}
	return &parts{Setup: s, console: c.console}, nil
}
