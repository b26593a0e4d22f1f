package accel

import (
	"slices"
	"sort"
	"time"
)

// Machine is one immutable snapshot of an accelerator host. See the package comment.
type Machine struct {
	// Taken is when the snapshot was taken; zero until the host has been read for the first time.
	Taken time.Time `json:"taken"`
	// Agent is the agent that took it.
	Agent Agent `json:"agent"`
	Facts Facts `json:"facts"`
	Want  Want  `json:"want"`
	// Have is what is true now, by kind.
	Have map[string]Have `json:"have,omitempty"`
	// Status is the verdict for each kind.
	Status map[string]Status `json:"status,omitempty"`
}

// Agent identifies the running agent.
type Agent struct {
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Node is the Kubernetes node name, or the host name on bare metal.
	Node string `json:"node"`
	// Problems are the parts of the agent that do not work now, ordered by name. Each is tried again.
	Problems []PartProblem `json:"problems,omitempty"`
}

// PartProblem is why a part of the agent does not work.
type PartProblem struct {
	Part string `json:"part"` // such as "local port"
	Problem
}

// Have is what is true now about one kind of accelerator.
type Have struct {
	// Accelerators are the devices of this kind, ordered by ID, vanished ones included.
	Accelerators []Accelerator `json:"accelerators,omitempty"`
	Driver       DriverHave    `json:"driver"`
	Runtime      RuntimeHave   `json:"runtime"`
	Plugin       PluginHave    `json:"plugin"`
	Monitoring   Monitoring    `json:"monitoring"`
	// StepsLeft lists the published states whose After steps in the definition have not completed with the live
	// driver.
	StepsLeft []Published `json:"stepsLeft,omitempty"`
	// StatesLeft lists the definition's own states that are not reached with the live driver, by the published state
	// that they follow.
	StatesLeft map[Published][]Published `json:"statesLeft,omitempty"`
	// Probe is the status of the definition's probe program; nil if it has none.
	Probe *ProbeHave `json:"probe,omitempty"`
	// Contested says which devices other kinds recognise too, and who has them; nil if there are none.
	Contested *Problem `json:"contested,omitempty"`
	// SharedNode says which devices resolve to the same device node; nil if there are none.
	SharedNode *Problem `json:"sharedNode,omitempty"`
	// Work is the work on the kind's driver that is in progress. The stage that began last comes last.
	Work []Progress `json:"work,omitempty"`
	// Failure is the last failed step that has not succeeded since; nil when none.
	Failure *Failure `json:"failure,omitempty"`
	// UpgradeReport is the node's report about an upgrade that a cluster policy orders. While it is unknown, the last
	// report stays valid.
	UpgradeReport Answer[UpgradeReport] `json:"upgradeReport,omitzero"`
	// RepairReport is the node's report about devices whose repair a cluster policy limits. While it is unknown, the
	// last report stays valid.
	RepairReport Answer[RepairReport] `json:"repairReport,omitzero"`
	// RepairAllowed is whether that policy lets the node repair devices now, and knows that it begins.
	RepairAllowed bool `json:"repairAllowed,omitempty"`
	// ServedDigest is [UpgradePolicy.Digest] of the policy whose driver serves: the last one for which no upgrade was
	// wanted. While it is unknown, the last one stays valid.
	ServedDigest Answer[string] `json:"servedDigest,omitzero"`
}

// Warnings are the problems of a kind that do not block it, but that somebody has to look at.
func (h Have) Warnings() []*Problem {
	return slices.DeleteFunc([]*Problem{h.Contested, h.SharedNode, h.Runtime.LibraryMissing, h.Plugin.NotAhead},
		func(p *Problem) bool { return p == nil })
}

