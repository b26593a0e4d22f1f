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
// specs, device plugin lists, metrics, labels, the status page) is a rendering of a Machine, and `acceld status -o
// json` prints it.
//
// # The nouns
//
// What is found on a bus or in a class is a [Device] of a [Subsystem]; on PCI it is a function. A [Definition] is data
// that describes a kind of accelerator, "<vendor>-<hardware>" such as "qemu-edu": how to recognise it, which kernel
// modules it needs, which device nodes a container gets, how to read its health and metrics, and how to test that it
// works. A device that a definition recognises is an [Accelerator] of that kind. Its ID is its PCI address, or what
// stands for it elsewhere, which survives reboots, driver reloads and restarts of everything above it.
//
// A [Setting] is something that can be set on a device, such as a power limit. What is configured is set by package
// settings, and a [SettingHave] says how far the device has it.
//
// A [Problem] is the only kind of error that decides states: a typed [Reason] and a sentence. [Reasons] says for each
// reason who must act and what to do; docs/reasons.md is generated from it.
//
// A [Progress] reports how far a pull, a build or a load is. It is not part of the Machine, because no decision
// depends on it.
//
// # Invariants
//
//   - A published Machine never changes; the next one is a new value.
//   - A vanished accelerator stays in its kind as a tombstone with health "gone" until nothing refers to it.
//   - A probe that could not answer leaves the last answer in place and says so; "don't know" is not "no" ([Answer]).
//   - No vendor's name and no PCI vendor id appears outside vendors/, the vendors' probe programs, docs and test data.
package accel
