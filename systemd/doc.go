// Package systemd is how the agent talks with the service manager: readiness, status and watchdog over the notify
// socket, and listeners from socket activation. The unit files are beside it. It controls no unit and may be used
// without systemd: then nothing is notified, nothing is watched and no listener is inherited.
package systemd
