package accel

import "time"

// Probe is a program that watches the devices of a kind where files cannot: through a library of the device's vendor,
// which may crash or hang with whoever calls it. The agent starts it when the kind's driver is bound, reads what it
// writes ([ProbeLine]) and starts it again when it ends. It is stopped before the driver is replaced. What it does not
// say is left to attributes, the kernel log and the bus.
type Probe struct {
	// Argv is the program with its arguments. A name without a slash is a program that stands beside the agent's own
	// and runs among the host's files; a path is the host's.
	Argv []string `json:"argv"`
	// Silence is how long the program may say nothing before it counts as hanging and is started again, such as "10s";
	// 30s when empty. What it said last counts no more then.
	Silence string `json:"silence,omitempty"`
}

// ProbeProtocol is the version of the protocol that a program speaks.
const ProbeProtocol = 1

// ProbeLine is one line that a program of [Probe] writes to its standard output, as JSON; its standard error is for
// people. One field is set. A line without any, "{}", says that the program is there. What the agent does not know in a
// line it passes over, and what it cannot read ends the program.
type ProbeLine struct {
	// Hello is the first line.
	Hello *ProbeHello `json:"hello,omitempty"`
	// Snapshot is all that the program knows, in the place of what it said before; one is due after the start, and
	// whenever something in it has changed.
	Snapshot *ProbeSnapshot `json:"snapshot,omitempty"`
	// Readings are numbers by metric name (see MetricSource.Name), by device, in the place of the last ones of that
	// device.
	Readings map[string]map[string]float64 `json:"readings,omitempty"`
	// Fault is an error that a device has reported just now.
	Fault *ProbeFault `json:"fault,omitempty"`
	// Problem says why devices cannot be asked, until the next snapshot. All devices of the kind are degraded by it.
	Problem *Problem `json:"problem,omitempty"`
	// Divided answers a request to divide a device, after a snapshot that shows what became of it.
	Divided *ProbeDivision `json:"divided,omitempty"`
	// Absent says that there is nothing to ask on this host, and why: the library is not installed, say. No device is
	// worse for it. The program ends then; it is tried again after a while.
	Absent string `json:"absent,omitempty"`
}

// ProbeRequest is one line that the agent writes to a program's standard input, as JSON. A program that divides nothing
// need not read.
type ProbeRequest struct {
	Divide *ProbeDivision `json:"divide,omitempty"`
}

// ProbeDivision is how a device that nobody uses is to be divided.
type ProbeDivision struct {
	Device string `json:"device"`
	// Parts are how many partitions of each profile it is to have; none: it is to be whole.
	Parts map[string]int `json:"parts,omitempty"`
	// Problem says in the answer why it is not.
	Problem string `json:"problem,omitempty"`
}

// ProbeHello introduces a program.
type ProbeHello struct {
	Protocol int `json:"protocol"`
	// Program is its name and version, for people.
	Program string `json:"program"`
}

// ProbeSnapshot is what a program knows about the devices of the host.
type ProbeSnapshot struct {
	Devices []ProbeDevice `json:"devices"`
	// Labels are labels for the node that others of the vendor's programs write too, with the definition's vendor as
	// domain.
	Labels map[string]string `json:"labels,omitempty"`
}

// ProbeDevice is what a program knows about one device. Empty fields say nothing.
type ProbeDevice struct {
	// ID is the PCI address, as sysfs writes it.
	ID     string `json:"id"`
	UUID   string `json:"uuid,omitempty"`
	Serial string `json:"serial,omitempty"`
	// Model is the name of the product.
	Model string `json:"model,omitempty"`
	// Fabric is as Accelerator.Fabric.
	Fabric string `json:"fabric,omitempty"`
	// NUMANode counts where the platform names none.
	NUMANode *int `json:"numaNode,omitempty"`
	// Health is what the program thinks of it; nil: nothing is wrong.
	Health *ProbeHealth `json:"health,omitempty"`
	// Partitions are the parts into which it is divided, where the definition leaves them to the program
	// (Partitions.Told).
	Partitions []ProbePartition `json:"partitions,omitempty"`
}

// ProbeHealth is what is wrong with a device, or a partition.
type ProbeHealth struct {
	// State is "degraded" or "unhealthy".
	State  HealthState `json:"state"`
	Reason Reason      `json:"reason,omitempty"`
	Action Action      `json:"action,omitempty"`
	// Message is a sentence that stays the same while the same is wrong.
	Message string `json:"message"`
}

// ProbePartition is a part of a device.
type ProbePartition struct {
	// Name tells it from the other parts; it must be the same each time that the device is divided in the same way.
	Name    string `json:"name"`
	Profile string `json:"profile"`
	UUID    string `json:"uuid,omitempty"`
	// Nodes are paths of its device nodes below /dev.
	Nodes []string `json:"nodes,omitempty"`
	// Capacity are amounts that it has, by the names in the definition.
	Capacity map[string]int64 `json:"capacity,omitempty"`
}

// ProbeFault is an error that a device has reported.
type ProbeFault struct {
	Device string `json:"device"`
	// Code is one of those in the definition's Log, which says what it means.
	Code string `json:"code"`
	// Text is what was heard, as evidence.
	Text string    `json:"text,omitempty"`
	At   time.Time `json:"at,omitzero"`
}
