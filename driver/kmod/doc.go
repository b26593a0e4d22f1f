// Package kmod says what a kernel module file is and whether a kernel would take it: it reads module files, what
// depmod, modprobe.d and Module.symvers say, and what is live, checks a module as the kernel would and stricter, and
// orders what has to be loaded into a plan. It types what the kernel answers to a load. It may read files of the host
// and nothing else: it writes nothing, runs nothing and never asks the kernel to load or remove a module.
package kmod
