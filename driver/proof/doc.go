// Package proof lets a device compute through its user space, in a process of its own (acceld-prove) that may crash or
// hang, and judges the answer. The process has a clean environment and no capabilities, and a user of its own if the
// device nodes allow it. It is killed when its time is over. The package knows no vendor: what an interface's error
// means, the program says (accel.ProofFaultKind).
package proof