// Accelerator is a device that a definition recognises, or a partition of one.
type Accelerator struct {
	// ID is the PCI address, such as "0000:01:00.0", or that of [Subsystem.Address]; for a partition see [PartitionID].
	ID string `json:"id"`
	// Parent is the ID of a partition's device, and Profile is the kind of partition; both are empty for a device.
	Parent   string `json:"parent,omitempty"`
	Profile  string `json:"profile,omitempty"`
	NUMANode int    `json:"numaNode"` // -1 if the platform does not report one
	// Ports are the PCI bridges above the function, the topmost first; empty on a root bus. For a device of another
	// subsystem the last one is the PCI function that it is on or below.
	Ports []string `json:"ports,omitempty"`
	// Fabric is the same text on devices that have direct links to each other; empty if there are no such links, or
	// the definition does not say how to find them.
	Fabric string `json:"fabric,omitempty"`
	// Bound is the kernel driver bound to the function; empty when none.
	Bound string `json:"bound,omitempty"`
	// Switched says that the device is given out with another driver than its kind's, or is on the way there or back;
	// nil if not.
	Switched *Switched `json:"switched,omitempty"`
	// Divided says that acceld has divided the device for claims, or is about to, or makes it whole again; nil if not.
	Divided *Divided `json:"divided,omitempty"`
	// Nodes are the device nodes that a container gets; empty while no driver is bound.
	Nodes []DeviceNode `json:"nodes,omitempty"`
	// Bare is true for a device with which a container gets nothing, neither a node nor anything else: it is not in the
	// CDI spec of its kind.
	Bare bool `json:"bare,omitempty"`
	// Beside are the paths of the device nodes of network functions beside the device that a container gets with it.
	Beside []string `json:"beside,omitempty"`
	// Env is what a container gets with a partition, "NAME=value" each.
	Env []string `json:"env,omitempty"`
	// Serial is the device's own serial number, if its definition says how to read it or its probe program reports
	// it.
	Serial string `json:"serial,omitempty"`
	// UUID is the name by which the vendor's own tools identify the device, and Model is the product name; empty if
	// unknown.
	UUID  string `json:"uuid,omitempty"`
	Model string `json:"model,omitempty"`
	// Capacity holds the amounts that the definition reads from files, by name; an amount that could not be read is
	// absent.
	Capacity map[string]int64 `json:"capacity,omitempty"`
	Health   Health           `json:"health"`
	// Withheld says why a usable device is not offered; nil if nothing withholds it.
	Withheld *Withheld `json:"withheld,omitempty"`
	// Handover says who has had the device since it was cleaned; nil if its kind is passed on without care.
	Handover *HandoverHave `json:"handover,omitempty"`
	// Repair says what acceld does by itself about a device that needs a reset; nil if nothing.
	Repair *RepairHave `json:"repair,omitempty"`
	// Settings are what is configured about the device, and how far the device has it.
	Settings []SettingHave `json:"settings,omitempty"`
	// Unrequested says who uses the device or a partition of it although nobody gave it to them; nil if nobody looks.
	Unrequested *UnrequestedHave `json:"unrequested,omitempty"`
	// Use says what each user uses of the device or a partition of it; nil if its driver does not tell.
	Use *UseHave `json:"use,omitempty"`
	// Faults are the errors that it has reported through the kernel log, by code, as far as the agent has seen them.
	Faults []Fault `json:"faults,omitempty"`
	// Recorded is how many faults of the device are on record, over restarts of the agent, reboots and slots.
	Recorded int `json:"recorded,omitempty"`
	// Metrics holds the last reading by metric name (see [MetricSource]), in the base unit of the name.
	Metrics map[string]float64 `json:"metrics,omitempty"`
	// Partitions are the partitions of the device, ordered by ID, vanished ones included.
	Partitions []Accelerator `json:"partitions,omitempty"`
}

// SortByID sorts accelerators by ID. It does not use slices.SortFunc, which is compiled separately for each type: 20
// kB for a type of this size.
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

// DriverHave is the current status of the kernel modules of one kind.
type DriverHave struct {
	// Serves is true when every configured module is live in a version that acceld may serve with, and every
	// accelerator that is present is bound to the driver and has its device nodes. The driver may differ from the
	// configured one: see Upgrade.
	Serves bool `json:"serves"`
	// Source is where the modules came from ("loaded", "store", "installed", "oci", "build", "bundle"); empty while
	// unknown.
	Source string `json:"source,omitempty"`
	// Key identifies the driver in the store; empty for modules that did not come from the store.
	Key     string `json:"key,omitempty"`
	Version string `json:"version,omitempty"`
	// UserSpace is the user space that serves with the modules; nil if the kind has none, or while there is none of the
	// modules' version.
	UserSpace *UserSpaceHave `json:"userSpace,omitempty"`
	// Companions are the driver's daemons that this host needs.
	Companions []CompanionHave `json:"companions,omitempty"`
	// Published is the reference under which this node published what it built, or why it could not; empty if it does
	// not publish.
	Published string         `json:"published,omitempty"`
	Modules   []LoadedModule `json:"modules,omitempty"`
	// Proven is the time of the last successful check of the definition; zero if none has succeeded since the driver
	// changed, and for a definition without a check.
	Proven time.Time `json:"proven,omitzero"`
	// Proof is one sentence about the last successful check.
	Proof string `json:"proof,omitempty"`
	// Unchecked is true while the driver serves and nothing has proven that the devices compute: its definition has no
	// check, or it could not take place. The devices are offered.
	Unchecked bool `json:"unchecked,omitempty"`
	// ProofSkipped says why the check of devices did not take place, such as a library that the host does not have. It
	// is empty if every device was checked, and if there is no check.
	ProofSkipped string `json:"proofSkipped,omitempty"`
	// Upgrade is the pending replacement of this driver by the configured one; nil when they are the same.
	Upgrade *Upgrade `json:"upgrade,omitempty"`
	// Next says, by release, whether the driver is ready for each kernel that is installed but not running.
	Next map[string]Readiness `json:"next,omitempty"`
}

