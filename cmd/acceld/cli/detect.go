package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/detect"
)

// detected is the JSON of `acceld detect`.
type detected struct {
	Facts accel.Facts `json:"facts"`
	// Accelerators are the accelerators by kind.
	Accelerators map[string][]accel.Accelerator `json:"accelerators"`
	// Unrecognised are PCI functions that look like accelerators and that no definition recognises.
	Unrecognised []accel.PCIDevice `json:"unrecognised,omitempty"`
}

func detectCommand(c *common) *cobra.Command {
	var format outputFormat
	cmd := &cobra.Command{
		Use: "detect", Short: "Read the host once and print what is there", Args: noArgs,
		Long: `detect reads the host below --host-root once and prints what it finds: kernel, distribution, container runtime,
PCI functions and devices of other subsystems, hardware inventory, network functions, the accelerators that a
definition recognises, with their names from the PCI ID database, and those that look like one and that no definition
recognises. It changes nothing and needs no agent. It also works on a copy of a machine's files, but then without the
hardware inventory. With -o json it has what a definition can match of each device.`,
		RunE: c.opened(func(p *parts, _ []string) error {
			p.printSkipped()
			facts := detect.Detect(p.Host, detect.Options{
				Names: true, Around: true, Subsystems: accel.SubsystemNames(),
			})
			d := detected{Facts: facts, Accelerators: map[string][]accel.Accelerator{}}
			for kind, def := range p.Kinds {
				if accs := p.Accelerators(def, facts); len(accs) > 0 {
					d.Accelerators[kind] = accs
				}
			}
			d.Unrecognised = accel.Candidates(p.Kinds, facts.PCI)
			return format.print(p.out, d, func(s *tableWriter) { printDetected(s, d) })
		}),
	}
	format.flag(cmd, "text")
	return cmd
}

func printDetected(s *tableWriter, d detected) {
	f := d.Facts
	rows := [][]string{
		{"kernel", cmp.Or(f.Kernel.Release, "unknown")},
		{"headers", cmp.Or(f.Kernel.Headers, "none")},
		{"lockdown", known(f.Kernel.LockdownUnknown, cmp.Or(f.Kernel.Lockdown, "none"))},
		{"secure boot", known(f.Kernel.SecureBootUnknown, map[bool]string{true: "on", false: "off"}[f.Kernel.SecureBoot])},
		{"distribution", cmp.Or(f.OS.Pretty, "unknown")},
		{"container runtime", cmp.Or(f.Runtime.Name, "none")},
		{"kubelet", map[bool]string{true: f.Kubelet.Root, false: "none"}[f.Kubelet.Present]},
		{"PCI functions", strconv.Itoa(len(f.PCI))},
		{"other devices", cmp.Or(perSubsystem(f.Devices), "none")},
	}
	s.table(append(rows, inventoryRows(f.Inventory)...))
	s.line(0, "")
	rows = [][]string{{"KIND", "DEVICE", "NAME", "IDS", "LINK", "NUMA", "DRIVER", "NODES", "HEALTH"}}
	var near [][]string
	for _, kind := range sorted(d.Accelerators) {
		for _, a := range accel.Flat(d.Accelerators[kind]) {
			rows = append(rows, []string{
				kind, a.ID, cmp.Or(nameOf(a.Model, f.Function(a.Address())), "-"), ids(f.Function(a.Address())),
				cmp.Or(linkText(f.Function(a.ID).Link), "-"), cmp.Or(numa(a.NUMANode), "-"), cmp.Or(a.Bound, "none"),
				cmp.Or(nodes(a), "none"),
				a.Seen() + prefixed(": ", plain(a.Health.Message)),
			})
			if f, way := accel.NearestRDMA(a, f.All(), f.Network); way != "" {
				near = append(near, []string{a.ID, f.Address, plain(f.RDMA[0].Name), "below one " + ways()[way]})
			}
		}
	}
	if len(d.Accelerators) == 0 {
		rows = [][]string{{"no definition recognises an accelerator on this host"}}
	}
	s.table(rows)
	printUnrecognised(s, d.Unrecognised)
	if near != nil {
		s.line(0, "")
		s.table(append([][]string{{"DEVICE", "NEAREST", "RDMA", "WAY"}}, near...))
	}
	printNetwork(s, f.Network)
	for _, p := range slices.Concat(f.Problems, f.Notes) {
		s.line(0, "note: "+plain(p))
	}
}

