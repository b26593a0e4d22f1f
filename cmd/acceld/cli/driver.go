package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/host"
)

func driverCommand(c *common) *cobra.Command {
	return group(&cobra.Command{Use: "driver", Short: "List, load, upgrade, build, sign, verify and unload drivers"},
		driverListCommand(c), driverEnsureCommand(c), driverUpgradeCommand(c), driverBuildCommand(c),
		driverPreflightCommand(c), driverSignCommand(c),
		driverBundleCommand(c), driverVerifyCommand(c), driverUnloadCommand(c))
}

func driverListCommand(c *common) *cobra.Command {
	var format outputFormat
	cmd := &cobra.Command{
		Use: "list", Short: "List the drivers in the store", Args: noArgs,
		RunE: c.opened(func(p *parts, _ []string) error {
			entries, err := p.Driver(nil).List()
			if err != nil {
				return failed(accel.AsProblem(err))
			}
			rows := [][]string{{"KIND", "VERSION", "KERNEL", "KEY", "SERVES", "SIGNED BY", "PROBLEM"}}
			for _, e := range entries {
				rows = append(rows, []string{
					e.Kind, e.Version, e.KernelRelease, e.Key[:min(12, len(e.Key))], serves(e), signedBy(e),
					plain(e.Problem),
				})
			}
			if len(entries) == 0 {
				rows = [][]string{{fmt.Sprintf("no driver in the store below %q", p.Config.StateDir)}}
			}
			list := append([]store.Entry{}, entries...) // [], not null
			return format.print(p.out, list, func(s *tableWriter) { s.table(rows) })
		}),
	}
	format.flag(cmd, "text")
	return cmd
}

// serves returns the role of a stored driver for its kind and kernel.
func serves(e store.Entry) string {
	switch {
	case e.Current:
		return "current"
	case e.Previous:
		return "previous"
	}
	return "-"
}

// signedBy names the signers of a stored driver; "-" if they are not known. The modules of a driver that was installed
// on the host have signatures of their own.
func signedBy(e store.Entry) string {
	if e.Source == "" || e.Kept {
		return "-"
	}
	var out []string
	for _, s := range e.SignedBy {
		out = append(out, s.Short())
	}
	return plain(cmp.Or(strings.Join(out, ", "), "nobody"))
}

func driverEnsureCommand(c *common) *cobra.Command {
	var all, stored, retry bool
	cmd := &cobra.Command{
		Use: "ensure [KIND...]", Short: "Make sure that the drivers of kinds are loaded",
		Long: `ensure makes sure that the drivers of the named kinds are loaded. It tries, in this order: the loaded driver, the store,
the host's own modules, then the sources of the definition: registries, builds, bundles.
With --stored-only it builds nothing and fetches nothing. This is what runs at boot, before the kubelet.`,
		RunE: c.opened(func(p *parts, kinds []string) error {
			facts := p.facts()
			if all == (len(kinds) > 0) {
				return errors.New("name the kinds, or use --all")
			}
			defs, err := p.chosen(kinds)
			if err != nil {
				return err
			}
			if all {
				defs, _ = accel.InOrder(p.Kinds) // cycles were removed when the definitions were read
			}
			v, d := p.work(false)
			defer v.close()
			var errs []error
			for _, def := range defs {
				accs := p.Accelerators(def, facts)
				if len(accs) == 0 {
					fmt.Fprintf(p.out, "%s: no device\n", def.Kind)
					continue
				}
				have, problem := d.EnsureWith(p.ctx, def, facts, accs,
					source.Options{NoBuild: stored, Retry: retry})
				if problem != nil && p.ctx.Err() != nil {
					break
				}
				if problem != nil {
					errs = append(errs, fmt.Errorf("%s: %s", def.Kind, explain(problem)))
					continue
				}
				fmt.Fprintf(p.out, "%s: driver %s present (%s) on %s\n", def.Kind, have.Version, have.Source,
					count(len(accs), "device"))
			}
			errs = append(errs, v.waited(d.Sources().Wait)) // what was built may still be published
			if err := errors.Join(errs...); err != nil {
				return exit{exitFailed, err}
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "every kind that has a device")
	cmd.Flags().BoolVar(&stored, "stored-only", false, "build nothing and fetch nothing")
	cmd.Flags().BoolVar(&retry, "retry", false, "forget earlier loads that ended uncleanly")
	return cmd
}

func driverUnloadCommand(c *common) *cobra.Command {
	return &cobra.Command{
		Use: "unload KIND...", Short: "Unload the drivers of kinds, unless something uses them",
		Long: `unload removes the modules of a driver that nothing uses. If something uses it, unload names the users and changes
nothing. A running agent loads the modules again: to keep them unloaded, disable the kind in the configuration first.`,
		Args: takes(1, many, "name the kinds"),
		RunE: c.opened(func(p *parts, kinds []string) error {
			defs, err := p.chosen(kinds)
			if err != nil {
				return err
			}
			facts := p.facts()
			for _, def := range defs {
				if problem := p.Driver(nil).Unload(p.ctx, def, facts,
					p.Accelerators(def, facts)); problem != nil {
					return failed(problem)
				}
				fmt.Fprintf(p.out, "%s: unloaded\n", def.Kind)
			}
			return nil
		}),
	}
}

// chosen returns the definitions of kinds.
func (p *parts) chosen(kinds []string) ([]*accel.Definition, error) {
	var out []*accel.Definition
	for _, k := range kinds {
		def, ok := p.Kinds[k]
		if !ok {
			return nil, exit{exitUsage, fmt.Errorf("no definition has kind %q (known: %s)", k,
				strings.Join(sorted(p.Kinds), ", "))}
		}
		out = append(out, def)
	}
	return out, nil
}

// withDevices returns the definitions of the kinds that have a device.
func (p *parts) withDevices(facts accel.Facts) []*accel.Definition {
	var out []*accel.Definition
	for _, kind := range sorted(p.Kinds) {
		if len(p.Accelerators(p.Kinds[kind], facts)) > 0 {
			out = append(out, p.Kinds[kind])
		}
	}
	return out
}

// loadModuleCommand is the helper process that loads modules into the kernel; see driver.LoadModuleMain.
func loadModuleCommand(c *common) *cobra.Command {
	return &cobra.Command{
		Use: "load-module", Hidden: true, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := host.New(c.hostRoot)
			if err != nil {
				return exit{exitFailed, err}
			}
			if code := driver.LoadModuleMain(h, os.Stdin, cmd.OutOrStdout()); code != 0 {
				return exit{code, nil}
			}
			return nil
		},
	}
}

// enterRootCommand is the process that becomes a program of a build in a builder image; see host.RootMain.
func enterRootCommand() *cobra.Command {
	return &cobra.Command{
		Use: host.RootCommand, Hidden: true, Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return exit{host.RootMain(os.Stdin), nil} },
	}
}
