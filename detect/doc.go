// Package detect reads a machine through package host and says what is there: PCI functions, kernel, modules,
// distribution, container engine, kubelet; and for one definition its accelerators, their health and their numbers.
//
// It knows buses, not vendors. It writes nothing, asks no network and no hardware beyond attribute files, and never
// fails: what cannot be read is left empty and named in Facts.Problems. The machine may be live, a copy, incomplete or
// hostile: reads are bounded and do not block, links do not leave the host's root.
//
// What Options.Around adds is slow and asked seldom: the kernel's answers about network functions, which may come from
// their firmware, and what the host is made of. A copy of a machine gives no such answer.
//
// # Why PCI is read here and not through a library
//
// What a host is made of (host.Inventory) comes from jaypipes/ghw, which reads it once. PCI functions are read at
// every event of the bus, and of copies of machines, by this package. Test/bench/detect puts both to one tree of 200
// functions, taking turns. Medians of 31 readings on two busy cores: ghw.PCI 0.27.0 took 70 ms and allocated 13 MB,
// lspci -vmmk took 54 ms, and a complete Detect, with names, modules, kernel and kubelet, 20 ms and 1.2 MB. Ghw loads
// the whole PCI id database for each reading. It has neither driver_override nor the speed and width of links nor
// SR-IOV, which drivers and schedulers need, and it opens paths as they are, so that a copy could lead it out of the
// root or hold it at a FIFO. Here each function costs one open directory, and names come from a single pass over
// pci.ids that keeps those of functions that are present (Options.Names).
package detect
