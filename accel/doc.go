// Package accel is the vocabulary of acceld: plain values, the standard library only, no effects.
//
// # The one value
//
// A [Machine] is an immutable snapshot of one accelerator host. It has three parts and a verdict:
//
//   - [Facts]: what is here. Package detect fills it from sysfs, proc and etc.
//   - [Want]: what the operator's file or a policy asks for.
//   - [Have]: what is true now about each kind: driver, runtime, plugin, monitoring. Probes and steps fill it.
//   - [Status], one per kind: the [State] that follows from the three, with a [Reason] when it is blocked.
//
// A state is derived by one pure function (agent.Next), never remembered. Everything that leaves the process (CDI
// specs, device plugin lists, metrics, labels, the status page) is a rendering of a Machine, and `acceld status
// -o json` prints it.
//
// # The nouns
//
// A PCI function is a [PCIDevice]. A [Definition] is data that describes a kind of accelerator, "<vendor>-<hardware>"
// such as "qemu-edu": how to recognise it, which kernel modules it needs, which device nodes a container gets, how
// health, metrics and a proof of work are read. A PCI function that a definition recognises is an [Accelerator] of that
// kind. Its ID is its PCI address, which survives reboots, driver reloads and restarts of everything above it.
//
// A [Problem] is the only error that states are decided on: a typed [Reason] and a sentence. [Reasons] says for
// each who must act and what to do; docs/reasons.md is generated from it.
//
// A [Progress] reports how far a pull, a build or a load is. It is not part of the Machine: nothing is decided on it.
//
// # Invariants
//
//   - Nobody changes a Machine after it was published; the next one is a new value.
//   - A vanished accelerator stays in its kind as a tombstone with health "gone" until nothing refers to it.
//   - A probe that could not answer leaves the last answer in place and says so; "don't know" is not "no" ([Answer]).
//   - No name of a vendor and no PCI vendor id appears outside vendors/, the probe programs of vendors, docs
//     and test data.
package accel
