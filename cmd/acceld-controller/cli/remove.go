package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/controller/policy"
	"github.com/acceld/acceld/kube"
)

// removeCommand returns the command that removes acceld from a cluster.
func removeCommand(failed *bool) *cobra.Command {
	var kubeconfig, namespace string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "remove", Short: "Remove acceld from the cluster", Args: cobra.NoArgs,
		Long: `remove deletes the AcceleratorPolicies and undoes what they did. It waits until the agents are gone and the DaemonSet
acceld-remove, if there is one, has cleaned up their nodes. Then it removes what the agents wrote into the cluster:
labels, annotations, the condition and the taint of their nodes, leases, and what they offered to claims. It removes
nothing that somebody else has written. You can run it again.

The exit code is 0 if nothing is left. Otherwise, when its time is up, remove says what is left and why. The Job in
packaging/manifests/remove runs it, and the chart starts that Job when it is uninstalled.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			*failed = true
			client, err := kube.NewClient(kubeconfig)
			if err != nil {
				return fmt.Errorf("cannot find the API server: %w", err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			if err := policy.Remove(ctx, policy.Options{
				API: client.Documents, Namespace: namespace,
				Log: log,
			}); err != nil {
				return err
			}
			log.Info("nothing of acceld is left except what runs this command")
			return nil
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "the kubeconfig for the API server; empty: the pod's service account")
	cmd.Flags().StringVar(&namespace, "namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), kube.Namespace),
		"the namespace of the agents")
	cmd.Flags().DurationVar(&timeout, "timeout", 4*time.Minute, "how long the removal may take")
	return cmd
}
