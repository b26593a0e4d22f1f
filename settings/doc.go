// Package settings keeps on each device what is configured about it, such as a power limit or a compute mode: written
// when its driver is bound, before the device is offered, and again when something else has changed it. What was there
// before is written down first, and restored when the setting is no longer configured, and by a purge.
//
// [Decide] says what to do about one setting, from values alone. A [Keeper] reads, writes down and writes. It writes
// only what the definition allows, never judges health, and withholds a device only until its settings were tried once,
// or while it waits for an idle device.
package settings
