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
	// Accelerators are the accelerators by kind.
	Accelerators map[string][]accel.Accelerator `json:"accelerators"`
}

func detectCommand(c *common) *cobra.Command {
	var format outputFormat
	cmd := &cobra.Command{
		Use: "detect", Short: "Read the host once and print what is there", Args: noArgs,
		Long: `detect reads the host below --host-root once: kernel, distribution, container runtime, PCI functions, what the
host is made of, its network functions, and the accelerators that a definition recognises. It changes nothing, needs no
agent and works on a copy of a machine's files too; what a host is made of is read from a running one alone.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, problem := c.open()
			if problem != nil {
				return failed(problem)
			}
			for _, s := range p.Skipped {
				fmt.Fprintln(cmd.ErrOrStderr(), "acceld: definition left out:", s)
			}
			facts := detect.Detect(p.Host, detect.Options{Names: true, Around: true})
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
	printInventory(w, f.Inventory)
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
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", kind, a.ID, dash(numa(a)), orNone(a.Bound), orNone(nodes(a)),
					health)
			}
		}
		_ = w.Flush()
	}
	printNetwork(out, f.Network)
	for _, p := range f.Problems {
		fmt.Fprintln(out, "note:", plain(p))
	}
}

// printInventory writes what is known about the host itself.
func printInventory(w io.Writer, i accel.Inventory) {
	for _, row := range []struct{ name, text string }{
		{"host", i.String()},
		{"board", strings.TrimSpace(i.Board.Vendor + " " + i.Board.Name)},
		{"firmware", strings.TrimSpace(i.BIOS.Vendor + " " + i.BIOS.Version + " " + i.BIOS.Date)},
		{"chassis", i.Chassis},
	} {
		if row.text != "" {
			fmt.Fprintf(w, "%s\t%s\n", row.name, plain(row.text))
		}
	}
	if len(i.Nodes) < 2 {
		return
	}
	for _, n := range i.Nodes {
		fmt.Fprintf(w, "NUMA node %d\t%d cores, %d threads, %d GiB\n", n.ID, n.Cores, n.Threads, (n.MemoryMiB+512)>>10)
	}
}

// reported describes the state of a health reporter.
func reported(r accel.HealthReporter) string {
	return fmt.Sprintf("health reporter %s says %s after %d errors", r.Name, r.State, r.Errors)
}

// printNetwork writes a line for each network function, and notes about what is unhealthy or unknown.
func printNetwork(out *strings.Builder, functions []accel.NetworkFunction) {
	if len(functions) == 0 {
		return
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NETWORK\tNUMA\tDRIVER\tFIRMWARE\tLINKS")
	for _, f := range functions {
		node := "-"
		if f.NUMANode >= 0 {
			node = fmt.Sprint(f.NUMANode)
		}
		var links []string
		for _, i := range f.Interfaces {
			text := i.Name + " " + orUnknown(i.State)
			if i.SpeedMbps > 0 {
				text += fmt.Sprintf(" %d Mb/s", i.SpeedMbps)
			}
			links = append(links, text)
		}
		for _, d := range f.RDMA {
			for _, p := range d.Ports {
				links = append(links, fmt.Sprintf("%s/%d %s", d.Name, p.Number, orUnknown(p.State)))
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", f.Address, node,
			orNone(f.Driver), orUnknown(plain(f.Firmware)), orNone(plain(strings.Join(links, ", "))))
	}
	_ = w.Flush() // a strings.Builder does not fail
	unknown := ""
	for _, f := range functions {
		for _, r := range f.Reporters {
			if r.State != "healthy" {
				fmt.Fprintf(out, "note: %s: %s\n", f.Address, plain(reported(r)))
			}
		}
		if f.Unknown != "" && f.Unknown != unknown {
			unknown = f.Unknown
			fmt.Fprintln(out, "note: not all of the network is known:", plain(unknown))
		}
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
