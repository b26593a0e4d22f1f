package cli

import (
	"github.com/spf13/cobra"

	"github.com/acceld/acceld/agent"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/host"
)

func runCommand(c *common) *cobra.Command {
	return &cobra.Command{
		Use: "run", Short: "Run the agent", Args: noArgs,
		Long: `run is the agent. It makes the host's accelerators ready and keeps them so until it is stopped. Stopping it affects
neither drivers nor containers. It serves the local endpoint, and the kubelet and the API server if there are any.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return failed(agent.Run(cmd.Context(), agent.Options{SetupOptions: c.setupOptions(), Version: version()}))
		},
	}
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
