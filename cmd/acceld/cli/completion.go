package cli

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
)

// completionCommand prints the completion script for a shell.
func completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	known := strings.Join(shells, ", ")
	return &cobra.Command{
		Use: "completion SHELL", Short: "Print a completion script for bash, zsh or fish",
		Long: `completion prints a script that lets bash, zsh or fish complete commands, flags and their values, kinds and devices.
The packages install it. To install it by hand: acceld completion bash > /etc/bash_completion.d/acceld`,
		ValidArgs: shells, Args: takes(1, 1, "name one shell: "+known),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			}
			return fmt.Errorf("%q is not one of %s", args[0], known)
		},
	}
}

// choices returns the values of the flags that allow only some.
func choices() map[string][]string {
	return map[string][]string{
		"engine":  detect.EngineNames(),
		"edit":    {"never", "dropin", "full"},
		"restart": {"never", "idle", "now"}, "holders": {"refuse", "wait", "evict"},
	}
}

// oneOf refuses a value that a flag does not allow. An empty one is not set.
func oneOf(flag, value string) error {
	if all := choices()[flag]; value != "" && !slices.Contains(all, value) {
		return fmt.Errorf("--%s: %q is not one of %s", flag, value, strings.Join(all, ", "))
	}
	return nil
}

// completing registers the completions for arguments and flags of cmd and every command below it.
func completing(cmd *cobra.Command, c *common) {
	if cmd.ValidArgs == nil {
		cmd.ValidArgsFunction = c.complete
	}
	flags := choices()
	if f := cmd.Flags().Lookup("output"); f != nil {
		flags["output"] = strings.Split(f.Usage, " or ")
	}
	for name, values := range flags {
		if cmd.Flags().Lookup(name) != nil {
			// once each
			_ = cmd.RegisterFlagCompletionFunc(name,
				cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	for _, sub := range cmd.Commands() {
		completing(sub, c)
	}
}

// complete returns the completions for the arguments of a command: what its usage line names, except the words that
// are on the command line already.
func (c *common) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	directive := cobra.ShellCompDirectiveNoFileComp
	if strings.Contains(cmd.Use, "FILE") {
		directive = cobra.ShellCompDirectiveDefault
	}
	kinds := strings.Contains(cmd.Use, "KIND") && !strings.Contains(cmd.Use, "KIND|KEY") // a file follows those
	words := c.words(cmd, kinds, strings.Contains(cmd.Use, "DEVICE"))
	return slices.DeleteFunc(words, func(word string) bool {
		name, _, _ := strings.Cut(word, "\t")
		return slices.Contains(args, name)
	}), directive
}

// words returns the kinds of the definitions in force, each with its title, and the IDs of the host's accelerators and
// of their partitions, each with its kind.
func (c *common) words(cmd *cobra.Command, kinds, devices bool) []string {
	if !kinds && !devices {
		return nil
	}
	p, problem := c.open(cmd)
	if problem != nil {
		return nil
	}
	p.Log = slog.New(slog.DiscardHandler) // a completing shell has no place for messages
	var facts accel.Facts
	if devices {
		facts = p.facts()
	}
	var names, ids []string
	for _, kind := range sorted(p.Kinds) {
		names = append(names, described(kind, p.Kinds[kind].Title))
		for _, a := range accel.Flat(p.Accelerators(p.Kinds[kind], facts)) {
			ids = append(ids, described(a.ID, kind))
		}
	}
	if !kinds {
		return ids
	}
	return append(names, ids...)
}

// described returns a word with the description that a shell shows next to it.
func described(word, about string) string { return word + prefixed("\t", plain(about)) }
