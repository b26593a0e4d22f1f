package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
)

// detected is the JSON of `acceld detect`.
type detected struct {
	Facts accel.Facts `json:"facts"`
	// Accelerators by kind.
	Accelerators map[string][]accel.Accelerator `json:"accelerators"`
}

func detectCommand(c *common) *cobra.Command {
	var format outputFormat
	cmd := &cobra.Command{
		Use: "detect", Short: "Read the host once and print what is there", Args: noArgs,
		Long: `detect reads the host below --host-root once: kernel, distribution, container runtime, PCI functions and the accelerators
that a definition recognises. It changes nothing, needs no agent and works on a copy of a machine's files too.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, problem := c.open()
			if problem != nil {
				return failed(problem)
			}
			for _, s := range p.Skipped {
				fmt.Fprintln(cmd.ErrOrStderr(), "acceld: definition left out:", s)
			}
			facts := detect.Detect(p.Host, detect.Options{Names: true})
			d := detected{Facts: facts, Accelerators: map[string][]accel.Accelerator{}}
			for kind, def := range p.Kinds {
				if accs := p.Accelerators(def, facts); len(accs) > 0 {
					d.Accelerators[kind] = accs
				}
			}
			if format.json() {
				return writeJSON(cmd.OutOrStdout(), d)
			}
			var b strings.Builder
			printDetected(&b, d)
			return printPage(cmd.OutOrStdout(), b.String())
		},
	}
	format.flag(cmd)
	return cmd
}

func printDetected(out *strings.Builder, d detected) {
	f := d.Facts
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "kernel\t%s\n", orUnknown(f.Kernel.Release))
	fmt.Fprintf(w, "headers\t%s\n", orNone(f.Kernel.Headers))
	fmt.Fprintf(w, "lockdown\t%s\n", orNone(f.Kernel.Lockdown))
	fmt.Fprintf(w, "secure boot\t%s\n", map[bool]string{true: "on", false: "off"}[f.Kernel.SecureBoot])
	fmt.Fprintf(w, "distribution\t%s\n", orUnknown(f.OS.Pretty))
	fmt.Fprintf(w, "container runtime\t%s\n", orNone(f.Runtime.Name))
	fmt.Fprintf(w, "kubelet\t%s\n", map[bool]string{true: f.Kubelet.Root, false: "none"}[f.Kubelet.Present])
	fmt.Fprintf(w, "PCI functions\t%d\n", len(f.PCI))
	_ = w.Flush() // a strings.Builder does not fail
	if len(d.Accelerators) == 0 {
		fmt.Fprintln(out, "\nno accelerator that a definition recognises")
	} else {
		fmt.Fprintln(out)
		w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "KIND\tDEVICE\tNUMA\tDRIVER\tNODES\tHEALTH")
		for _, kind := range sorted(d.Accelerators) {
			for _, a := range accel.Flat(d.Accelerators[kind]) {
				health := string(a.Health.State)
				if a.Health.Message != "" {
					health += ": " + plain(a.Health.Message)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", kind, a.ID, dash(numa(a)), orNone(a.Bound), orNone(nodes(a)), health)
			}
		}
		_ = w.Flush()
	}
	for _, p := range f.Problems {
		fmt.Fprintln(out, "note:", plain(p))
	}
}

func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return exit{exitFailed, err}
	}
	return nil
}
