// Package loop is the loop of one host: it observes the machine, decides with one pure function ([Next]) and runs
// one step per kind of accelerator at a time. It may not know a vendor, touch the machine except through the packages
// below it, or remember a state that it could derive.
package loop

import (
	"fmt"
	"slices"
	"strings"

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

// StatesMarkdown renders the state table as docs/states.md: a diagram and a table.
func StatesMarkdown() string {
	var b strings.Builder
	b.WriteString("# States\n\nGenerated from the state table of package agent/loop; do not edit.\n\n")
	b.WriteString(
		"Each kind of accelerator walks this way on its own. A state is derived from what is true now, never remembered.\n\n")
	b.WriteString("```mermaid\nstateDiagram-v2\n    [*] --> " + id(accel.Absent) + "\n")
	rows := table()
	for i, r := range rows[:len(rows)-1] {
		fmt.Fprintf(&b, "    %s --> %s: %s\n", id(r.state), id(rows[i+1].state), r.gate)
	}
	fmt.Fprintf(&b, "    %s --> %s: no kubelet on the host\n", id(accel.RuntimeMissing), id(accel.Unwatched))
	b.WriteString("    note right of " + id(accel.Ready) +
		": from every state back to any earlier one, as soon as its gate is no longer true\n```\n\n")
	b.WriteString(
		"| state | means | step that leaves it | left when (validated) | published state |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		shows := make([]string, len(r.shows))
		for i, p := range r.shows {
			shows[i] = "`" + string(p) + "`"
		}
		step := "none"
		if r.step != accel.StepNone {
			step = "`" + string(r.step) + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.state, r.means, step, r.gate, strings.Join(shows, ", "))
	}
	b.WriteString(
		"\nA published state is `ready` when every state that shows it is passed, `failed` when the kind is blocked in one of them, `pending` otherwise. " +
			"`driver-container` is `unchecked` instead of `ready` if the definition has no check: " +
			"the devices are offered like others, and nothing has proven that they compute. The label is `acceld.dev/<published state>-<kind>`. " +
			"A definition may have [states of its own](definitions.md#states-of-your-own) after any of these: the published state is then `ready`, and the next one waits for them.\n")
	return b.String()
}

func id(s accel.State) string { return strings.ReplaceAll(string(s), "-", "_") }
