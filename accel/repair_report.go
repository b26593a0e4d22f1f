package accel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The prefixes of the node annotations by which a node and the controller agree on a repair; the kind follows.
const (
	RepairAnnotation      = "acceld.dev/repair-"
	AllowRepairAnnotation = "acceld.dev/allow-repair-"
)

// RepairReport is a node's report on devices of a kind that need a reset, in the node's annotation
// "acceld.dev/repair-<kind>": "waiting 2/8". The zero RepairReport means that no device needs a reset.
type RepairReport struct {
	Phase RepairPhase
	// Ill is how many devices need a reset and have not used up their attempts, and Devices how many there are.
	Ill, Devices int
}

// RepairPhase is what a node does about them.
type RepairPhase string

// The phases.
const (
	// RepairPhaseIll: the node waits for something else, such as the end of a pod.
	RepairPhaseIll RepairPhase = "ill"
	// RepairPhaseWaiting: the node begins when the controller allows it.
	RepairPhaseWaiting RepairPhase = "waiting"
	// RepairPhaseActing: the node is allowed to. It begins once it has read both this report and the permission in its
	// node object, and keeps the report until no device needs a repair.
	RepairPhaseActing RepairPhase = "repairing"
	// RepairPhaseUnclear: the annotation cannot be read. The node may be repairing.
	RepairPhaseUnclear RepairPhase = "unclear"
)

// maxRepairDevices is how many devices of a kind a report may count. More than a host has.
const maxRepairDevices = 4096

// String returns the text of the annotation; empty for the zero RepairReport.
func (r RepairReport) String() string {
	if r.Phase == "" {
		return ""
	}
	return fmt.Sprintf("%s %d/%d", r.Phase, r.Ill, r.Devices)
}

// ParseRepairReport parses the result of String. No text gives the zero RepairReport, and any other text gives
// RepairPhaseUnclear, with one device.
func ParseRepairReport(text string) RepairReport {
	if text == "" {
		return RepairReport{}
	}
	unclear := RepairReport{Phase: RepairPhaseUnclear, Ill: 1, Devices: 1}
	phase, counts, found := strings.Cut(text, " ")
	if len(text) > maxReport || !found {
		return unclear
	}
	r := RepairReport{Phase: RepairPhase(phase)}
	ill, devices, _ := strings.Cut(counts, "/")
	var problem, bad error
	r.Ill, problem = strconv.Atoi(ill)
	r.Devices, bad = strconv.Atoi(devices)
	known := []RepairPhase{RepairPhaseIll, RepairPhaseWaiting, RepairPhaseActing}
	if problem != nil || bad != nil || !slices.Contains(known, r.Phase) || r.Ill < 1 || r.Devices < r.Ill ||
		r.Devices > maxRepairDevices || r.String() != text {
		return unclear
	}
	return r
}

// Acts reports whether the node may be repairing devices.
func (r RepairReport) Acts() bool {
	return r.Phase == RepairPhaseActing || r.Phase == RepairPhaseUnclear
}

// MarshalText returns String.
func (r RepairReport) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText sets r to the result of [ParseRepairReport].
func (r *RepairReport) UnmarshalText(text []byte) error {
	*r = ParseRepairReport(string(text))
	return nil
}

// RepairPermit is the controller's permission to repair, in the annotation "acceld.dev/allow-repair-<kind>": "yes <time
// of the slot>". A withdrawn one leaves its time, "- <time>", as a [Grant] does.
type RepairPermit struct {
	Given bool
	Since time.Time
}

// String returns the text of the annotation; empty for the zero RepairPermit.
func (p RepairPermit) String() string {
	g := Grant{Since: p.Since}
	if p.Given {
		g.Version = "yes"
	}
	return g.String()
}

// ParseRepairPermit parses the result of String. Any other text permits nothing.
func ParseRepairPermit(text string) RepairPermit {
	g := ParseGrant(text)
	return RepairPermit{Given: g.Version == "yes" && !g.Since.IsZero(), Since: g.Since}
}
