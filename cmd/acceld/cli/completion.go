package cli

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
)

// completionCommand prints the completion script for a shell.
func completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use: "completion SHELL", Short: "Print what bash, zsh or fish need to complete commands",
		Long: `completion prints a script for bash, zsh or fish with which the shell completes commands, flags and their values, kinds and
devices. The packages install it. By hand: acceld completion bash > /etc/bash_completion.d/acceld`,
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("name one shell of %s", strings.Join(shells, ", "))
			}
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			}
			return fmt.Errorf("%q is not one of %s", args[0], strings.Join(shells, ", "))
		},
	}
}

// completing registers the completions for arguments and flags of every command below root.
func completing(root *cobra.Command, c *common) {
	kinds := func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return without(c.kinds(), args), cobra.ShellCompDirectiveNoFileComp
	}
	words := map[string]cobra.CompletionFunc{
		"acceld driver ensure": kinds, "acceld driver upgrade": kinds, "acceld driver build": kinds,
		"acceld driver unload":    kinds,
		"acceld driver preflight": kinds, "acceld runtime apply": kinds, "acceld definition show": kinds,
		"acceld driver verify": func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return without(c.kinds(), args), cobra.ShellCompDirectiveDefault // or files
		},
		"acceld reset": func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return without(c.devices(), args), cobra.ShellCompDirectiveNoFileComp
		},
		"acceld status": func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return without(append(c.kinds(), c.devices()...), args), cobra.ShellCompDirectiveNoFileComp
		},
	}
	flags := map[string][]string{
		"engine":  {"cri-o", "containerd", "docker", "podman", "k3s", "rke2", "k0s", "microk8s"},
		"edit":    {"never", "dropin", "full"},
		"restart": {"never", "idle", "now"}, "holders": {"refuse", "wait", "evict"},
	}
	each(root, func(cmd *cobra.Command) {
		if f := words[cmd.CommandPath()]; f != nil {
			cmd.ValidArgsFunction = f
		} else if cmd.ValidArgs == nil && !strings.Contains(cmd.Use, "FILE") {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		for name, values := range flags {
			if cmd.Flags().Lookup(name) != nil {
				// once each
				_ = cmd.RegisterFlagCompletionFunc(name,
					cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
			}
		}
		if f := cmd.Flags().Lookup("output"); f != nil {
			values := strings.Split(f.Usage, " or ")
			// once each
			_ = cmd.RegisterFlagCompletionFunc("output",
				cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	})
}

// each calls visit with cmd and every command below it.
func each(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		each(sub, visit)
	}
}

// without returns the words of all that are not on the command line already.
func without(all, args []string) []string {
	var out []string
	for _, word := range all {
		taken := false
		for _, a := range args {
			if name, _, _ := strings.Cut(word, "\t"); name == a {
				taken = true
			}
		}
		if !taken {
			out = append(out, word)
		}
	}
	return out
}

// quiet opens what commands need and logs nothing: a completing shell has no place for messages.
func (c *common) quiet() *parts {
	p, problem := c.open()
	if problem != nil {
		return nil
	}
	p.Log = slog.New(slog.DiscardHandler)
	return p
}

// kinds returns the kinds of the definitions in force, each with its title.
func (c *common) kinds() []string {
	p := c.quiet()
	if p == nil {
		return nil
	}
	var out []string
	for _, kind := range sorted(p.Kinds) {
		out = append(out, described(kind, p.Kinds[kind].Title))
	}
	return out
}

// devices returns the IDs of the host's accelerators and of their partitions, each with its kind.
func (c *common) devices() []string {
	p := c.quiet()
	if p == nil {
		return nil
	}
	facts := detect.Detect(p.Host, detect.Options{})
	var out []string
	for _, kind := range sorted(p.Kinds) {
		for _, a := range accel.Flat(p.Accelerators(p.Kinds[kind], facts)) {
			out = append(out, described(a.ID, kind))
		}
	}
	return out
}

// described returns a word with the description that a shell shows next to it.
func described(word, about string) string { return word + prefixed("\t", plain(about)) }
