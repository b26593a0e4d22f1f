package accel

import (
	"strings"
	"time"
)

// Word is what a node says of an upgrade that a policy orders, in the annotation "acceld.dev/upgrade-<kind>" of its
// own: "waiting 2.0.0", "upgrading 2.0.0" or "failed 2.0.0 RolledBack". The zero one is silence.
type Word struct {
	Phase WordPhase
	// Version is what the node is to have: that of the driver, or what stands for a driver without one.
	Version string
	// Reason says why it failed.
	Reason Reason
}

// The annotations of a node by which it and the controller speak; the kind follows.
const (
	WordAnnotation  = "acceld.dev/upgrade-"
	GrantAnnotation = "acceld.dev/grant-"
)

// WordPhase is how far the node is.
type WordPhase string

// The phases.
const (
	// WordWaiting: the driver is ready in the store, the old one serves, and nothing goes on without a grant.
	WordWaiting WordPhase = "waiting"
	// WordUpgrading: the node has its grant. It acts when it has read its own word together with the grant, and keeps
	// the word until it does not act any more.
	WordUpgrading WordPhase = "upgrading"
	// WordFailed: it could not, and has the previous driver or none.
	WordFailed WordPhase = "failed"
)

// String is the text of the annotation; empty for silence.
func (w Word) String() string {
	return strings.TrimSpace(strings.Join([]string{string(w.Phase), w.Version, string(w.Reason)}, " "))
}

// ParseWord reads what String gives; text that says nothing is silence.
func ParseWord(text string) Word {
	f := append(strings.Fields(text), "", "", "")
	w := Word{Phase: WordPhase(f[0]), Version: f[1], Reason: Reason(f[2])}
	if w.Version == "" || w.Phase != WordWaiting && w.Phase != WordUpgrading && w.Phase != WordFailed {
		return Word{}
	}
	return w
}

// MarshalText is String.
func (w Word) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText is [ParseWord].
func (w *Word) UnmarshalText(text []byte) error {
	*w = ParseWord(string(text))
	return nil
}

// Grant is what the controller says to a node, in the annotation "acceld.dev/grant-<kind>": "2.0.0 <time of the slot>".
// One that is taken back leaves its time, "- <time>": who wants to give a grant for an earlier slot has read something
// old.
type Grant struct {
	Version string // empty when nothing is granted
	Since   time.Time
}

// String is the text of the annotation; empty for the zero one.
func (g Grant) String() string {
	if g.Version == "" && g.Since.IsZero() {
		return ""
	}
	version := g.Version
	if version == "" {
		version = "-"
	}
	if g.Since.IsZero() {
		return version
	}
	return version + " " + g.Since.UTC().Format(time.RFC3339Nano)
}

// ParseGrant reads what String gives, and a version alone, which people may write.
func ParseGrant(text string) Grant {
	f := append(strings.Fields(text), "", "")
	since, _ := time.Parse(time.RFC3339Nano, f[1])
	if f[0] == "-" {
		f[0] = ""
	}
	return Grant{Version: f[0], Since: since}
}

// Ticket is what stands for a driver in words and grants: its version in one word, or its key.
func (r DriverRef) Ticket() string {
	switch {
	case r.Version != "":
		return strings.Join(strings.Fields(r.Version), "_")
	case r.Key != "":
		return "key-" + r.Key[:min(12, len(r.Key))]
	}
	return "unnamed"
}
