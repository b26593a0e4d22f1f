package detect

import (
	"fmt"
	"slices"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host"
)

// problemLimit is how many problems are reported for each part. A broken copy could have one for each of 10,000
// devices.
const problemLimit = 50

// Options say what a detection includes.
type Options struct {
	// Names includes vendor and device names from the PCI ID database.
	Names bool
	// Around includes the host's hardware inventory and its network functions. That takes thousands of files and
	// answers from firmware.
	Around bool
	// Subsystems are those besides PCI whose devices are listed.
	Subsystems []string
}

// SubsystemsOf returns the subsystems in which devices of some kinds are found.
func SubsystemsOf(kinds map[string]*accel.Definition) (names []string) {
	for _, def := range kinds {
		names = append(names, def.Subsystem().Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Detect reads everything about h. It never fails: what cannot be read is left empty and named in Facts.Problems.
func Detect(h *host.Host, o Options) accel.Facts { return detect(h, o, accel.Facts{}) }

// detect is Detect with the last detection, whose devices stand for those that cannot be read now.
func detect(h *host.Host, o Options, last accel.Facts) accel.Facts {
	var f accel.Facts
	var pci, modules, rest []string
	var wg guard.Group
	wg.Go(func() { f.PCI, pci = functions(h, last.PCI) })
	wg.Go(func() { f.Modules, modules = Modules(h) })
	f.Kernel, rest = Kernel(h)
	osFacts, problems := OS(h)
	f.OS, rest = osFacts, append(rest, problems...)
	daemons := &look{Host: h}
	f.Kubelet, f.Runtime = daemons.kubeletAndEngine()
	f.Cluster.Unknown = f.Kubelet.Present // only the API server knows more
	f.Notes, rest = daemons.notes, append(rest, daemons.problems...)
	wg.Wait()
	f.Devices, problems = others(h, o.Subsystems, f.PCI, last.Devices)
	rest = append(rest, problems...)
	if o.Names {
		rest = append(rest, Names(h, f.PCI)...)
	}
	if o.Around {
		f.Inventory, f.Network, problems = surroundings(h, f.PCI)
		rest = append(rest, problems...)
	}
	for _, list := range [][]string{rest, pci, modules} {
		if more := len(list) - problemLimit; more > 0 {
			list = append(list[:problemLimit:problemLimit], fmt.Sprintf("%d more like the last one", more))
		}
		f.Problems = append(f.Problems, list...)
	}
	return f
}
