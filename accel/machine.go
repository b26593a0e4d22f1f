package accel

import (
	"sort"
	"time"
)

// Machine is one immutable snapshot of an accelerator host. See the package comment.
type Machine struct {
	// Taken is when the snapshot was made; zero until the host has been read for the first time.
	Taken time.Time `json:"taken"`
	// Agent says which agent made it.
	Agent Agent `json:"agent"`
	Facts Facts `json:"facts"`
	Want  Want  `json:"want"`
	// Have is what is true now, by kind.
	Have map[string]Have `json:"have,omitempty"`
	// Status is the verdict, by kind.
	Status map[string]Status `json:"status,omitempty"`
}

// Agent identifies the running agent.
type Agent struct {
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Node is the Kubernetes node name, or the host name on bare metal.
	Node string `json:"node"`
}

// Have is what is true now about one kind of accelerator.
type Have struct {
	// Accelerators are the devices of this kind, ordered by ID, vanished ones included.
	Accelerators []Accelerator `json:"accelerators,omitempty"`
	Driver       DriverHave    `json:"driver"`
	Runtime      RuntimeHave   `json:"runtime"`
	Plugin       PluginHave    `json:"plugin"`
	Monitoring   Monitoring    `json:"monitoring"`
	// StepsLeft are the published states whose own steps of the definition, those in After, have not run to their end
	// with the driver that is live.
	StepsLeft []Published `json:"stepsLeft,omitempty"`
	// Probe is what can be said of the definition's probe program; nil without one.
	Probe *ProbeHave `json:"probe,omitempty"`
	// Failure is the last failed step that has not succeeded since; nil when none.
	Failure *Failure `json:"failure,omitempty"`
	// Word is what the node says of an upgrade that a policy of the cluster orders. While nobody knows, what was said
	// last holds.
	Word Answer[Word] `json:"word,omitzero"`
}

// Accelerator is a PCI function that a definition recognises, or a partition of one.
type Accelerator struct {
	// ID is the PCI address, such as "0000:01:00.0"; of a partition see [PartitionID].
	ID string `json:"id"`
	// Parent is the ID of the device that a partition is of, and Profile the kind of partition that it is; empty for a
	// device.
	Parent   string `json:"parent,omitempty"`
	Profile  string `json:"profile,omitempty"`
	NUMANode int    `json:"numaNode"` // -1 when the platform names none
	// Ports are the PCI bridges above the function, the topmost first; empty on a root bus.
	Ports []string `json:"ports,omitempty"`
	// Fabric is the same text on devices that have links of their own to each other; empty without such links or where
	// its definition does not say how to tell.
	Fabric string `json:"fabric,omitempty"`
	// Bound is the kernel driver bound to the function; empty when none.
	Bound string `json:"bound,omitempty"`
	// Nodes are the device nodes a container gets; empty while no driver is bound.
	Nodes []DeviceNode `json:"nodes,omitempty"`
	// Env is what a container gets with a partition, "NAME=value" each.
	Env []string `json:"env,omitempty"`
	// Serial is the device's own serial number where its definition says how to read it, or its probe program tells it.
	Serial string `json:"serial,omitempty"`
	// UUID is the name by which the vendor's own programs know it, and Model the name of the product, where they are
	// known.
	UUID  string `json:"uuid,omitempty"`
	Model string `json:"model,omitempty"`
	// Capacity are the amounts that its definition reads from files, by name; what could not be read is not there.
	Capacity map[string]int64 `json:"capacity,omitempty"`
	Health   Health           `json:"health"`
	// Withheld says why it is offered to nobody although it is well; nil when nothing withholds it.
	Withheld *Withheld `json:"withheld,omitempty"`
	// Faults are the errors that it has reported through the kernel log, by code, as far as the agent has seen them.
	Faults []Fault `json:"faults,omitempty"`
	// Metrics holds the last reading by metric name (see [MetricSource]), in the base unit of the name.
	Metrics map[string]float64 `json:"metrics,omitempty"`
	// Partitions are the parts into which the device is divided, ordered by ID, vanished ones included.
	Partitions []Accelerator `json:"partitions,omitempty"`
}

// SortByID orders accelerators. It is not slices.SortFunc, which is compiled again for each type: for one of this size
// that has 20 kB.
func SortByID(accs []Accelerator) {
	sort.Slice(accs, func(i, j int) bool { return accs[i].ID < accs[j].ID })
}

// DeviceNode is a character or block device of an accelerator.
type DeviceNode struct {
	// Path is the node as the host sees it, such as "/dev/edu0".
	Path  string `json:"path"`
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"`
}

// CountPresent returns how many of accs are on the bus.
func CountPresent(accs []Accelerator) int { return count(accs, Accelerator.Present) }

