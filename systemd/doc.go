// Package systemd is how the agent talks with the service manager: readiness, status and watchdog over the notify
// socket, listeners from socket activation, and jobs of other units over D-Bus. The unit files are beside it. It
// decides nothing about a unit, and may be used without systemd: then nothing is notified, nothing is watched, no
// listener is inherited, and a job is an error.
package systemd
