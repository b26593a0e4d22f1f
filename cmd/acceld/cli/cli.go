// Package cli is the command line of acceld: it wires the packages together and prints what they say. It may not
// decide anything about a machine.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
)

// Exit codes, documented by `acceld help`.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotReady    = 3
	exitUnreachable = 4
)

// exit is an error with its exit code. Without err there is nothing more to print.
type exit struct {
	code int
	err  error
}

func (e exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exit) Unwrap() error { return e.err }

// common are the flags of every command.
type common struct {
	hostRoot string
	config   string
	asked    bool // the configuration file was named by the user, so it must exist
	console  *console
}

// Main runs the command line args and returns the exit code.
func Main(args []string, in io.Reader, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := New()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	cmd, err := root.ExecuteContextC(ctx)
	var e exit
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &e):
		if e.err != nil {
			fmt.Fprintln(errs, "acceld:", e.err)
		}
		return e.code
	default: // cobra's own: an unknown command, flag or argument
		fmt.Fprintf(errs, "acceld: %v\nRun '%s --help' for usage.\n", err, cmd.CommandPath())
		return exitUsage
	}
}

// New returns the command tree.
func New() *cobra.Command {
	var c common
	var shown bool // the version
	root := &cobra.Command{
		Use:   "acceld",
		Short: "Take a host from a bare kernel to accelerators that work",
		Long: `acceld takes a host from a bare kernel to accelerators that are schedulable, usable in containers and monitored.

Exit codes: 0 done; 1 failed, with the reason on standard error; 2 wrong usage; 3 not everything is ready, of status; 4 no
agent answers, of status.`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return unknown(cmd, args)
			case shown:
				fmt.Fprintln(cmd.OutOrStdout(), "acceld", version())
				return nil
			}
			return cmd.Help()
		},
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			c.asked = cmd.Flags().Changed("config")
			c.console = &console{out: cmd.ErrOrStderr()}
		},
	}
	root.PersistentFlags().StringVar(&c.hostRoot, "host-root", "/", "the directory that holds the host's root file system")
	root.PersistentFlags().StringVar(&c.config, "config", "/etc/acceld/config.yaml", "the configuration file")
	root.Flags().BoolVar(&shown, "version", false, "print the version")
	root.SetHelpCommand(helpCommand())
	root.AddCommand(runCommand(&c), statusCommand(&c), topCommand(&c), detectCommand(&c), driverCommand(&c),
		runtimeCommand(&c),
		definitionCommand(&c), templateCommand(&c), validateCommand(&c),
		doctorCommand(&c), historyCommand(&c), resetCommand(&c), execCommand(&c), purgeCommand(&c), versionCommand(),
		completionCommand(),
		loadModuleCommand(&c), enterRootCommand(), startedCommand(&c))
	completing(root, &c)
	return root
}

// failed turns a Problem into the error of a command; nil stays nil.
func failed(p *accel.Problem) error {
	if p == nil {
		return nil
	}
	return exit{exitFailed, errors.New(explain(p))}
}

// explain returns what happened, what was tried and what to do, one line each.
func explain(p *accel.Problem) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)", plain(p.Message), p.Reason)
	for _, t := range p.Tried {
		fmt.Fprintf(&b, "\n  tried: %s", plain(t))
	}
	fmt.Fprintf(&b, "\n  %s", plain(p.Remedy()))
	return b.String()
}

// helpCommand is like cobra's, but for an unknown command it fails like the command itself.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Print the help for a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) > 0 {
				err = unknown(about, rest)
			}
			if err != nil {
				return err
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// group makes cmd a command that only holds others: alone it prints its help, and an unknown subcommand is wrong
// usage.
func group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.DisableFlagsInUseLine = true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknown(cmd, args)
		}
		return cmd.Help()
	}
	cmd.AddCommand(commands...)
	return cmd
}

func unknown(cmd *cobra.Command, args []string) error {
	return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
}

// noArgs rejects arguments of a command that takes none.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	return nil
}

// many is no limit for takes.
const many = 1 << 20

// takes accepts from least to most arguments, and otherwise fails with text, which says what to name.
func takes(least, most int, text string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return errors.New(text)
		}
		return nil
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(cmd.OutOrStdout(), "acceld", version())
			return nil
		},
	}
}

// version returns what the Go toolchain stamped: the tag of a release, or a pseudo-version with the commit, and
// "+dirty" if the tree had changes.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "unstamped"
	}
	return info.Main.Version
}
