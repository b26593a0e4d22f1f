package accel

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Handover says how a device passes from one tenant to the next, so that nobody finds on it what another left. A tenant
// is a pod, a claim, or a container outside pods. Before a container of another tenant starts, nobody has the device
// open, it was scrubbed, and it has passed its self-test.
type Handover struct {
	// Leftovers is what happens to processes of a former tenant that still have the device open; report when empty.
	Leftovers Leftovers `json:"leftovers,omitempty" privileged:"ends processes"`
	// Scrub is how what the former tenant left on the device is removed; none when empty.
	Scrub Scrub `json:"scrub,omitempty"`
	// File is an attribute relative to the PCI function's sysfs directory, and Write what acceld writes to it, for
	// Scrub attribute. The driver has scrubbed the device when the write returns.
	File  string `json:"file,omitempty" privileged:"writes to the device"`
	Write string `json:"write,omitempty"`
	// Argv is a program of the host and its arguments, for Scrub program, such as ["scrub", "{{.Address}}"]. The device
	// is scrubbed if it exits with 0.
	Argv []string `json:"argv,omitempty" template:"device" privileged:"runs a program"`
	// Beside are who may have devices open whoever has them, such as monitoring daemons: services of the host's systemd
	// ("example-monitor.service"), and the pods of namespaces ("namespace/monitoring"). They are no leftovers.
	Beside []string `json:"beside,omitempty" privileged:"lets programs keep devices open"`
	// Timeout is how long a container waits for its device at most, such as "1m"; "30s" when empty.
	Timeout string `json:"timeout,omitempty" form:"duration"`
}

// Leftovers is what happens to processes of a former tenant.
type Leftovers string

// The values of Leftovers.
const (
	LeftoversReport Leftovers = "report" // the device is withheld until they have ended
	LeftoversKill   Leftovers = "kill"   // those in the former tenant's control group or mount namespace are killed
)

// Scrub is how a device is scrubbed.
type Scrub string

// The ways to scrub a device.
const (
	ScrubNone      Scrub = "none"      // the driver itself gives no tenant another's memory, or there is none
	ScrubAttribute Scrub = "attribute" // by an attribute of the driver
	ScrubProgram   Scrub = "program"   // by a program
	ScrubReset     Scrub = "reset"     // as `acceld reset` does
)

// besideForm matches the name of a service (systemd.unit(5)), or a namespace.
var besideForm = regexp.MustCompile(`^([A-Za-z0-9:_.@-]{1,200}\.service|` + BesideNamespace + `[a-z0-9-]{1,63})$`)

// BesideNamespace is what a namespace in [Handover.Beside] begins with.
const BesideNamespace = "namespace/"

// Patience returns how long a container waits for its device at most.
func (h Handover) Patience() time.Duration {
	const usual = 30 * time.Second
	if d, err := time.ParseDuration(h.Timeout); err == nil { // it is empty, or was validated
		return d
	}
	return usual
}

// Problems returns the errors in h, each as "<field>: <sentence>".
func (h Handover) Problems() []string {
	var out []string
	if !slices.Contains([]Leftovers{"", LeftoversReport, LeftoversKill}, h.Leftovers) {
		out = append(out, "leftovers: "+NotOneOf(h.Leftovers, "report", "kill"))
	}
	if !slices.Contains([]Scrub{"", ScrubNone, ScrubAttribute, ScrubProgram, ScrubReset}, h.Scrub) {
		out = append(out, "scrub: "+NotOneOf(h.Scrub, "none", "attribute", "program", "reset"))
	}
	if (h.Scrub == ScrubAttribute) != (h.File != "") || h.File == "" && h.Write != "" {
		out = append(out, "file: it is for scrub attribute, which needs it")
	}
	if (h.Scrub == ScrubProgram) != (len(h.Argv) > 0) {
		out = append(out, "argv: it is for scrub program, which needs it")
	}
	for _, who := range h.Beside {
		if !besideForm.MatchString(who) {
			out = append(out, fmt.Sprintf("beside: %.100q is neither a service nor namespace/<name>", who))
		}
	}
	const longest = time.Minute // the kubelet waits two for a container to be created
	if d, err := time.ParseDuration(h.Timeout); h.Timeout != "" && (err != nil || d < time.Second || d > longest) {
		out = append(out, fmt.Sprintf("timeout: %q is not a time from 1s to %s", h.Timeout, longest))
	}
	return out
}

// HandoverState is where a device is between its tenants.
type HandoverState string

// The values of HandoverState.
const (
	HandoverClean    HandoverState = "clean"    // nobody has had it since it was cleaned
	HandoverUsed     HandoverState = "used"     // the tenants have it, or have had it
	HandoverUnknown  HandoverState = "unknown"  // it is not known who had it: it has to be cleaned
	HandoverCleaning HandoverState = "cleaning" // it is being cleaned
	HandoverFailed   HandoverState = "failed"   // it could not be cleaned, and nobody gets it
)

// HandoverStates returns all states.
func HandoverStates() []HandoverState {
	return []HandoverState{HandoverClean, HandoverUsed, HandoverUnknown, HandoverCleaning, HandoverFailed}
}

// HandoverHave is what is known about the tenants of a device.
type HandoverHave struct {
	State HandoverState `json:"state"`
	// Tenants are who has had the device since it was cleaned, each such as "pod 0b8…".
	Tenants []string `json:"tenants,omitempty"`
	// Cleaned is how often the device was cleaned since the boot, Seconds how long all of that took, and Last how long
	// it took last.
	Cleaned int     `json:"cleaned"`
	Seconds float64 `json:"seconds"`
	Last    float64 `json:"last"`
	// Killed is how many processes of former tenants were killed since the boot.
	Killed int `json:"killed,omitempty"`
}

// String is for people: "used by pod 0b8…; cleaned 3 times since the boot, the last time in 250ms".
func (h HandoverHave) String() string {
	text := string(h.State)
	switch {
	case h.State == HandoverUsed:
		text = "used by " + strings.Join(h.Tenants, ", ")
	case h.State == HandoverUnknown:
		text = "not known who had it"
	case h.State != HandoverClean && len(h.Tenants) > 0:
		text += ", after " + strings.Join(h.Tenants, ", ")
	}
	if h.Cleaned > 0 {
		last := time.Duration(h.Last * float64(time.Second)).Round(time.Millisecond)
		text += fmt.Sprintf("; cleaned %d times since the boot, the last time in %s", h.Cleaned, last)
	}
	if h.Killed > 0 {
		text += fmt.Sprintf("; %d leftover processes killed", h.Killed)
	}
	return text
}
