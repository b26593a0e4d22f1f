package accel

import "time"

// State is how far one kind of accelerator has come from a bare kernel to a monitored, schedulable device. The state
// table of package agent lists the order, the allowed transitions and the published names.
type State string

// The states, from nothing to everything.
const (
	// Absent: no PCI function of this kind is on the host, and none is remembered.
	Absent State = "absent"
	// DriverMissing: a device is present, but the right kernel modules are not loaded or not bound to every device.
	DriverMissing State = "driver-missing"
	// DriverUnproven: modules are live, devices bound and nodes present, but the definition's check has not passed
	// yet.
	DriverUnproven State = "driver-unproven"
	// RuntimeMissing: the driver works, but containers cannot get the devices yet.
	RuntimeMissing State = "runtime-missing"
	// PluginMissing: containers could use the devices, but the kubelet does not know them yet.
	PluginMissing State = "plugin-missing"
	// KubeletPending: the kubelet is connected, but its own view does not match the healthy devices yet.
	KubeletPending State = "kubelet-pending"
	// Unwatched: the devices are schedulable (or, without a kubelet, usable), but metrics or labels have not been
	// collected and read back yet.
	Unwatched State = "unwatched"
	// Ready: everything is true.
	Ready State = "ready"
)

// States returns all states, in the order in which a kind passes through them.
func States() []State {
	return []State{
		Absent, DriverMissing, DriverUnproven, RuntimeMissing, PluginMissing, KubeletPending, Unwatched, Ready,
	}
}

// arrival is how long after the start of the agent people wait for word of a kind that is still on its way, such as
// during a build.
const arrival = 10 * time.Second

// Arrived reports whether it is time to say where a kind is after the start of the agent: it is ready, not there or
// blocked, or it takes long. Before that, all of its states and the health of all its devices change.
func Arrived(s Status, sinceStart time.Duration) bool {
	return s.State == Ready || s.State == Absent || s.Blocked != nil || sinceStart >= arrival
}

// Done names what is done once a kind has left the state, for a list of steps; empty for absent and ready.
func (s State) Done() string {
	switch s {
	case DriverMissing:
		return "Driver"
	case DriverUnproven:
		return "Self-test"
	case RuntimeMissing:
		return "Containers"
	case PluginMissing:
		return "Kubelet"
	case KubeletPending:
		return "Allocatable"
	case Unwatched:
		return "Monitoring"
	case Absent, Ready:
	}
	return ""
}

// Step is the next thing to do for a kind.
type Step string

// The steps. Package agent/loop runs them.
const (
	StepNone     Step = ""         // nothing to do
	StepDriver   Step = "driver"   // load the right modules and bind the devices
	StepUpgrade  Step = "upgrade"  // replace the current driver with the configured one
	StepProve    Step = "prove"    // run the definition's check on every accelerator
	StepRuntime  Step = "runtime"  // write the CDI spec and, if configured, the hook
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
	// PhaseUnchecked is the ready of a driver that nothing has proven: its definition has no check.
	PhaseUnchecked Phase = "unchecked"
)

// Reached reports whether the state is reached, proven or not.
func (p Phase) Reached() bool { return p == PhaseReady || p == PhaseUnchecked }

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
	// Next is the step that would leave State; empty if the kind is ready or absent, or nothing can be done.
	Next Step `json:"next,omitempty"`
	// Since is when State was entered.
	Since time.Time `json:"since"`
	// Blocked says why State is not left; nil if it is not blocked.
	Blocked *Failure `json:"blocked,omitempty"`
	// Sentence tells people the status and what happens next.
	Sentence string `json:"sentence"`
	// Published is the phase of each published state that applies to this host.
	Published map[Published]Phase `json:"published,omitempty"`
	// Took is how long each earlier state lasted the last time.
	Took map[State]time.Duration `json:"took,omitempty"`
}

// PublishedStates returns the published states that every kind has, in the order in which a node reaches them.
func PublishedStates() []Published {
	return []Published{DriverContainer, RuntimeEnablement, DevicePlugin, DeviceMonitoring, FeatureDiscovery}
}
