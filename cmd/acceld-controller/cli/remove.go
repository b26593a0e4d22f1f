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
		Use: "remove", Short: "Take acceld off the cluster", Args: cobra.NoArgs,
		Long: `remove deletes the AcceleratorPolicies and undoes what they did, waits until the agents have gone and the DaemonSet acceld-remove,
where there is one, has taken back their nodes, and removes what agents wrote into the cluster: labels, annotations, the condition and the
taint of their nodes, leases, and what they offered by claims. Nothing that somebody else has written goes. It can be repeated.

It ends with 0 when nothing is left, and otherwise says what is and why when its time is over. It is run by the Job of
packaging/manifests/remove, which the chart starts when it is uninstalled.`,
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
			log.Info("nothing of acceld is left but what runs this")
			return nil
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "the way to the API server; empty: the pod's service account")
	cmd.Flags().StringVar(&namespace, "namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), kube.Namespace),
		"where the agents were")
	cmd.Flags().DurationVar(&timeout, "timeout", 4*time.Minute, "how long it may take")
	return cmd
}
