package accel

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// MaintenanceCondition is a condition of a node that says that somebody works on it. Whoever works sets it to True, and
// to False or away at the end. Nothing locks a node, and several may work on it: Kubernetes 1.37, KEP-5683, alpha.
type MaintenanceCondition string

// The conditions.
const (
	ShutdownInProgress    MaintenanceCondition = "GracefulNodeShutdownInProgress" // the node shuts down
	MaintenanceInProgress MaintenanceCondition = "MaintenanceInProgress"          // somebody works on the node
	DrainInProgress       MaintenanceCondition = "DrainInProgress"                // pods are made to leave
	Drained               MaintenanceCondition = "Drained"                        // they have left
	MaintenancePlanned    MaintenanceCondition = "MaintenancePlanned"             // somebody will work on the node
)

// MaintenanceConditions returns all conditions, the one that says most first.
func MaintenanceConditions() []MaintenanceCondition {
	return []MaintenanceCondition{
		ShutdownInProgress, MaintenanceInProgress, DrainInProgress, Drained, MaintenancePlanned,
	}
}

// Maintenance is such a condition of somebody else that is True.
type Maintenance struct {
	Condition MaintenanceCondition `json:"condition"`
	// Reason and Message are as its writer gave them, bounded and of plain characters.
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// RawCondition is a condition of a node as somebody wrote it.
type RawCondition struct {
	Type, Status, Reason, Message string
	Since                         time.Time
}

// The reasons of acceld's own conditions. All begin with [ownReason].
const (
	OwnUpgrade = ownReason + "Upgrade"
	OwnRepair  = ownReason + "Repair"

	ownReason = "Acceld"
)

// Own reports whether acceld wrote the condition, in this version or another.
func (c RawCondition) Own() bool { return strings.HasPrefix(c.Reason, ownReason) }

const (
	maxMaintenanceReason  = 64  // bytes
	maxMaintenanceMessage = 200 // bytes
)

// ParseMaintenance returns what somebody else says about work on the node, in the order of [MaintenanceConditions].
// Whoever may write the status of the node has written it: it is bounded here.
func ParseMaintenance(all []RawCondition) []Maintenance {
	var out []Maintenance
	for _, condition := range MaintenanceConditions() {
		i := slices.IndexFunc(all, func(c RawCondition) bool {
			return c.Type == string(condition) && c.Status == "True" && !c.Own()
		})
		if i < 0 {
			continue
		}
		m := Maintenance{
			Condition: condition, Reason: all[i].Reason, Message: shortLine(all[i].Message), Since: all[i].Since.UTC(),
		}
		if len(m.Reason) > maxMaintenanceReason || strings.ContainsFunc(m.Reason, func(r rune) bool {
			return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-.:", r)
		}) {
			m.Reason = "Unclear"
		}
		out = append(out, m)
	}
	return out
}

// shortLine returns text of somebody else as one line of printable characters.
func shortLine(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), 4*maxMaintenanceMessage)], "")
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxMaintenanceMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMaintenanceMessage], "") + "…"
}

// String is for people: `node is under maintenance: reason FanReplacement by condition MaintenanceInProgress since
// 2026-03-04T12:00:00Z ("rack 7")`.
func (m Maintenance) String() string {
	text := "node is under maintenance"
	switch m.Condition {
	case MaintenancePlanned:
		text = "maintenance of the node is planned"
	case ShutdownInProgress:
		text = "node shuts down"
	case MaintenanceInProgress, DrainInProgress, Drained:
	}
	reason := "no reason"
	if m.Reason != "" {
		reason = "reason " + m.Reason
	}
	text = fmt.Sprintf("%s: %s by condition %s", text, reason, m.Condition)
	if !m.Since.IsZero() {
		text += " since " + m.Since.Format(time.RFC3339)
	}
	if m.Message != "" {
		text += fmt.Sprintf(" (%q)", m.Message)
	}
	return text
}

// Unavailable reports whether the node counts as one without accelerators. While maintenance is only planned, it has
// them.
func (m Maintenance) Unavailable() bool { return m.Condition != MaintenancePlanned }

// NodeWork is work of acceld on a node that ends workloads, or takes a device or a driver away.
type NodeWork string

// The kinds of work.
const (
	// UpgradeWork replaces a driver that works. Planned maintenance keeps it from beginning: the node would be taken
	// out of service twice.
	UpgradeWork NodeWork = "upgrade"
	// RepairWork resets a device that needs it. Nobody can use such a device, and maintenance that is planned may be
	// days away: it is repaired meanwhile.
	RepairWork NodeWork = "repair"
)

// Hinders returns the first of the conditions that keeps acceld from beginning the work; nil if none does. Those in
// ignore do not count.
func Hinders(all []Maintenance, work NodeWork, ignore []MaintenanceCondition) *Maintenance {
	for _, m := range all {
		planned := m.Condition == MaintenancePlanned
		if !slices.Contains(ignore, m.Condition) && (!planned || work == UpgradeWork) {
			return &m
		}
	}
	return nil
}

// IgnoreProblems returns the errors in conditions that somebody wants to be ignored, each as "<field>: <sentence>".
func IgnoreProblems(ignore []MaintenanceCondition) (out []string) {
	for i, c := range ignore {
		if text := NotOneOf(c, MaintenanceConditions()...); text != "" {
			out = append(out, fmt.Sprintf("ignoreConditions[%d]: %s", i, text))
		}
	}
	return out
}
