package cli

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/driver/artifact"
)

func driverBuildCommand(c *common) *cobra.Command {
	var push bool
	var signKey, kernel string
	cmd := &cobra.Command{
		Use: "build KIND...", Short: "Build drivers and publish them",
		Long: `build compiles the drivers of the named kinds from their build sources into the store, against the headers of the
running kernel, or of the kernel named with --kernel. It loads nothing and needs no device, so a pipeline can run it
in a toolkit image. With --push it also publishes each driver to the kind's sources of type oci, and prints the
reference with its digest.`,
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
				e, problem := d.Sources().Build(p.ctx, def, facts)
				if problem != nil {
					return v.failed(problem)
				}
				fmt.Fprintf(p.out, "%s: driver %s for kernel %s is in the store: %s\n", def.Kind, e.Version,
					e.KernelRelease, e.Key)
				if !push {
					continue
				}
				pushed, problem := d.Sources().Push(p.ctx, def, facts, e, key)
				for _, a := range pushed {
					fmt.Fprintf(p.out, "%s: published %s\n", def.Kind, a.Reference)
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

// signingKey reads the key of --sign-key; nil if there is none.
func (p *parts) signingKey(file string) (*artifact.Key, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // no key is a valid result
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, exit{exitFailed, err}
	}
	key, problem := artifact.ReadKey(p.Host, file)
	return key, failed(problem)
}
