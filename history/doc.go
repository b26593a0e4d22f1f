// Package history remembers what happened to each device, by its serial number: where it was, what was wrong with it,
// when it was well again, and with which drivers it computed. The record stays over restarts of the agent, reboots and
// other slots, so that whoever is called at night sees whether a card has failed before. It judges nothing: that is
// for health. In short, it goes to the cluster, if a policy asks for that ([Book.Past]).
//
// Records are small and bounded: [maxEntries] entries for a device and [maxDevices] devices, one file for each device
// below the agent's state. Only this package reads and writes them.
package history
