// Package detect reads a machine through package host and says what is there: PCI functions, kernel, modules,
// distribution, container engine, kubelet; and for one definition its accelerators, their health and their numbers.
//
// It knows buses, not vendors. It writes nothing, asks no network and no hardware beyond attribute files, and never
// fails: what cannot be read is left empty and named in Facts.Problems. The machine may be live, a copy, incomplete or
// hostile: reads are bounded and do not block, links do not leave the host's root.
//
// # Why PCI is read here and not through a library
//
// jaypipes/ghw 0.26.0 was measured beside this package on one tree of 200 functions (2 cores, medians of 20, one run):
// its pci.New took 66 ms and 32 MB of memory, of which loading the whole PCI id database (pcidb) is 40 ms; a complete
// Detect took 11 ms and lspci -vmmk 28 ms. It also lacks what drivers and schedulers need: driver_override, link speed and
// width, SR-IOV, the order of bridges. So the twelve attributes are read directly, one open directory per function, and
// names come from a single pass over pci.ids that keeps only what is present (Options.Names).
package detect
