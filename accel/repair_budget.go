package accel

import (
	"fmt"
	"strings"
	"time"
)

// RepairBudget limits how nodes repair devices of the kinds of a policy. A node asks before it evicts pods from a
// device or resets it, and the controller allows it to so many nodes at a time.
type RepairBudget struct {
	// MaxParallel is how many nodes may repair devices at a time, such as 3 or "2%"; 1 when empty.
	MaxParallel Portion `json:"maxParallel,omitempty"`
	// MaxDevices is how many devices may be under repair at a time: those that need a reset, on the nodes that may
	// repair. Empty sets no such limit. One node is always allowed, and a device that becomes ill on a node that
	// already repairs is repaired with the others.
	MaxDevices Portion `json:"maxDevices,omitempty"`
	// Domain is a label of nodes that fail together, such as a rack's; without it there are no domains. A node without
	// the label is alone.
	Domain string `json:"domain,omitempty"`
	// MaxPerDomain is how many nodes of a domain may repair devices at a time; 1 when 0.
	MaxPerDomain int `json:"maxPerDomain,omitempty"`
	// Breaker is how many nodes may have devices that need a reset at once, such as 20 or "10%", which is the default
	// and at least 2. If there are more, no other node begins: the cause is hardly the devices. It counts nodes, so
	// that one that reports nonsense counts once. Nor does a node begin if most nodes of its domain, and more than one,
	// have such devices. With "100%" neither holds.
	Breaker Portion `json:"breaker,omitempty"`
	// Timeout is how long a node counts that repairs devices, such as "30m"; "1h" when empty. After that it may go on,
	// and others may begin: its pods may have disruption budgets that never let them go.
	Timeout string `json:"timeout,omitempty" form:"duration"`
	// Windows are the times in which nodes may begin; empty means always.
	Windows []RolloutWindow `json:"windows,omitempty"`
	// Paused keeps further nodes from beginning.
	Paused bool `json:"paused,omitempty"`
}

// NoRepairBreaker lets nodes repair devices however many need it.
const NoRepairBreaker = Portion("100%")

// The defaults of [RepairBudget].
const (
	repairBreaker    = Portion("10%")
	minRepairBreaker = 2 // nodes
	repairTimeout    = time.Hour
)

// Trips returns how many of the nodes may have devices that need a reset at once.
func (b RepairBudget) Trips(nodes int) int {
	if b.Breaker == "" {
		return max(minRepairBreaker, repairBreaker.Of(nodes))
	}
	return b.Breaker.Of(nodes)
}

// Counts returns how long a node counts that repairs devices.
func (b RepairBudget) Counts() time.Duration {
	d, err := time.ParseDuration(b.Timeout)
	if err != nil { // it is empty, or was validated
		return repairTimeout
	}
	return d
}

func (b RepairBudget) problems() []string {
	var out []string
	for _, p := range []struct {
		field string
		value Portion
	}{{"maxParallel", b.MaxParallel}, {"maxDevices", b.MaxDevices}, {"breaker", b.Breaker}} {
		if p.value != "" && p.value.Of(100) == 0 {
			out = append(out, fmt.Sprintf("%s: %q is neither a number of at least 1 nor a share such as 25%%", p.field,
				p.value))
		}
	}
	if b.MaxPerDomain < 0 || b.MaxPerDomain > 0 && b.Domain == "" {
		out = append(out, fmt.Sprintf("maxPerDomain: %d needs the label of a domain, and at least 1", b.MaxPerDomain))
	}
	if strings.ContainsAny(b.Domain, " \t\n") {
		out = append(out, fmt.Sprintf("domain: %q is not the key of a label", b.Domain))
	}
	out = append(out, durationProblem("timeout", b.Timeout, time.Second, "30m")...)
	for i, w := range b.Windows {
		out = append(out, under(fmt.Sprintf("windows[%d].", i), w.problems())...)
	}
	return out
}
