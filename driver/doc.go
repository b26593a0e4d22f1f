// Package driver makes the right kernel modules of a kind of accelerator live: it takes a driver from where one comes
// from, loads it, sees its devices bound, lets them compute, replaces it, resets devices and takes everything back.
// What a module is, where one comes from, how one is built and where it is kept are the packages below. It may load and
// remove kernel modules and change its own state directory; it never forces the kernel, never touches a driver it did
// not choose (but for devices that a definition allows to take from named drivers, on record and given back), never
// installs a package and never writes below /lib/modules or /etc.
//
// # The order of the sources
//
// Already loaded and right, the local store, installed on the host, then what the definition configures: [source] has
// the table. Each source answers satisfied, unavailable, refused or failed. Only unavailable falls through to the next
// one: a bad signature must not degrade into a build.
//
// # What a driver is
//
// A live module is known by its build-id, a kernel by its build-id or `uname -v` (a release is built more than once).
// An entry of the store is named by everything that went into it, so that equal things have one entry and restarting or
// upgrading the agent changes nothing.
//
// # What if the agent dies here
//
// Loads happen in a helper process that can be killed, inside a transaction that unloads what it loaded when devices do
// not come up. A marker written before each load survives a crash of the machine: two loads of one driver that ended
// uncleanly are not followed by a third.
package driver
