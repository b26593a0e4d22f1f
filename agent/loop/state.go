// Package loop is the loop of one host: it observes the machine, decides with one pure function ([Next]) and runs
// one step per kind of accelerator at a time. It may not know a vendor, touch the machine except through the packages
// below it, or remember a state that it could derive.
package loop

import (
	"slices"

	"github.com/acceld/acceld/accel"
)

// row is one state: which step leaves it, and which published states show it.
type row struct {
	state accel.State
	// passed reports whether the kind is past this state.
	passed func(accel.Machine, accel.Have) bool
	// reached reports the same but for the definition's own states that follow those in shows; see gated.
	reached func(accel.Machine, accel.Have) bool
	// applies is nil for states that every host has; see on.
	applies func(accel.Machine) bool
	step    accel.Step
	// shows are the published states that are pending or failed while a kind is in this state.
	shows []accel.Published
	// means and gate are the texts of docs/states.md: what the state means, and what validates leaving it.
	means, gate string
}

// on reports whether a machine has the state.
func (r row) on(m accel.Machine) bool { return r.applies == nil || r.applies(m) }

// table returns the states in order. A kind is in the first row that applies and is not passed.
func table() []row {
	served := func(m accel.Machine) bool { return m.Want.Kubernetes }
	return gated([]row{
		{
			state: accel.Absent, step: accel.StepWithdraw,
			passed: func(_ accel.Machine, h accel.Have) bool { return accel.CountPresent(h.Accelerators) > 0 },
			means:  "no device of this kind is on the host",
			gate:   "a PCI function that the definition recognises",
		},
		{
			state: accel.DriverMissing, step: accel.StepDriver, shows: []accel.Published{accel.DriverContainer},
			passed: func(_ accel.Machine, h accel.Have) bool { return h.Driver.Serves },
			means:  "the right kernel modules are not loaded, or not bound to every device",
			gate:   "modules live and the chosen ones, devices bound, device nodes there",
		},
		{
			state: accel.DriverUnproven, step: accel.StepProve, shows: []accel.Published{accel.DriverContainer},
			passed: func(_ accel.Machine, h accel.Have) bool { return h.Driver.PastCheck() },
			means:  "the driver is there; the devices have not computed yet",
			gate:   "the definition's check: a real computation on every healthy device; without a check nothing is proven, and the kind is unchecked",
		},
		{
			state: accel.RuntimeMissing, step: accel.StepRuntime, shows: []accel.Published{accel.RuntimeEnablement},
			passed: published,
			means:  "the devices work; containers cannot be given them yet",
			gate:   "the CDI spec read back with the runtime's own rules, byte for byte the one wanted, and the kubelet's container runtime reads it",
		},
		{
			state: accel.PluginMissing, step: accel.StepRegister, applies: served,
			shows:  []accel.Published{accel.DevicePlugin},
			passed: func(_ accel.Machine, h accel.Have) bool { return h.Plugin.Registered },
			means:  "the kubelet does not know the resource yet",
			gate:   "the kubelet's ListAndWatch stream is open; with DRA, it has taken the registration and is connected",
		},
		{
			state: accel.KubeletPending, step: accel.StepAwait, applies: served,
			shows: []accel.Published{accel.DevicePlugin},
			passed: func(_ accel.Machine, h accel.Have) bool {
				return drains(h) || h.Plugin.Allocatable.Is(accel.CountOffered(accel.Units(h.Accelerators)))
			},
			means: "the kubelet is connected; its own view differs from the devices that are offered",
			gate:  "allocatable, asked of the kubelet, equals the devices that are offered; with DRA, the devices without taint in the slices that were read back do",
		},
		{
			state: accel.Unwatched, step: accel.StepMonitor,
			shows: []accel.Published{accel.DeviceMonitoring, accel.FeatureDiscovery},
			passed: func(m accel.Machine, h accel.Have) bool {
				return !h.Monitoring.Collected.IsZero() && (h.Monitoring.Labelled || !m.Want.Labels)
			},
			means: "usable; metrics or labels are not there yet",
			gate:  "a first complete collection; labels read back from the API server",
		},
		{
			state: accel.Ready, step: accel.StepNone,
			passed: func(accel.Machine, accel.Have) bool { return false },
			means:  "everything is true",
			gate:   "every gate above, again at each event",
		},
	})
}

// published is the gate of runtime-missing. Without a kubelet, it is unknown whether the runtime that was found is in
// use. So a runtime that reads no CDI specs does not keep such a host from ready; the status reports it.
func published(m accel.Machine, h accel.Have) bool {
	return h.Runtime.Applied && (h.Runtime.NotHonored == nil || !m.Want.Kubernetes)
}

// drains reports whether no device is offered because the driver is about to be replaced: allocatable falls to zero and
// comes back.
func drains(h accel.Have) bool {
	u := h.Driver.Upgrade
	return u != nil && (u.Phase == accel.UpgradeDraining || u.Phase == accel.UpgradeReplacing)
}

// rank returns the index of s in the table, -1 for a state that is not in it.
func rank(s accel.State) int {
	return slices.IndexFunc(table(), func(r row) bool { return r.state == s })
}

// Allowed reports whether a kind may go from one state to another in one transition: one state forward (skipping
// states that do not apply to the host), or back to any earlier one, because what a gate validated can be undone at
// any time.
func Allowed(m accel.Machine, from, to accel.State) bool {
	a, b := rank(from), rank(to)
	if a < 0 || b < 0 || a == b {
		return false
	}
	return b < a || !slices.ContainsFunc(table()[a+1:b], func(r row) bool { return r.on(m) })
}

// route returns the transitions from one state to another. Each is allowed: this observation validated every gate in
// between, so the kind passes them in order.
func route(m accel.Machine, from, to accel.State) []accel.State {
	a, b := rank(from), rank(to)
	if b <= a {
		return []accel.State{to}
	}
	var states []accel.State
	for _, r := range table()[a+1 : b+1] {
		if r.on(m) {
			states = append(states, r.state)
		}
	}
	return states
}

// StateRow is a row of the state table, as pages and pictures show it.
type StateRow struct {
	State accel.State
	// Means says what the state means, and Gate what validates leaving it.
	Means, Gate string
	// Step is what leaves the state.
	Step accel.Step
	// Shows are the published states that are pending or failed while a kind is in this state.
	Shows []accel.Published
	// Kubelet reports whether only hosts with a kubelet have the state.
	Kubelet bool
}

// States returns the state table in order. docs/states.md and its picture are generated from it.
func States() []StateRow {
	var rows []StateRow
	for _, r := range table() {
		rows = append(rows, StateRow{r.state, r.means, r.gate, r.step, r.shows, !r.on(accel.Machine{})})
	}
	return rows
}
