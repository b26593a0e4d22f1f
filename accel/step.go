package accel

// Moment says when a definition's own steps run: before acceld's work for a state, or after it and before the state
// counts as reached.
type Moment string

// The moments.
const (
	Before Moment = "before"
	After  Moment = "after"
)

// StateSteps are the definition's own steps of one published state. They run in order, one at a time; the first that
// fails ends the attempt, and the next attempt begins with the first again: a step must bear being repeated. Those in
// After run again when the agent starts and when another driver is loaded.
type StateSteps struct {
	Before []CustomStep `json:"before,omitempty"`
	After  []CustomStep `json:"after,omitempty"`
}

// At returns the steps of one moment.
func (s StateSteps) At(m Moment) []CustomStep {
	if m == Before {
		return s.Before
	}
	return s.After
}

// CustomStep is one step of a definition's own. Exactly one of Run, Wait, WaitForLogs and Validate is set.
type CustomStep struct {
	// Name is for people and logs.
	Name string `json:"name"`
	// When is a condition: the step is left out when it fills to "", "false", "0" or "no". Empty: always.
	When string `json:"when,omitempty" template:"runtime"`
	// Timeout is how long the step may take, such as "30s", which is also the default.
	Timeout string `json:"timeout,omitempty"`
	// Run runs a program of the host, as SRO's custom steps did with containers.
	Run *RunStep `json:"run,omitempty"`
	// Wait waits until something is there.
	Wait *WaitStep `json:"wait,omitempty"`
	// WaitForLogs waits until a log has a line.
	WaitForLogs *LogStep `json:"waitForLogs,omitempty"`
	// Validate compares an answer with what it should be.
	Validate *ValidateStep `json:"validate,omitempty"`
}

// RunStep runs a program of the host. There is no shell: each word is one argument.
type RunStep struct {
	// Argv is the program, absolute or found in the usual directories, and its arguments.
	Argv []string `json:"argv" template:"runtime"`
	// User is a name or a number of the host's /etc/passwd; root when empty.
	User string `json:"user,omitempty"`
}

// WaitStep waits for one thing. Exactly one field is set.
type WaitStep struct {
	// File is an absolute path of anything.
	File string `json:"file,omitempty" template:"runtime"`
	// Node is the path of a device node.
	Node string `json:"node,omitempty" template:"runtime"`
	// Unit is a unit of systemd that must be active.
	Unit string `json:"unit,omitempty" template:"runtime"`
	// Socket is the path of a unix socket that somebody must listen on.
	Socket string `json:"socket,omitempty" template:"runtime"`
}

// LogStep waits for a line of a log. Lines since the boot count. Exactly one of Kernel, Unit and File is set.
type LogStep struct {
	// Match is a regular expression (RE2) that a line must match somewhere.
	Match string `json:"match" template:"runtime"`
	// Kernel looks at the kernel's own log.
	Kernel bool `json:"kernel,omitempty"`
	// Unit looks at what the journal has of a unit of systemd.
	Unit string `json:"unit,omitempty" template:"runtime"`
	// File looks at a text file.
	File string `json:"file,omitempty" template:"runtime"`
}

// ValidateStep compares an answer with what it should be: what a program prints (Argv, Output) or what an attribute
// holds (File, Want).
type ValidateStep struct {
	// Argv is as in RunStep; the program must end with 0.
	Argv []string `json:"argv,omitempty" template:"runtime"`
	User string   `json:"user,omitempty"`
	// Output is a regular expression (RE2) that the output must match somewhere; empty: any output is right.
	Output string `json:"output,omitempty" template:"runtime"`
	// File is an attribute (see HealthSource.File), read for every accelerator that is present.
	File string `json:"file,omitempty" template:"device"`
	// Want is a regular expression (RE2) that the whole content, trimmed, must match.
	Want string `json:"want,omitempty" template:"runtime"`
}
