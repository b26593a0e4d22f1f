package accel

import "time"

// State is where one kind of accelerator stands on the way from a bare kernel to a watched, schedulable device.
// The order, the allowed edges and the published names are rows of agent's state table.
type State string

// The states, from nothing to everything.
const (
	// Absent: no PCI function of this kind is on the host, and none is remembered.
	Absent State = "absent"
	// DriverMissing: a device is there, the right kernel modules are not, or they are not bound to every device.
	DriverMissing State = "driver-missing"
	// DriverUnproven: modules live, devices bound, nodes there; the definition's check has not passed since.
	DriverUnproven State = "driver-unproven"
	// RuntimeMissing: the driver works; containers cannot be given the devices yet.
	RuntimeMissing State = "runtime-missing"
	// PluginMissing: containers could use the devices; the kubelet does not know them yet.
	PluginMissing State = "plugin-missing"
	// KubeletPending: the kubelet is connected; its own view does not yet equal the healthy devices.
	KubeletPending State = "kubelet-pending"
	// Unwatched: schedulable (or, without a kubelet, usable); metrics or labels have not been collected and read back.
	Unwatched State = "unwatched"
	// Ready: everything is true.
	Ready State = "ready"
)

// Step is the one thing to do next for a kind.
type Step string

// The steps. Package agent/loop runs them.
const (
	StepNone     Step = ""         // nothing to do
	StepDriver   Step = "driver"   // make the right modules present and bound
	StepUpgrade  Step = "upgrade"  // replace the driver that serves by the one that is wanted
	StepProve    Step = "prove"    // run the definition's check on every accelerator
	StepRuntime  Step = "runtime"  // write the CDI spec and, where wanted, the hook
	StepRegister Step = "register" // register with the kubelet
	StepAwait    Step = "await"    // wait for the kubelet's own view to equal ours
	StepMonitor  Step = "monitor"  // first complete collection, labels read back
	StepWithdraw Step = "withdraw" // no device is left: take back what was published
)

// Phase is the value of a published state label.
type Phase string

// The phases of a published state.
const (
	PhaseReady   Phase = "ready"
	PhasePending Phase = "pending"
	PhaseFailed  Phase = "failed"
)

// Published is a state that the cluster sees, as a label "acceld.dev/<published>-<kind>".
type Published string

// The published states, in order. The last two are reached in parallel.
const (
	DriverContainer   Published = "driver-container"
	RuntimeEnablement Published = "runtime-enablement"
	DevicePlugin      Published = "device-plugin"
	DeviceMonitoring  Published = "device-monitoring"
	FeatureDiscovery  Published = "device-feature-discovery"
)

// Status is the verdict about one kind, derived by agent.Next.
type Status struct {
	State State `json:"state"`
	// Next is the step that would leave State; empty when ready, absent or nothing can be done.
	Next Step `json:"next,omitempty"`
	// Since is when State was entered.
	Since time.Time `json:"since"`
	// Blocked says why State is not left; nil when it is not blocked.
	Blocked *Failure `json:"blocked,omitempty"`
	// Sentence is for people: what is true, and what happens next.
	Sentence string `json:"sentence"`
	// Published is the phase of each published state that applies to this host.
	Published map[Published]Phase `json:"published,omitempty"`
	// Took is how long each state on the way lasted the last time it was passed.
	Took map[State]time.Duration `json:"took,omitempty"`
}
