// Package runtime lets containers see devices. It renders, publishes and withdraws the CDI spec of a kind, the OCI
// hook that gates containers whose device is not ready, the program of that hook, and the readiness file that the
// program reads. If the container runtime does not read specs, this package changes the runtime's configuration as
// far as the policy allows: it prefers a file of its own to a line in an existing file, changes nothing if devices
// already reach containers, and never changes the default runtime. It restarts the container runtime only if the
// policy allows it, and reverts everything if the runtime does not come back. It never touches a device.
//
// CDI injects; the hook is the gate. The gate has two carriers. The CDI spec runs it exactly when one of our devices
// is injected, under every runtime, and a pod's author cannot skip it. The hooks.d JSON of CRI-O and podman runs it
// for containers with our annotation, even if CDI is off.
//
// The order of writes makes a crash on any line safe: the program is installed before anything names it, and the
// names are removed before the program.
package runtime
