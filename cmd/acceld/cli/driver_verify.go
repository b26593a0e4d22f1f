package cli

import (
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
)

func driverVerifyCommand(c *common) *cobra.Command {
	var format outputFormat
	var kernel string
	cmd := &cobra.Command{
		Use: "verify [KIND...|FILE.ko...]", Short: "Check modules as a load would, and load nothing",
		Long: `verify makes the checks that come before a load, for the named kinds (by default every kind that has a device) or for
module files, and shows what it found: architecture, name, release and flags of the kernel, modprobe.d, parameters
and where they come from, firmware, dependencies, who signed the module and whether this kernel accepts that, and the
version of every symbol. Nothing is given to the kernel. The exit code is 1 if a module would be refused.`,
		RunE: c.opened(func(p *parts, args []string) error {
			facts := p.factsFor(kernel)
			all, err := p.verifications(facts, args)
			if err != nil {
				return err
			}
			err = format.print(p.out, all, func(s *tableWriter) {
				writeVerifications(&s.b, facts.Kernel, all)
			})
			if err == nil && slices.ContainsFunc(all, func(v kmod.Verification) bool { return v.Problem != nil }) {
				return exit{exitFailed, nil}
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&kernel, "kernel", "", "check for the kernel with this release instead of the running one")
	format.flag(cmd, "text")
	return cmd
}

// verifications checks what the arguments name. Files of one kind are checked together.
func (p *parts) verifications(facts accel.Facts, args []string) ([]kmod.Verification, error) {
	d := p.Driver(nil)
	var kinds []string
	files := map[string][]string{} // by kind; "" for files that no definition knows
	for _, a := range args {
		if !strings.Contains(path.Base(a), ".ko") {
			kinds = append(kinds, a)
			continue
		}
		if p.hostRoot == "/" {
			var err error
			if a, err = filepath.Abs(a); err != nil {
				return nil, exit{exitUsage, err}
			}
		}
		if !p.Host.Exists(a) {
			return nil, exit{exitFailed, fmt.Errorf("cannot find %q", a)}
		}
		kind := p.kindOf(a)
		files[kind] = append(files[kind], a)
	}
	defs, err := p.chosen(kinds)
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		defs = p.withDevices(facts)
	}
	out := []kmod.Verification{} // [], not null
	for _, def := range defs {
		out = append(out, d.Sources().Verify(def, facts))
	}
	for _, kind := range sorted(files) {
		out = append(out, d.Sources().VerifyFiles(p.Kinds[kind], facts, files[kind]))
	}
	return out, nil
}

// kindOf returns the first kind whose driver has the module of a file; "" if none has.
func (p *parts) kindOf(file string) string {
	base, _, _ := strings.Cut(path.Base(file), ".ko")
	for _, kind := range sorted(p.Kinds) {
		if slices.ContainsFunc(p.Kinds[kind].Driver.Modules, func(m accel.Module) bool {
			return slices.ContainsFunc(append([]string{m.Name}, m.Files...), func(n string) bool {
				return kmod.Normal(n) == kmod.Normal(base)
			})
		}) {
			return kind
		}
	}
	return ""
}

func writeVerifications(w io.Writer, k accel.Kernel, all []kmod.Verification) {
	fmt.Fprintf(w, "kernel %s: %s\n", k.Release, strings.Join(policyWords(k), ", "))
	if len(all) == 0 {
		fmt.Fprintln(w, "no device of a known kind: name a kind or a file")
	}
	for _, v := range all {
		fmt.Fprintf(w, "\n%s\n", filled(" ", v.Kind, string(v.Source), v.Key[:min(12, len(v.Key))]))
		for _, m := range v.Modules {
			fmt.Fprintf(w, "  %s  %s\n", m.Name, m.File)
			for _, c := range m.Checks {
				verdict, detail := "ok", c.Detail
				if c.Problem != nil {
					verdict, detail = "refused", fmt.Sprintf("%s (%s)", c.Problem.Message, c.Problem.Reason)
				}
				fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("    %-7s  %-12s  %s", verdict, c.Name, plain(detail)),
					" "))
			}
		}
		if v.Problem == nil {
			fmt.Fprintln(w, "  would be loaded")
			continue
		}
		fmt.Fprintf(w, "  would not be loaded: %s\n", strings.ReplaceAll(explain(v.Problem), "\n", "\n  "))
	}
}

// policyWords returns what the kernel requires of modules.
func policyWords(k accel.Kernel) []string {
	var out []string
	add := func(so bool, text string) {
		if so {
			out = append(out, text)
		}
	}
	add(k.SecureBoot, "Secure Boot is on")
	add(k.SigEnforce, "signatures are enforced")
	add(k.Lockdown != "" && k.Lockdown != "none", "locked down ("+k.Lockdown+")")
	add(k.ModulesDisabled, "loading modules is switched off")
	add(len(out) == 0, "accepts unsigned modules")
	return out
}
