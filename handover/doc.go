// Package handover passes devices from one tenant to the next: a pod, a claim, or a container outside pods. For kinds
// whose definition asks for it, no container of another tenant starts with a device before its former tenants have
// ended, nobody has it open, it was scrubbed, and it has passed its self-test.
//
// The hook asks for each container, so device plugin, claims and containers without a kubelet go the same way. The
// kubelet may give a device to the next pod the moment the former one has ended; a device that is being cleaned
// therefore stays offered, because a pod that the kubelet refuses is refused for good, and its container waits. A
// device that cannot be cleaned is withheld.
//
// Who has a device is written down before the container starts. After a crash the agent goes on from there: a device
// whose tenants have ended is cleaned from the beginning. After a boot nothing is written, and a device of which it is
// not known who had it is cleaned.
package handover
