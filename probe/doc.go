// Package probe runs the programs that definitions name to watch devices where files cannot (accel.Probe), and puts
// what they say on the devices. A program may crash, hang and lie: it is a process of its own that is started again,
// later each time; nobody waits for it; what it says is looked at before it is believed, and counts no more when it
// falls silent. It may not judge: health is package health's.
package probe
