package cli

import (
	"github.com/spf13/cobra"

	"github.com/acceld/acceld/agent"
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
