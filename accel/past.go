package accel

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
)

// HistoryAnnotation is the prefix of the node annotation in which an agent reports in short what its devices of a kind
// have been through, if a policy keeps that in the cluster; the kind follows.
const HistoryAnnotation = "acceld.dev/history-"

// Past is in short what a device has been through on this host. Package history has all of it.
type Past struct {
	// Serial is how the device is known again on other hosts: its serial number, or its UUID if it has none. It is
	// empty if it has neither.
	Serial string `json:"serial,omitempty"`
	// Since is when the host's record of the device began. The counts are from then on.
	Since time.Time `json:"since"`
	// Proofs is with how many drivers it has passed its self-test.
	Faults int `json:"faults,omitempty"`
	Resets int `json:"resets,omitempty"`
	Proofs int `json:"proofs,omitempty"`
	// LastFault is its last fault; nil if none is on record.
	LastFault *PastFault `json:"lastFault,omitempty"`
}

// PastFault is a fault of a device.
type PastFault struct {
	At      time.Time `json:"at"`
	Reason  Reason    `json:"reason"`
	Message string    `json:"message,omitempty"`
}

// DeviceReport is what a node says about a device of its own in [HistoryAnnotation].
type DeviceReport struct {
	Past
	Model   string `json:"model,omitempty"`
	Address string `json:"address"`
	// Gone is true for a device that is no longer on the bus.
	Gone bool `json:"gone,omitempty"`
}

// The bounds of a report. Lengths are in bytes.
const (
	// MaxDeviceReport is the length of the longest annotation that is read.
	MaxDeviceReport = 32 << 10
	maxReported     = 64 // devices of a kind
	maxSerial       = 128
	maxModel        = 64
	maxAddress      = 32
	maxPastText     = 120
	maxPast         = 1_000_000 // faults, resets or proofs
)

// NoDevices is the report of a node that has no device with a serial number.
const NoDevices = "[]"

// ReportDevices returns the text of the annotation; past returns what is on record of a device, if anything is. Devices
// without a serial number that can be reported are left out, and so is the second of two devices with the same one. If
// there are too many devices, the last ones are left out.
func ReportDevices(accs []Accelerator, past func(Accelerator) (Past, bool)) string {
	all, has := []DeviceReport{}, map[string]bool{}
	for _, a := range accs {
		p, known := past(a)
		r := DeviceReport{Past: p.reported(), Model: printable(a.Model, maxModel), Address: a.ID, Gone: !a.Present()}
		if known && r.valid() && !has[r.Serial] && len(all) < maxReported {
			all, has[r.Serial] = append(all, r), true
		}
	}
	text := encodePlain(all)
	for len(text) > MaxDeviceReport {
		all = all[:len(all)-1]
		text = encodePlain(all)
	}
	return text
}

// encodePlain returns JSON in which no character is longer than it must be.
func encodePlain(all []DeviceReport) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(all); err != nil {
		return NoDevices // a year that JSON does not know, from a clock that is wrong
	}
	return strings.TrimSpace(b.String())
}

// reported returns p within the bounds of a report, with times to the second.
func (p Past) reported() Past {
	p.Since = p.Since.UTC().Truncate(time.Second)
	p.Faults, p.Resets, p.Proofs = min(p.Faults, maxPast), min(p.Resets, maxPast), min(p.Proofs, maxPast)
	if f := p.LastFault; f != nil {
		p.LastFault = &PastFault{
			At: f.At.UTC().Truncate(time.Second), Reason: f.Reason, Message: printable(f.Message, maxPastText),
		}
		if !p.LastFault.valid() {
			p.LastFault = nil
		}
	}
	return p
}

// printable returns a text without characters that cannot be printed, cut to a length.
func printable(text string, length int) string {
	text = strings.Map(func(r rune) rune {
		if !plain(string(r)) {
			return ' '
		}
		return r
	}, text)
	if len(text) > length {
		const dots = "…"
		text = strings.ToValidUTF8(text[:length-len(dots)], "") + dots
	}
	return text
}

// ParseDeviceReports parses the result of [ReportDevices]. It returns false for any other text: nothing is then known
// about the devices of the node.
func ParseDeviceReports(text string) (all []DeviceReport, known bool) {
	if len(text) > MaxDeviceReport || json.Unmarshal([]byte(text), &all) != nil || all == nil ||
		len(all) > maxReported {
		return nil, false
	}
	has := map[string]bool{}
	for _, r := range all {
		if !r.valid() || has[r.Serial] {
			return nil, false
		}
		has[r.Serial] = true
	}
	return all, true
}

// valid reports whether a report is within the bounds.
func (r DeviceReport) valid() bool {
	texts := within(r.Serial, 1, maxSerial) && within(r.Model, 0, maxModel) && within(r.Address, 1, maxAddress)
	counts := inRange(r.Faults) && inRange(r.Resets) && inRange(r.Proofs) && sane(r.Since)
	return texts && counts && (r.LastFault == nil || r.LastFault.valid())
}

func (f PastFault) valid() bool {
	return f.Reason != "" && f.Reason.Plain() && within(f.Message, 0, maxPastText) && sane(f.At)
}

func within(text string, least, most int) bool {
	return len(text) >= least && len(text) <= most && plain(text)
}

func inRange(count int) bool { return count >= 0 && count <= maxPast }

// sane reports whether a time can be written as the API does.
func sane(t time.Time) bool { return t.Year() > 1 && t.Year() <= 9999 }

// DeviceHistory keeps a record of each device of a policy's kinds in the cluster, by its serial number.
type DeviceHistory struct {
	// Keep is how long the record of a device stays after the last node has lost the device, such as "2160h"; a year
	// when empty.
	Keep string `json:"keep,omitempty" form:"duration"`
}

// The default and the least of [DeviceHistory].
const (
	keepHistory    = 365 * 24 * time.Hour
	minKeepHistory = time.Hour
)

// Keeps returns how long a record stays.
func (h *DeviceHistory) Keeps() time.Duration {
	if h == nil {
		return keepHistory
	}
	d, err := time.ParseDuration(h.Keep)
	if err != nil { // it is empty, or was validated
		return keepHistory
	}
	return d
}

func (h DeviceHistory) problems() []string {
	return durationProblem("keep", h.Keep, minKeepHistory, "2160h")
}