// UserSpaceHave is a user space in the store.
type UserSpaceHave struct {
	Key string `json:"key"`
	// Origin is where it came from: the reference of an image, or a directory of the host.
	Origin string `json:"origin"`
}

// WhyUnchecked tells people why nothing has proven the devices; empty if they are proven, or not yet.
func (d DriverHave) WhyUnchecked() string {
	switch {
	case !d.Unchecked:
		return ""
	case d.ProofSkipped != "":
		return "unchecked: " + d.ProofSkipped
	}
	return "unchecked: its definition has no check"
}

// PastCheck reports whether no self-test keeps the kind back: it has passed, or nothing can be proven.
func (d DriverHave) PastCheck() bool { return !d.Proven.IsZero() || d.Unchecked }

// Readiness is the outcome of a preflight: whether a driver is ready for a kernel before the reboot into it.
type Readiness struct {
	// Key identifies the driver in the store that will be loaded; empty if there is a problem.
	Key     string    `json:"key,omitempty"`
	Problem *Problem  `json:"problem,omitempty"`
	Checked time.Time `json:"checked"`
}

// RuntimeHave is the current status of the container runtime's access to one kind.
type RuntimeHave struct {
	// Applied is true when the CDI spec on disk is byte for byte the one that this machine needs.
	Applied bool `json:"applied"`
	// AppliedTo lists the IDs of devices and partitions whose nodes containers get although Applied is false: other
	// devices came or went, or the configuration has changed since.
	AppliedTo []string `json:"appliedTo,omitempty"`
	// NotHonored is why the running container runtime ignores these files, correct or not. It is nil if the runtime
	// reads them, or if acceld knows of no runtime.
	NotHonored *Problem `json:"notHonored,omitempty"`
	// LibraryMissing says which user-space libraries that every container needs are not there although the driver is
	// loaded; nil if all are.
	LibraryMissing *Problem `json:"libraryMissing,omitempty"`
	// Spec is the path of the CDI spec as the host sees it; empty if none is there and none is needed.
	Spec string `json:"spec,omitempty"`
	// Hook is the path of the OCI hook's JSON file; empty if no hook is used.
	Hook string `json:"hook,omitempty"`
	// Devices are the fully qualified CDI names in the spec, such as "qemu.org/edu=0000:01:00.0".
	Devices []string `json:"devices,omitempty"`
}

// PluginHave is the current status of one kind in the kubelet.
type PluginHave struct {
	// Registered is true while the kubelet is connected: its ListAndWatch stream is open or, with DRA, it has
	// accepted the registration and keeps its connection open.
	Registered bool `json:"registered"`
	// Registrations counts successful registrations since the agent started.
	Registrations int `json:"registrations"`
	// Allocatable is how many devices the kubelet itself reports as allocatable or, with DRA, how many the API server
	// offers to the scheduler.
	Allocatable Answer[int] `json:"allocatable"`
	// NotAhead says why parts are not made before pods are bound, although the definition asks for that; nil if they
	// are, or need not be. The kubelet then asks for them.
	NotAhead *Problem `json:"notAhead,omitempty"`
}

// Monitoring is the current status of metrics and labels of one kind.
type Monitoring struct {
	// Collected is the time of the last complete collection; zero before the first.
	Collected time.Time `json:"collected,omitzero"`
	// Labelled is true when the API server holds the node's labels as rendered from this machine.
	Labelled bool `json:"labelled"`
	// LabelProblem says why labels are not written, such as an unreachable API server; empty if they are.
	LabelProblem string `json:"labelProblem,omitempty"`
}

// ProbeHave is the current status of a probe program.
type ProbeHave struct {
	// Program is the name and version that it reports; empty before its first line.
	Program string `json:"program,omitempty"`
	// Problem says why it reports nothing, or why its reports are unreliable; empty if all is well.
	Problem string `json:"problem,omitempty"`
	// Labels are the node labels that it reports.
	Labels map[string]string `json:"labels,omitempty"`
}

// Failure is a failed step, with the time of its retry.
type Failure struct {
	// Step is the step that failed.
	Step Step `json:"step"`
	Problem
	// Since is when this step first failed without succeeding in between.
	Since    time.Time `json:"since"`
	Attempts int       `json:"attempts"`
	// RetryAt is when the step runs again; zero if only a change of the machine can help.
	RetryAt time.Time `json:"retryAt,omitzero"`
}
