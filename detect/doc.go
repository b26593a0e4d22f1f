// Package detect reads a machine through package host and says what is there: PCI functions, kernel, modules,
// distribution, container engine, kubelet; and for one definition its accelerators, their health and their numbers.
//
// It knows buses, not vendors. It writes nothing, asks no network and no hardware beyond attribute files, and never
// fails: what cannot be read is left empty and named in Facts.Problems. The machine may be live, a copy, incomplete or
// hostile: reads are bounded and do not block, links do not leave the host's root.
//
// # Why PCI is read here and not through a library
//
// jaypipes/ghw 0.26.0 was measured beside this package on one tree of 200 functions (test/bench/detect; 2 busy cores,
// medians of 21 in one run): its pci.New took 43 ms and allocated 14 MiB, most of it for the whole PCI id database,
// where lspci -vmmk took 46 ms and a complete Detect with names, modules, kernel and kubelet 22 ms and 1 MiB. It also
// lacks what drivers and schedulers need: driver_override, link speed and width, SR-IOV. So the attributes are read
// directly, one open directory per function, and names come from a single pass over pci.ids that keeps only what is
// present (Options.Names).
package detect
