// Package devices determines the state of a kind's devices and their driver: which driver is bound to them, which
// nodes exist, who uses them, and why the kernel refused one. It reads sysfs, /dev and the kernel log, and may create
// a missing device node, recorded in the ledger; it neither binds nor unbinds.
package devices
