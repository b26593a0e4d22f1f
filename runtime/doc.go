// Package runtime lets containers see devices: it renders, publishes and withdraws the CDI spec of a kind, the OCI hook
// that gates containers whose device is not ready, the program of that hook, and the readiness that the program reads.
// Where the container runtime does not read specs it changes the runtime's configuration, as far as the policy allows:
// a file of its own before a line in another's, nothing at all where it works already, never a default runtime. It
// restarts the runtime only where the policy says so, and takes everything back when the runtime does not return. It
// never touches a device.
//
// CDI injects; the hook is the gate. The gate has two carriers. The CDI spec runs it exactly when one of our devices
// is injected, under every runtime, and cannot be skipped by a pod's author. The hooks.d JSON of CRI-O and podman runs
// it for containers that ask by annotation, also where CDI is off.
//
// The order of writes follows what a crash on any line would leave: the program is there before anything names it,
// and names go before the program does.
package runtime