func count(accs []Accelerator, holds func(Accelerator) bool) int {
	n := 0
	for _, a := range accs {
		if holds(a) {
			n++
		}
	}
	return n
}

// DriverHave is what is true about the kernel modules of one kind.
type DriverHave struct {
	// Right is true when every wanted module is live and one that acceld may serve with, and every accelerator that is
	// present is bound to it and has its device nodes. It may be another driver than the wanted one: see Upgrade.
	Right bool `json:"right"`
	// Source is where the modules came from ("loaded", "store", "installed", "oci", "build", "bundle"); empty while not
	// known.
	Source string `json:"source,omitempty"`
	// Key is the identity of the driver in the store; empty for modules that did not come from it.
	Key     string `json:"key,omitempty"`
	Version string `json:"version,omitempty"`
	// Published is the reference under which this node published what it built, or why it could not; empty when it
	// does not publish.
	Published string         `json:"published,omitempty"`
	Modules   []LoadedModule `json:"modules,omitempty"`
	// Proven is the time of the last successful check of the definition; zero when not proven since the driver changed.
	Proven time.Time `json:"proven,omitzero"`
	// Proof is one sentence about the last successful check.
	Proof string `json:"proof,omitempty"`
	// Upgrade is the driver that is wanted instead of this one; nil when this one is.
	Upgrade *Upgrade `json:"upgrade,omitempty"`
	// Next says for kernels that are installed and not running whether the driver is ready for them, by release.
	Next map[string]Readiness `json:"next,omitempty"`
}

// Readiness is the outcome of a preflight: whether a driver is ready for a kernel before the reboot into it.
type Readiness struct {
	// Key is the driver in the store that will be loaded; empty when there is a problem.
	Key     string    `json:"key,omitempty"`
	Problem *Problem  `json:"problem,omitempty"`
	Checked time.Time `json:"checked"`
}

// RuntimeHave is what is true about the container runtime's access to one kind.
type RuntimeHave struct {
	// Applied is true when the CDI spec on disk is byte for byte the one this machine needs.
	Applied bool `json:"applied"`
	// Right are the IDs of devices and partitions that containers get rightly although Applied is false, because it is
	// others that came or went.
	Right []string `json:"right,omitempty"`
	// Unread is why the container runtime that runs ignores these files, right or not; nil when it reads them, and
	// where there is none that acceld knows.
	Unread *Problem `json:"unread,omitempty"`
	// Spec is the path of the CDI spec as the host sees it.
	Spec string `json:"spec,omitempty"`
	// Hook is the path of the OCI hook's JSON; empty where no hook is used.
	Hook string `json:"hook,omitempty"`
	// Devices are the fully qualified CDI names in the spec, such as "qemu.org/edu=0000:01:00.0".
	Devices []string `json:"devices,omitempty"`
}

// PluginHave is what is true about the kubelet's view of one kind.
type PluginHave struct {
	// Registered is true while the kubelet is connected: its ListAndWatch stream is open, or, with DRA, it has taken
	// the registration and holds its connection.
	Registered bool `json:"registered"`
	// Registrations counts successful registrations since the agent started.
	Registrations int `json:"registrations"`
	// Allocatable is how many devices the kubelet itself says can be allocated, or, with DRA, how many the API server
	// offers to the scheduler.
	Allocatable Answer[int] `json:"allocatable"`
}

// Monitoring is what is true about metrics and labels of one kind.
type Monitoring struct {
	// Collected is the time of the last complete collection; zero before the first.
	Collected time.Time `json:"collected,omitzero"`
	// Labelled is true when the API server holds the node's labels as rendered from this machine.
	Labelled bool `json:"labelled"`
	// LabelProblem says why labels wait, such as an API server that cannot be reached; empty when they do not.
	LabelProblem string `json:"labelProblem,omitempty"`
}

// ProbeHave is what is true about a probe program.
type ProbeHave struct {
	// Program is its own name and version; empty before it has spoken.
	Program string `json:"program,omitempty"`
	// Problem says why it tells nothing, or is not to be relied on; empty when it is.
	Problem string `json:"problem,omitempty"`
	// Labels are what it tells for the node.
	Labels map[string]string `json:"labels,omitempty"`
}

// Failure is a step that failed and when it is tried again.
type Failure struct {
	// Step is the step that failed.
	Step Step `json:"step"`
	Problem
	// Since is when this step first failed without a success in between.
	Since    time.Time `json:"since"`
	Attempts int       `json:"attempts"`
	// RetryAt is when the step runs again; zero when only a change of the machine can help.
	RetryAt time.Time `json:"retryAt,omitzero"`
}
