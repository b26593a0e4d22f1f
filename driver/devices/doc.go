// Package devices says what is true about the devices of a kind and their driver: which driver has them, which nodes
// are there, who uses them, and why the kernel refused one. It reads sysfs, /dev and the kernel log, and may make a
// device node that is missing, which the ledger then has; it neither binds nor unbinds.
package devices
