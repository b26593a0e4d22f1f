package accel

import (
	"cmp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// UpgradeReport is a node's report on an upgrade that a policy orders, in the node's annotation
// "acceld.dev/upgrade-<kind>": "waiting 2.0.0", "upgrading 2.0.0" or "failed 2.0.0 RolledBack". The zero UpgradeReport
// means that it reports nothing.
type UpgradeReport struct {
	Phase ReportPhase
	// Version is the version that the node should get: the driver's, or a substitute for a driver without one.
	Version string
	// Reason says why the upgrade failed.
	Reason Reason
}

// The prefixes of the node annotations for the handshake between node and controller; the kind follows.
const (
	ReportAnnotation = "acceld.dev/upgrade-"
	GrantAnnotation  = "acceld.dev/grant-"
	// ServedAnnotation is how a node says that its driver is as a policy asks, parameters included: the value is
	// [Policy.DriverDigest] of that policy.
	ServedAnnotation = "acceld.dev/served-"
)

// ReportPhase is the phase of the upgrade that the node reports.
type ReportPhase string

// The phases.
const (
	// ReportWaiting: the driver is ready in the store and the old one serves. The node does not proceed without a
	// grant.
	ReportWaiting ReportPhase = "waiting"
	// ReportUpgrading: the node has its grant. It starts once it has read both this report and the grant in its node
	// object, and keeps the report until it has stopped.
	ReportUpgrading ReportPhase = "upgrading"
	// ReportFailed: the upgrade failed. The node has the previous driver or none.
	ReportFailed ReportPhase = "failed"
	// ReportUnclear: the annotation cannot be read. The node may be doing anything.
	ReportUnclear ReportPhase = "unclear"
)

// String returns the text of the annotation; empty for the zero UpgradeReport.
func (w UpgradeReport) String() string {
	return strings.TrimSpace(strings.Join([]string{string(w.Phase), w.Version, string(w.Reason)}, " "))
}

// maxReport is the size of the longest report or grant that is read, in bytes: a version as long as the longest name of
// a file, and two words.
const maxReport = 384

// ParseUpgradeReport parses the result of String. No text gives the zero UpgradeReport, and any other text gives
// ReportUnclear: that a node reports nothing is an answer, too.
func ParseUpgradeReport(text string) UpgradeReport {
	unclear := UpgradeReport{Phase: ReportUnclear}
	f := strings.Fields(text[:min(len(text), maxReport)])
	switch {
	case len(f) == 0 && len(text) <= maxReport:
		return UpgradeReport{}
	case len(f) < 2, len(f) > 3, len(text) > maxReport, !plain(text):
		return unclear
	}
	w := UpgradeReport{Phase: ReportPhase(f[0]), Version: f[1]}
	if len(f) == 3 {
		w.Reason = Reason(f[2])
	}
	if w.Phase != ReportWaiting && w.Phase != ReportUpgrading && w.Phase != ReportFailed || !w.Reason.Plain() {
		return unclear
	}
	return w
}

// plain reports whether a text has only characters that can be printed.
func plain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) })
}

// Acts reports whether the node may be replacing its driver.
func (w UpgradeReport) Acts() bool { return w.Phase == ReportUpgrading || w.Phase == ReportUnclear }

// MarshalText returns String.
func (w UpgradeReport) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText sets w to the result of [ParseUpgradeReport].
func (w *UpgradeReport) UnmarshalText(text []byte) error {
	*w = ParseUpgradeReport(string(text))
	return nil
}

// Grant is the controller's permission for a node, in the annotation "acceld.dev/grant-<kind>": "2.0.0 <time of the
// slot>". A withdrawn grant leaves its time, "- <time>": a controller that wants to grant an earlier slot has read
// outdated data.
type Grant struct {
	Version string // empty if nothing is granted
	Since   time.Time
}

// String returns the text of the annotation; empty for the zero Grant.
func (g Grant) String() string {
	if g.Since.IsZero() {
		return g.Version
	}
	return cmp.Or(g.Version, "-") + " " + g.Since.UTC().Format(time.RFC3339Nano)
}

// ParseGrant parses the result of String. It also accepts a version alone, which people may write. Text that is too
// long or not plain grants nothing.
func ParseGrant(text string) Grant {
	if len(text) > maxReport || !plain(text) {
		return Grant{}
	}
	f := append(strings.Fields(text), "", "")
	since, _ := time.Parse(time.RFC3339Nano, f[1])
	if f[0] == "-" {
		f[0] = ""
	}
	return Grant{Version: f[0], Since: since}
}

// Target identifies a driver in reports and grants: its version in one word, or its key.
func (r DriverRef) Target() string {
	switch {
	case r.Version != "":
		return strings.Join(strings.Fields(r.Version), "_")
	case r.Key != "":
		return "key-" + r.Key[:min(12, len(r.Key))]
	}
	return "unnamed"
}
