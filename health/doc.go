// Package health is the only place that judges the health of a device. It combines the attributes that a definition
// names (read by package detect), lines of the kernel log that match the definition's rules, errors that the
// definition's program reports (package probe), the PCI Express error counters of the device and of the port above it,
// the link, and limits of metrics. Everything else (device plugin, DRA, labels, condition, metrics, the containers'
// gate) uses the result and judges nothing.
//
// A verdict that comes from an event must survive the agent. So conclusions are kept in one small file below /run,
// with the number of the last line that was judged. A reboot empties it, as it empties the kernel log.
package health
