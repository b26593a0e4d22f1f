package accel

import "time"

// Probe is a program that watches the devices of a kind in ways that files do not allow: through a library of the
// vendor, which may crash or hang its caller. The agent starts it when the kind's driver is bound, reads its output
// ([ProbeLine]) and restarts it when it ends. The agent stops it before the driver is replaced. Attributes, the
// kernel log and the bus provide what it does not report.
type Probe struct {
	// Argv is the program with its arguments. A name without a slash is a program next to the agent's own that runs
	// with the host's files; a path is a path on the host.
	Argv []string `json:"argv"`
	// Silence is how long the program may report nothing before the agent assumes that it hangs and restarts it, such
	// as "10s"; 30s when empty. Its last report is then no longer valid.
	Silence string `json:"silence,omitempty" form:"duration"`
}

// ProbeProtocol is the version of the protocol between agent and probe program.
const ProbeProtocol = 1

// ProbeLine is one line that a [Probe] program writes to its standard output, as JSON; its standard error is for
// people. At most one field is set. A line without fields, "{}", says that the program is alive. The agent ignores
// unknown fields, and ends a program whose output it cannot parse.
type ProbeLine struct {
	// Hello is the first line.
	Hello *ProbeHello `json:"hello,omitempty"`
	// Snapshot is all that the program knows, and replaces its previous snapshot. The program must write one after
	// the start and whenever something in it changes.
	Snapshot *ProbeSnapshot `json:"snapshot,omitempty"`
	// Readings are numbers by device, then by metric name (see MetricSource.Name). They replace that device's
	// previous readings.
	Readings map[string]map[string]float64 `json:"readings,omitempty"`
	// Processes are the processes that use a device, by device. They replace that device's previous ones; a device that
	// nobody uses has an empty list.
	Processes map[string][]ProbeProcess `json:"processes,omitempty"`
	// Fault is an error that a device has reported just now.
	Fault *ProbeFault `json:"fault,omitempty"`
	// Problem says why devices cannot be queried, until the next snapshot. It makes all devices of the kind degraded.
	Problem *Problem `json:"problem,omitempty"`
	// Divided answers a request to divide a device. A snapshot with the outcome precedes it.
	Divided *ProbeDivision `json:"divided,omitempty"`
	// Set answers a request to set something. A snapshot with the outcome precedes it.
	Set *ProbeSet `json:"set,omitempty"`
	// Absent says that there is nothing to query on this host, and why, for example because the library is not
	// installed. It does not affect any device's health. The program then ends; the agent tries it again after a
	// while.
	Absent string `json:"absent,omitempty"`
}

// ProbeRequest is one line that the agent writes to a program's standard input, as JSON. A program that never divides
// or sets devices need not read it.
type ProbeRequest struct {
	Divide *ProbeDivision `json:"divide,omitempty"`
	Set    *ProbeSet      `json:"set,omitempty"`
}

// ProbeDivision says how to divide a device that nobody uses.
type ProbeDivision struct {
	Device string `json:"device"`
	// Parts is how many partitions of each profile it should have; empty means undivided.
	Parts map[string]int `json:"parts,omitempty"`
	// Problem says, in the answer, why it could not be divided.
	Problem string `json:"problem,omitempty"`
}

// ProbeSet says what to set on a device.
type ProbeSet struct {
	Device string `json:"device"`
	// Setting is its name in the definition, and Value what the definition's Values have for it, or a number.
	Setting string `json:"setting"`
	Value   string `json:"value"`
	// Problem says, in the answer, why it was not set. Unsupported is true if the device has no such setting.
	Problem     string `json:"problem,omitempty"`
	Unsupported bool   `json:"unsupported,omitempty"`
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
	// Labels are node labels that the vendor's other programs also set; their domain is the definition's Vendor.
	Labels map[string]string `json:"labels,omitempty"`
}

// ProbeDevice is what a program knows about one device. Empty fields mean unknown.
type ProbeDevice struct {
	// ID is the PCI address, as sysfs writes it.
	ID     string `json:"id"`
	UUID   string `json:"uuid,omitempty"`
	Serial string `json:"serial,omitempty"`
	// Model is the name of the product.
	Model string `json:"model,omitempty"`
	// Fabric is like Accelerator.Fabric.
	Fabric string `json:"fabric,omitempty"`
	// NUMANode is used if the platform does not report one.
	NUMANode *int `json:"numaNode,omitempty"`
	// Health is the program's verdict; nil if nothing is wrong.
	Health *ProbeHealth `json:"health,omitempty"`
	// Partitions are the partitions of the device, if the definition leaves them to the program (Partitions.Told).
	Partitions []ProbePartition `json:"partitions,omitempty"`
	// Settings are the settings without a file in the definition, by name; the others are unknown to the device.
	Settings map[string]ProbeSetting `json:"settings,omitempty"`
}

// ProbeSetting is a setting of a device. The texts are those of Setting.Values, or numbers.
type ProbeSetting struct {
	// Value is what is so now; empty if the device does not tell it.
	Value string `json:"value,omitempty"`
	// Pending is what will be so after a reset of the device, if that differs.
	Pending string `json:"pending,omitempty"`
	// Min and Max bound a number; empty for no bound.
	Min string `json:"min,omitempty"`
	Max string `json:"max,omitempty"`
}

// ProbeHealth is what is wrong with a device or partition.
type ProbeHealth struct {
	// State is "degraded" or "unhealthy".
	State  HealthState `json:"state"`
	Reason Reason      `json:"reason,omitempty"`
	Action Action      `json:"action,omitempty"`
	// Message is a sentence that does not change while the error stays the same.
	Message string `json:"message"`
}

// ProbePartition is a partition of a device.
type ProbePartition struct {
	// Name identifies it among the partitions of the device; it must be the same each time the device is divided in
	// the same way.
	Name    string `json:"name"`
	Profile string `json:"profile"`
	UUID    string `json:"uuid,omitempty"`
	// Nodes are paths of its device nodes below /dev.
	Nodes []string `json:"nodes,omitempty"`
	// Capacity holds its amounts, by their names in the definition.
	Capacity map[string]int64 `json:"capacity,omitempty"`
}

// ProbeProcess is a process that uses a device.
type ProbeProcess struct {
	// PID is its id on the host. It counts only as long as the process has a node of the device open.
	PID int `json:"pid"`
	// MemoryBytes is the memory of the device that it has now; null if that is not known.
	MemoryBytes Answer[int64] `json:"memoryBytes,omitzero"`
	// EngineSeconds is how long each engine of the device has worked for it since the process or the program began, by
	// the engine's name, such as "compute".
	EngineSeconds map[string]float64 `json:"engineSeconds,omitempty"`
}

// ProbeFault is an error that a device has reported.
type ProbeFault struct {
	Device string `json:"device"`
	// Code is one of the codes in the definition's Log, which says what it means.
	Code string `json:"code"`
	// Text is the original report, as evidence.
	Text string    `json:"text,omitempty"`
	At   time.Time `json:"at,omitzero"`
}
