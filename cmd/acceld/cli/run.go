package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/host"
)

func runCommand(c *common) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use: "run", Short: "Run the agent", Args: noArgs,
		Long: `run is the agent. It makes the host's accelerators ready and keeps them so until it is stopped. Stopping it affects
neither drivers nor containers. It serves the local endpoint, and the kubelet and the API server if there are any. With
--check it only checks the configuration, the definitions, and whether the files that they name are there.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if check {
				return c.check(cmd)
			}
			return failed(agent.Run(cmd.Context(), agent.Options{SetupOptions: c.setupOptions(), Version: version()}))
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "check the configuration and exit")
	return cmd
}

// check reports everything that is wrong with the configuration and the definitions.
func (c *common) check(cmd *cobra.Command) error {
	p, problem := c.open(cmd)
	if problem != nil {
		return failed(problem)
	}
	all := slices.Concat(p.Absent(c.config), p.Skipped)
	for _, problem := range all {
		fmt.Fprintln(p.errs, "acceld:", explain(problem))
	}
	if len(all) > 0 {
		return exit{exitFailed, fmt.Errorf("%s in %s", count(len(all), "problem"), c.from())}
	}
	fmt.Fprintln(p.out, c.from()+" is valid")
	return nil
}

// startedCommand is the startup probe of a container of the DaemonSet. While the next agent waits for the previous one,
// the previous one answers the other probes, which ask at the host's port.
func startedCommand(c *common) *cobra.Command {
	return &cobra.Command{
		Use: "started", Hidden: true, Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			h, err := host.New(c.hostRoot)
			if err != nil {
				return exit{exitFailed, err}
			}
			return failed(lock.Ours(h))
		},
	}
}
