// Package driver makes the right kernel modules live for each kind of accelerator. It gets a driver from its source,
// loads it, checks that the devices are bound and pass their self-test, upgrades the driver, resets devices, and
// undoes all of this. The packages below define what a module is, where drivers come from, how they are built and
// where they are stored.
//
// Driver may load and unload kernel modules and change its own state directory. It never forces the kernel, never
// installs a package and never writes below /lib/modules or /etc. It never touches a driver that it did not choose.
// The exception is a device that a definition allows it to take from a named driver: the takeover is recorded, and
// the device can be returned. So is a device that is bound by driver_override, because its driver knows no ids, and one
// that a claim has with VFIO.
//
// # The order of the sources
//
// The sources in order: already loaded and correct, the local store, installed on the host, then what the definition
// configures. [source] has the table. Each source answers satisfied, unavailable, refused or failed. Only unavailable
// falls through to the next source: a bad signature must not degrade into a build.
//
// # What a driver is
//
// A live module is identified by its build-id, and a kernel by its build-id or `uname -v` (a release is built more
// than once). The key of a store entry is derived from everything that went into the driver. Equal drivers therefore
// share one entry, and restarting or upgrading the agent changes nothing.
//
// # What if the agent dies here
//
// Loads happen in a helper process that can be killed, inside a transaction that unloads what it loaded if devices do
// not come up. A marker that is written before each load survives a crash of the machine. After two loads of one
// driver that ended uncleanly, there is no third.
package driver
