// Package detect reads a machine through package host and reports what is there: PCI functions, kernel, modules,
// distribution, container engine and kubelet; and, for one definition, its accelerators with their health and metrics.
//
// It knows buses, not vendors. It writes nothing, queries no network and no hardware beyond attribute files, and never
// fails: what cannot be read is left empty and named in Facts.Problems. The machine may be live, a copy, incomplete or
// hostile: reads are bounded and do not block, and links do not leave the host's root.
//
// What Options.Around adds is slow and read seldom: the kernel's answers about network functions, which may come from
// their firmware, and the hardware inventory. A copy of a machine has neither.
//
// # Why PCI is read here and not through a library
//
// The hardware inventory (host.Inventory) comes from jaypipes/ghw and is read once. PCI functions are read on every
// bus event, and from copies of machines, by this package. Test/bench/detect runs both in turn on one tree of 200
// functions. Medians of 31 readings on two busy cores: ghw.PCI 0.27.0 took 70 ms and allocated 13 MB, lspci -vmmk took
// 54 ms, and a complete Detect, with names, modules, kernel and kubelet, took 20 ms and 1.2 MB. Ghw loads the whole
// PCI ID database for each reading. It reports neither driver_override nor the speed and width of links nor SR-IOV,
// which drivers and schedulers need. It opens paths as they are, so a copy could lead it out of the root or block it
// on a FIFO. Here each function costs one open directory, and names come from a single pass over pci.ids that keeps
// only those of present functions (Options.Names).
package detect
