// Package health is the one place that judges how well a device is. What it puts together: the attributes that a
// definition names (read by package detect), lines of the kernel log by the definition's rules, errors that a
// definition's program tells (package probe), the error counters of PCI Express of the device and of the port above it,
// the link, and limits of metrics. Everybody else (device plugin, DRA, labels, condition, metrics, the gate of
// containers) is told the outcome and judges nothing.
//
// A verdict that comes from an event must outlive the agent: what was concluded is kept in one small file below /run,
// with the number of the last line that was judged. A boot empties it, as it empties the kernel log.
package health
