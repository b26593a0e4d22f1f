package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/store"
)

func driverBundleCommand(c *common) *cobra.Command {
	return group(&cobra.Command{
		Use: "bundle", Short: "Take drivers to hosts that cannot reach a registry",
		Long: `A bundle is an OCI image layout in a tar file. It holds drivers from the store, as a registry would. A source of type
bundle reads the file directly; import puts its drivers into the store.`,
	}, bundleExportCommand(c), bundleImportCommand(c))
}

func bundleExportCommand(c *common) *cobra.Command {
	var signKey string
	cmd := &cobra.Command{
		Use: "export KIND|KEY FILE", Short: "Write drivers from the store to a bundle",
		Long: `export writes to FILE every usable driver of a kind in the store, or the one driver whose key starts with KEY.
"driver list" shows kinds and keys.`,
		Args: takes(2, 2, "name a kind or a key, and the file"),
		RunE: c.opened(func(p *parts, args []string) error {
			file, err := filepath.Abs(args[1])
			if err != nil {
				return exit{exitFailed, err}
			}
			key, err := p.signingKey(signKey)
			if err != nil {
				return err
			}
			v, d := p.work(false)
			defer v.close()
			entries, err := stored(d, args[0])
			if err != nil {
				return err
			}
			made, problem := d.Sources().Export(p.facts(), entries, file, key)
			if problem != nil {
				return failed(problem)
			}
			for i, a := range made {
				fmt.Fprintf(p.out, "%s: driver %s for kernel %s%s: %s\n", entries[i].Kind, entries[i].Version,
					entries[i].KernelRelease, withUserSpace(a), a.Digest)
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&signKey, "sign-key", "", "sign the drivers with this private key (PEM)")
	return cmd
}

// withUserSpace says that an artifact has the second half of a driver, too.
func withUserSpace(a artifact.Pushed) string {
	if a.UserSpace == 0 {
		return ""
	}
	return fmt.Sprintf(", with %d files of user space", a.UserSpace)
}

// stored finds the usable entries of a kind, or the one whose key begins with what.
func stored(d *driver.Driver, what string) ([]store.Entry, error) {
	all, err := d.List()
	if err != nil {
		return nil, failed(accel.AsProblem(err))
	}
	var byKind, byKey []store.Entry
	for _, e := range all {
		switch {
		case e.Problem != "":
		case e.Kind == what:
			byKind = append(byKind, e)
		case strings.HasPrefix(e.Key, what):
			byKey = append(byKey, e)
		}
	}
	switch {
	case len(byKind) > 0:
		return byKind, nil
	case len(byKey) == 1:
		return byKey, nil
	case len(byKey) > 1:
		return nil, exit{exitUsage, fmt.Errorf("%d drivers have a key that starts with %q", len(byKey), what)}
	}
	return nil, failed(accel.Problemf(accel.NoDriverSource, "the store has no usable driver with kind or key %q", what))
}

func bundleImportCommand(c *common) *cobra.Command {
	var keys []string
	cmd := &cobra.Command{
		Use: "import FILE...", Short: "Put the drivers of bundles into the store",
		Long: `import puts the drivers of bundles into the store, for this kernel and for others. acceld loads from the store what a
definition asks for. With --key, each driver must be signed by one of the keys.`,
		Args: takes(1, many, "name the files"),
		RunE: c.opened(func(p *parts, files []string) error {
			v, d := p.work(false)
			defer v.close()
			facts := p.facts()
			for i := range keys {
				var err error
				if keys[i], err = filepath.Abs(keys[i]); err != nil {
					return exit{exitFailed, err}
				}
			}
			for _, file := range files {
				file, err := filepath.Abs(file)
				if err != nil {
					return exit{exitFailed, err}
				}
				entries, unknown, problem := d.Sources().Import(p.ctx, p.Kinds, facts, file, keys)
				for _, e := range entries {
					fmt.Fprintf(p.out, "%s: driver %s for kernel %s is in the store: %s\n", e.Kind,
						e.Version, e.KernelRelease, e.Key)
				}
				for _, kind := range unknown {
					fmt.Fprintf(p.errs, "%s: skipped, no definition has this kind\n", plain(kind))
				}
				if problem != nil {
					return failed(problem)
				}
			}
			return nil
		}),
	}
	cmd.Flags().StringArrayVar(&keys, "key", nil,
		"accept drivers signed with this public key (PEM); can be repeated")
	return cmd
}
