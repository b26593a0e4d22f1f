// Package cli is the command line of acceld-controller: flags and logging. The work is done in package controller.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/controller/replica"
	"github.com/acceld/acceld/systemd"
)

// Main runs the command line args and returns the exit code: 0 done, 1 failed, 2 wrong usage.
func Main(args []string, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	failed := false
	root := New(&failed)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(errs, "acceld-controller:", err)
		if failed {
			return 1
		}
		return 2
	}
	return 0
}

// New returns the command. It sets failed once the command runs, so that a failure can be told apart from wrong usage.
func New(failed *bool) *cobra.Command {
	var config, kubeconfig, identity, format string
	var check, debug bool
	root := &cobra.Command{
		Use:   "acceld-controller",
		Short: "Coordinate the accelerators of a cluster",
		Long: `acceld-controller does what no node can do alone: it carries out AcceleratorPolicies, and answers the Kubernetes
scheduler as an extender, for which it tracks each card of each node. If there are several replicas, one becomes the
leader by a Lease and answers; the others are ready to take over.`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			*failed = true
			c, err := replica.ReadConfig(config)
			if err != nil {
				return err
			}
			if check {
				if absent := c.Absent(kubeconfig); len(absent) > 0 {
					return errors.New(strings.Join(absent, "; "))
				}
				return nil
			}
			level := slog.LevelInfo
			if debug {
				level = slog.LevelDebug
			}
			if format != "text" && format != "json" {
				return fmt.Errorf("--log-format: %q is not one of text, json", format)
			}
			log := systemd.NewLog(systemd.LogOptions{
				To: cmd.ErrOrStderr(), Format: systemd.LogFormat(format), Level: level,
			})
			return replica.Run(cmd.Context(), c, kubeconfig, identity, log)
		},
	}
	flags := root.Flags()
	flags.StringVar(&config, "config", "/etc/acceld/controller.yaml", "the configuration file")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "the kubeconfig for the API server; empty: the pod's service account")
	flags.StringVar(&identity, "identity", "",
		"this replica's name in the leader election; empty: the host's name and a random part")
	flags.BoolVar(&check, "check", false, "check the configuration, and whether the files that it names are there, and exit")
	flags.BoolVar(&debug, "debug", false, "log debug messages too")
	flags.StringVar(&format, "log-format", "text", "how to log: text or json")
	root.AddCommand(removeCommand(failed))
	return root
}
