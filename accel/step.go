package accel

import (
	"slices"
	"strings"
)

// Moment says when a definition's own steps run: before acceld's work for a state, or after that work and before the
// state counts as reached.
type Moment string

// The moments.
const (
	Before Moment = "before"
	After  Moment = "after"
)

// StateSteps are the definition's own steps for one published state. They run in order, one at a time. A failed step
// ends the attempt, and the next attempt starts again with the first step, so steps must be repeatable. The steps in
// After run again when the agent starts and when another driver is loaded.
type StateSteps struct {
	// Before are the steps that run before the state can be reached.
	Before []CustomStep `json:"before,omitempty"`
	// After are the steps that run once it is reached.
	After []CustomStep `json:"after,omitempty"`
}

// OwnState is a state of a definition's own, which the cluster sees like the published states.
type OwnState struct {
	// Name is its name: the label is "acceld.dev/state-<name>-<kind>".
	Name string `json:"name"`
	// After is the published state that it follows. Later states wait for it.
	After Published `json:"after"`
	// Steps run in order once After is reached. The state is reached when the last one has succeeded. They run again
	// when the agent starts and when another driver is loaded.
	Steps []CustomStep `json:"steps"`
}

// ownState is how the labels of own states begin.
const ownState = "state-"

// Published is the name under which the cluster sees the state.
func (s OwnState) Published() Published { return Published(ownState + s.Name) }

// Own reports whether p is a state of a definition's own.
func (p Published) Own() bool { return strings.HasPrefix(string(p), ownState) }

// StepsAt returns the definition's own steps for a published state, or for one of its own, at one moment.
func (def *Definition) StepsAt(state Published, m Moment) []CustomStep {
	if !state.Own() {
		return def.Steps[state].At(m)
	}
	for _, s := range def.States {
		if s.Published() == state && m == After {
			return s.Steps
		}
	}
	return nil
}

// WaitsForPods reports whether a step of the definition waits for a pod of the node.
func (def *Definition) WaitsForPods() bool {
	var all []CustomStep
	for _, s := range def.Steps {
		all = slices.Concat(all, s.Before, s.After)
	}
	for _, s := range def.States {
		all = slices.Concat(all, s.Steps)
	}
	return slices.ContainsFunc(all, func(s CustomStep) bool {
		return s.Wait != nil && s.Wait.Pod+s.Wait.DaemonSet != "" ||
			s.WaitForLogs != nil && s.WaitForLogs.Pod+s.WaitForLogs.DaemonSet != ""
	})
}

// NodePod is a pod of this node, as the API server has it.
type NodePod struct {
	Namespace, Name, UID string
	// DaemonSet is the name of the DaemonSet that made it; empty if none did.
	DaemonSet string
	// Phase is its phase, such as "Running", and Ready its condition of that name.
	Phase string
	Ready bool
}

// At returns the steps for one moment.
func (s StateSteps) At(m Moment) []CustomStep {
	if m == Before {
		return s.Before
	}
	return s.After
}

// CustomStep is one of a definition's own steps. Exactly one of Run, Wait, WaitForLogs and Validate is set.
type CustomStep struct {
	// Name is for people and logs.
	Name string `json:"name"`
	// When is a condition: the step is skipped if it evaluates to "", "false", "0" or "no". An empty condition always
	// holds.
	When string `json:"when,omitempty" template:"runtime"`
	// Timeout is how long the step may take; "30s" when empty.
	Timeout string `json:"timeout,omitempty" form:"duration"`
	// Run runs a program of the host; SRO's custom steps did this with containers.
	Run *RunStep `json:"run,omitempty" privileged:"runs a program"`
	// Wait waits until something exists or is ready.
	Wait *WaitStep `json:"wait,omitempty"`
	// WaitForLogs waits for a line in a log.
	WaitForLogs *LogStep `json:"waitForLogs,omitempty"`
	// Validate compares a result with the expected one.
	Validate *ValidateStep `json:"validate,omitempty"`
}

// RunStep runs a program of the host. There is no shell: each element is one argument.
type RunStep struct {
	// Argv is the program, absolute or found in the usual directories, and its arguments.
	Argv []string `json:"argv" template:"runtime"`
	// User is a name or a number from the host's /etc/passwd; root when empty.
	User string `json:"user,omitempty"`
}

// WaitStep waits for one thing. Exactly one field is set.
type WaitStep struct {
	// File is the absolute path of a file of any type.
	File string `json:"file,omitempty" template:"runtime" privileged:"looks for a file of the host"`
	// Node is the path of a device node.
	Node string `json:"node,omitempty" template:"runtime" privileged:"looks for a file of the host" unless:"dev"`
	// Unit is a systemd unit that must be active.
	Unit string `json:"unit,omitempty" template:"runtime"`
	// Socket is the path of a unix socket that a process must listen on.
	Socket string `json:"socket,omitempty" template:"runtime" privileged:"looks for a file of the host"`
	// Pod is a pod of this node, "<namespace>/<name>", that must be ready or have succeeded.
	Pod string `json:"pod,omitempty" template:"runtime"`
	// DaemonSet is one, "<namespace>/<name>", whose pod on this node must be ready.
	DaemonSet string `json:"daemonSet,omitempty" template:"runtime"`
}

// LogStep waits for a line in a log. Lines since the last boot count, and of a pod those that the kubelet still has.
// Exactly one of Kernel, Unit, File, Pod and DaemonSet is set.
type LogStep struct {
	// Match is a regular expression (RE2) that a line must match somewhere.
	Match string `json:"match" template:"runtime"`
	// Kernel reads the kernel's log.
	Kernel bool `json:"kernel,omitempty"`
	// Unit reads the journal of a systemd unit.
	Unit string `json:"unit,omitempty" template:"runtime" privileged:"reads a log of the host"`
	// File reads a text file.
	File string `json:"file,omitempty" template:"runtime" privileged:"reads a file of the host"`
	// Pod reads what a container of a pod of this node, "<namespace>/<name>", has printed.
	Pod string `json:"pod,omitempty" template:"runtime" privileged:"reads a log of the host"`
	// DaemonSet does the same for its pod on this node.
	DaemonSet string `json:"daemonSet,omitempty" template:"runtime" privileged:"reads a log of the host"`
	// Container is the container of the pod; any of them when empty.
	Container string `json:"container,omitempty"`
}

// ValidateStep compares a result with the expected one: what a program prints (Argv, Output) or what an attribute
// holds (File, Want).
type ValidateStep struct {
	// Argv is like in RunStep; the program must exit with 0. If an argument contains {{.Address}}, the program runs
	// once for each accelerator that is present, all at once.
	Argv []string `json:"argv,omitempty" template:"runtime" privileged:"runs a program"`
	// User is the user that the program runs as; root when empty.
	User string `json:"user,omitempty"`
	// Output is a regular expression (RE2) that must match somewhere in the output (its first MiB, trimmed);
	// empty accepts any output.
	Output string `json:"output,omitempty" template:"runtime"`
	// File is an attribute (see HealthSource.File) that is read for every accelerator that is present.
	File string `json:"file,omitempty" template:"device" privileged:"reads a file of the host" unless:"own"`
	// Want is a regular expression (RE2) that must match the whole content, trimmed.
	Want string `json:"want,omitempty" template:"runtime"`
}
