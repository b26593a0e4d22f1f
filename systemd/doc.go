// Package systemd connects the agent to the service manager: readiness, status and watchdog over the notify socket,
// listeners from socket activation, entries of the log in the journal, and jobs of other units over D-Bus. The unit
// files are in this directory. It decides nothing about a unit, and may be used without systemd: then it sends no
// notifications, no watchdog is active, no listener is inherited, the log is lines of text, and a job is an error.
package systemd