// perSubsystem counts devices: "platform 12, usb 1".
func perSubsystem(devices []accel.Device) string {
	counts := map[string]int{}
	for _, d := range devices {
		counts[d.Subsystem]++
	}
	var all []string
	for _, name := range sorted(counts) {
		all = append(all, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(all, ", ")
}

// printUnrecognised lists what looks like an accelerator and has no definition.
func printUnrecognised(s *tableWriter, functions []accel.PCIDevice) {
	if len(functions) == 0 {
		return
	}
	s.line(0, "")
	rows := [][]string{{"NOT RECOGNISED", "NAME", "IDS", "LINK", "NUMA", "DRIVER"}}
	for _, d := range functions {
		rows = append(rows, []string{
			d.Address, cmp.Or(nameOf("", d), "-"), ids(d), cmp.Or(linkText(d.Link), "-"), cmp.Or(numa(d.NUMANode), "-"),
			cmp.Or(plain(d.Driver), "none"),
		})
	}
	s.table(rows)
	s.line(0, "note: no definition recognises these; `acceld definition list` has the known kinds")
}

// nameOf returns the name of a device: its own, or the PCI id database's; empty without one.
func nameOf(model string, d accel.PCIDevice) string {
	return plain(cmp.Or(model, filled(" ", d.VendorName, d.DeviceName)))
}

// ids returns vendor and device, as lspci -n has them; "-" without one.
func ids(d accel.PCIDevice) string {
	if d.Vendor == "" {
		return "-"
	}
	return d.Vendor + ":" + d.Device
}

// ways are the ways to a network function in words.
func ways() map[string]string {
	return map[string]string{accel.NICBelowPort: "PCI port", accel.NICBelowRoot: "root complex"}
}

// known returns a fact, or that it is not known.
func known(unknown bool, fact string) string {
	if unknown {
		return "unknown"
	}
	return fact
}

// inventoryRows returns what is known about the host itself.
func inventoryRows(i accel.Inventory) [][]string {
	rows := slices.DeleteFunc([][]string{
		{"host", plain(i.String())},
		{"board", plain(filled(" ", i.Board.Vendor, i.Board.Name))},
		{"firmware", plain(filled(" ", i.BIOS.Vendor, i.BIOS.Version, i.BIOS.Date))},
		{"chassis", plain(i.Chassis)},
	}, func(row []string) bool { return row[1] == "" })
	for _, n := range i.Nodes {
		if len(i.Nodes) > 1 {
			rows = append(rows, []string{
				fmt.Sprintf("NUMA node %d", n.ID),
				fmt.Sprintf("%d cores, %d threads, %d GiB", n.Cores, n.Threads, (n.MemoryMiB+512)>>10),
			})
		}
	}
	return rows
}

// reported describes the state of a health reporter.
func reported(r accel.HealthReporter) string {
	return fmt.Sprintf("health reporter %s is in state %q after %d errors", r.Name, r.State, r.Errors)
}

// printNetwork writes a line for each network function, and notes about what is unhealthy or unknown.
func printNetwork(s *tableWriter, functions []accel.NetworkFunction) {
	if len(functions) == 0 {
		return
	}
	s.line(0, "")
	rows := [][]string{{"NETWORK", "NUMA", "DRIVER", "FIRMWARE", "LINKS"}}
	for _, f := range functions {
		var links []string
		for _, i := range f.Interfaces {
			text := i.Name + " " + cmp.Or(i.State, "unknown")
			if i.SpeedMbps > 0 {
				text += fmt.Sprintf(" %d Mb/s", i.SpeedMbps)
			}
			links = append(links, text)
		}
		for _, d := range f.RDMA {
			for _, p := range d.Ports {
				links = append(links, fmt.Sprintf("%s/%d %s", d.Name, p.Number, cmp.Or(p.State, "unknown")))
			}
		}
		rows = append(rows, []string{
			f.Address, cmp.Or(numa(f.NUMANode), "-"), cmp.Or(f.Driver, "none"), cmp.Or(plain(f.Firmware), "unknown"),
			cmp.Or(plain(strings.Join(links, ", ")), "none"),
		})
	}
	s.table(rows)
	unknown := ""
	for _, f := range functions {
		for _, r := range f.Reporters {
			if r.State != "healthy" {
				s.line(0, "note: "+f.Address+": "+plain(reported(r)))
			}
		}
		if f.Unknown != "" && f.Unknown != unknown {
			unknown = f.Unknown
			s.line(0, "note: network information is incomplete: "+plain(unknown))
		}
	}
}
