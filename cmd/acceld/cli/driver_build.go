package cli

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/driver/trust"
)

func driverBuildCommand(c *common) *cobra.Command {
	var push bool
	var signKey, kernel string
	cmd := &cobra.Command{
		Use: "build KIND...", Short: "Build drivers and publish them",
		Long: `build compiles the drivers of the named kinds from their build sources into the store, against the headers of the
running kernel, or of the kernel named with --kernel. It loads nothing and needs no device, so a pipeline can run it
in a toolkit image. If the kind has a user space, build fetches that, too. With --push it also publishes each driver to
the kind's sources of type oci, and prints the reference with its digest.`,
		Args: takes(1, many, "name the kinds"),
		RunE: c.opened(func(p *parts, kinds []string) error {
			if signKey != "" && !push {
				return errors.New("--sign-key needs --push: it signs what is published")
			}
			defs, err := p.chosen(kinds)
			if err != nil {
				return err
			}
			key, err := p.signingKey(signKey)
			if err != nil {
				return err
			}
			v, d := p.work(false)
			defer v.close()
			facts := p.factsFor(kernel)
			for _, def := range defs {
				def, problem := d.Sources().Resolve(p.ctx, def, facts)
				if problem != nil {
					return v.failed(problem)
				}
				e, problem := d.Sources().Build(p.ctx, def, facts)
				if problem != nil {
					return v.failed(problem)
				}
				fmt.Fprintf(p.out, "%s: driver %s for kernel %s is in the store: %s\n", def.Kind, e.Version,
					e.KernelRelease, e.Key)
				problem = d.Sources().UserSpace(p.ctx, def, facts, e.ModulesVersion(), source.Options{Exact: true})
				if problem != nil {
					return v.failed(problem)
				}
				if !push {
					continue
				}
				pushed, problem := d.Sources().Push(p.ctx, def, facts, e, key)
				for _, a := range pushed {
					fmt.Fprintf(p.out, "%s: published %s%s\n", def.Kind, a.Reference, withUserSpace(a))
				}
				if problem != nil {
					return v.failed(problem)
				}
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&kernel, "kernel", "",
		"build for the installed kernel with this release, as uname -r prints it, instead of the running one")
	cmd.Flags().BoolVar(&push, "push", false, "publish the drivers to every source of type oci")
	cmd.Flags().StringVar(&signKey, "sign-key", "", "sign the published drivers with this private key (PEM)")
	return cmd
}

func driverSignCommand(c *common) *cobra.Command {
	var signKey, kernel string
	cmd := &cobra.Command{
		Use: "sign KIND...", Short: "Sign the sources that drivers are built from",
		Long: `sign signs the source trees of the named kinds, for hosts that require signatures (trust.require). The signature is about
the content of a tree, how it is built, and the arguments for make. It goes into a file next to the tree, with the name of
the tree and .sig, which travels with the tree. Arguments that contain the release of the kernel need a signature for
each kernel.`,
		Args: takes(1, many, "name the kinds"),
		RunE: c.opened(func(p *parts, kinds []string) error {
			defs, err := p.chosen(kinds)
			if err != nil {
				return err
			}
			if signKey == "" {
				return errors.New("name the private key with --sign-key")
			}
			key, err := p.signingKey(signKey)
			if err != nil {
				return err
			}
			v, d := p.work(false)
			defer v.close()
			facts := p.factsFor(kernel)
			for _, def := range defs {
				files, problem := d.Sources().Sign(p.ctx, def, facts, key)
				for _, file := range files {
					fmt.Fprintf(p.out, "%s: signed, %s\n", def.Kind, file)
				}
				if problem != nil {
					return v.failed(problem)
				}
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&kernel, "kernel", "", "sign for the kernel with this release instead of the running one")
	cmd.Flags().StringVar(&signKey, "sign-key", "", "sign with this private key (PEM)")
	return cmd
}

// signingKey reads the key of --sign-key; nil if there is none.
func (p *parts) signingKey(file string) (*trust.Key, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // no key is a valid result
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, exit{exitFailed, err}
	}
	key, problem := trust.ReadKey(p.Host, file)
	return key, failed(problem)
}
