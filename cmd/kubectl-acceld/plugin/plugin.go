// Package plugin is the command line of kubectl-acceld. It reads nodes, pods, events and policies with the rights of
// whoever runs it, and prints what they say about accelerators. It changes nothing, and asks no node.
package plugin

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/kube"
)

// timeout is how long all requests of a command may take.
const timeout = 30 * time.Second

// Main runs the command line args and returns the exit code: 0 done, 1 failed, 2 wrong usage.
func Main(args []string, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	failed := false
	root := New(&failed, open)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(errs, "kubectl-acceld:", clean(err.Error()))
		if failed {
			return 1
		}
		return 2
	}
	return 0
}

// open returns the API server of a kubeconfig, and without one that of $KUBECONFIG or of ~/.kube/config.
func open(kubeconfig string) (kube.API, error) {
	if kubeconfig == "" {
		kubeconfig, _, _ = strings.Cut(os.Getenv("KUBECONFIG"), string(filepath.ListSeparator))
	}
	if home := os.Getenv("HOME"); kubeconfig == "" && home != "" {
		kubeconfig = filepath.Join(home, ".kube/config")
	}
	client, err := kube.NewClient(kubeconfig)
	return client.Documents, err
}

// New returns the command. It sets failed once a command runs, so that a failure can be told apart from wrong usage.
func New(failed *bool, open func(kubeconfig string) (kube.API, error)) *cobra.Command {
	var kubeconfig, namespace string
	root := &cobra.Command{
		Use:   "kubectl-acceld",
		Short: "See the accelerators of a cluster, and why a pod does not get one",
		Long: `kubectl acceld reads what the API server has about accelerators: nodes with their labels and conditions, pods with
their events, and policies. It needs the right to read them and changes nothing.`,
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.PersistentFlags().StringVar(&kubeconfig, "kubeconfig", "",
		"the kubeconfig for the API server; empty: $KUBECONFIG, or ~/.kube/config")
	add := func(use, short string, args cobra.PositionalArgs,
		run func(ctx context.Context, r reader, out io.Writer, args []string) error,
	) *cobra.Command {
		c := &cobra.Command{
			Use: use, Short: short, Args: args,
			RunE: func(cmd *cobra.Command, args []string) error {
				*failed = true
				api, err := open(kubeconfig)
				if err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
				defer cancel()
				return run(ctx, reader{api}, cmd.OutOrStdout(), args)
			},
		}
		root.AddCommand(c)
		return c
	}
	add("status", "Sum up the accelerators of the cluster, and what is wrong", cobra.NoArgs, status)
	add("nodes", "List the nodes with accelerators, one line for each kind", cobra.NoArgs, nodes)
	add("policy [NAME]", "List the policies, or show one", cobra.MaximumNArgs(1), policies)
	explain := add("explain POD", "Say why a pod waits or has failed, as far as accelerators are concerned",
		cobra.ExactArgs(1), func(ctx context.Context, r reader, out io.Writer, args []string) error {
			name := args[0]
			if before, after, both := strings.Cut(name, "/"); both {
				namespace, name = before, after
			}
			return explainPod(ctx, r, out, namespace, name)
		})
	explain.Flags().StringVarP(&namespace, "namespace", "n", "default", "the namespace of the pod, unless POD has one")
	return root
}

// table prints rows in columns.
func table(out io.Writer, rows [][]string) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		for i := range row {
			row[i] = clean(row[i])
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // nobody reads what a closed pipe refuses
}

// clean makes a text of the cluster fit for a terminal: whoever writes an event must not move the cursor.
func clean(text string) string {
	const longest = 1000
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r) || r == unicode.ReplacementChar, unicode.Is(unicode.Cf, r): // Cf turns the direction
			return -1
		}
		return r
	}, text)
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
