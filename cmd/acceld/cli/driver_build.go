package cli

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/detect"
	"github.com/acceld/acceld/driver/artifact"
)

func driverBuildCommand(c *common) *cobra.Command {
	var push bool
	var signKey, kernel string
	cmd := &cobra.Command{
		Use: "build KIND...", Short: "Build drivers, and publish them",
		Long: `build compiles the drivers of the named kinds into the store, from their build sources and against the headers of the
running kernel, or of the one named with --kernel, and loads nothing: it needs no device, so a pipeline can run it in a toolkit
image. With --push each is published to the kind's sources of type oci, and the reference is printed with its digest.`,
		Args: takes(1, many, "name the kinds"),
		RunE: c.opened(func(p *parts, cmd *cobra.Command, kinds []string) error {
			if signKey != "" && !push {
				return errors.New("--sign-key signs what --push publishes")
			}
			defs, err := p.chosen(kinds)
			if err != nil {
				return err
			}
			key, err := p.signingKey(signKey)
			if err != nil {
				return err
			}
			v := newView(cmd.Context(), p.console, false)
			defer v.close()
			out := v.out(cmd.OutOrStdout())
			d, facts := p.Driver(v.note), detect.Detect(p.Host, detect.Options{})
			facts.Kernel = p.kernelFor(cmd, kernel, facts.Kernel)
			for _, def := range defs {
				e, problem := d.Sources().Build(cmd.Context(), def, facts)
				if problem != nil {
					return v.failed(problem)
				}
				fmt.Fprintf(out, "%s: driver %s for kernel %s is in the store: %s\n", def.Kind, e.Version,
					e.KernelRelease, e.Key)
				if !push {
					continue
				}
				pushed, problem := d.Sources().Push(cmd.Context(), def, facts, e, key)
				for _, a := range pushed {
					fmt.Fprintf(out, "%s: published %s\n", def.Kind, a.Reference)
				}
				if problem != nil {
					return v.failed(problem)
				}
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&kernel, "kernel", "",
		"build for the installed kernel of this release, as uname -r says it, instead of the running one")
	cmd.Flags().BoolVar(&push, "push", false, "publish what was built to every source of type oci")
	cmd.Flags().StringVar(&signKey, "sign-key", "", "sign what is published with this private key (PEM)")
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
