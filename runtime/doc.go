// Package runtime lets containers see devices: it renders, publishes and withdraws the CDI spec of a kind, the OCI hook
// that gates containers whose device is not ready, the program of that hook, and the readiness that the program reads.
// It may write these files and nothing else: it edits no file of another component, never restarts a container runtime
// and never touches a device.
//
// CDI injects; the hook is the gate. The gate has two carriers. The CDI spec runs it exactly when one of our devices
// is injected, under every runtime, and cannot be skipped by a pod's author. The hooks.d JSON of CRI-O and podman runs
// it for containers that ask by annotation, also where CDI is off.
//
// The order of writes follows what a crash on any line would leave: the program is there before anything names it,
// and names go before the program does.
package runtime
