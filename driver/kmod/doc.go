// Package kmod describes kernel module files and decides whether a kernel would accept them. It reads module files,
// the files of depmod, modprobe.d and Module.symvers, and the live modules. It checks a module as the kernel would,
// but more strictly, and orders what must be loaded into a plan. It turns the kernel's refusals into typed problems.
// It may only read files of the host: it writes nothing, runs nothing and never asks the kernel to load or remove a
// module.
package kmod
