package cli

import (
	"github.com/spf13/cobra"

	"github.com/acceld/acceld/agent"
)

func runCommand(c *common) *cobra.Command {
	return &cobra.Command{
		Use: "run", Short: "Run the agent", Args: noArgs,
		Long: `run is the agent: it brings the host's accelerators to ready and keeps them there until it is told to stop. Stopping it touches
neither drivers nor containers. It serves the local endpoint, and the kubelet and the API server where there are any.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return failed(agent.Run(cmd.Context(), agent.Options{SetupOptions: c.setupOptions(), Version: version()}))
		},
	}
}
