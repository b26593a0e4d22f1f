// Package probe runs the programs that definitions name to watch devices when files cannot (accel.Probe), and applies
// their reports to the devices. A program may crash, hang or report nonsense. So it runs as its own process, is
// restarted with increasing delays, and nothing waits for it. Its reports are validated before use, and expire when it
// falls silent. The package must not judge: health belongs to package health.
package probe
