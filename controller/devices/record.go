package devices

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/kube"
)

// Path is the path of the objects in the API.
const Path = "/apis/acceld.dev/v1alpha1/acceleratordevices"

// Device is an AcceleratorDevice. It has no spec, because nobody asks anything of it, and no subresource: a write of
// the record is one request, and a backup that is restored brings the records back.
type Device struct {
	kube.Meta `json:"metadata"`
	Record    Record `json:"record"`
}

// Record is what the cluster remembers of one device.
type Record struct {
	// Kind is the kind of the device.
	Kind string `json:"kind"`
	// Serial is its serial number, or its UUID if it has none.
	Serial string `json:"serial"`
	// Model is its model; empty if it does not tell it.
	Model string `json:"model,omitempty"`
	// First is when a node reported the device for the first time, and FirstNode which one.
	First     time.Time `json:"first"`
	FirstNode string    `json:"firstNode"`
	// Node has the device, at Address; both are empty once no node has it. If several nodes say that they have it, Node
	// is the one that said so first, and Claimed are all of them.
	Node    string   `json:"node,omitempty"`
	Address string   `json:"address,omitempty"`
	Claimed []string `json:"claimed,omitempty"`
	// Total is the sum over all hosts.
	Total Counts `json:"total"`
	// LastFault is its last fault, on any host.
	LastFault *LastFault `json:"lastFault,omitempty"`
	// Hosts are the hosts that had the device last, the newest first.
	Hosts []Host `json:"hosts,omitempty"`
	// Earlier sums up the hosts before them. One that gets the device again is counted again.
	Earlier *Earlier `json:"earlier,omitempty"`
}

// Counts count what happened to a device.
type Counts struct {
	// Faults is how many faults it had.
	Faults int `json:"faults"`
	// Resets is how often it was reset.
	Resets int `json:"resets"`
	// Proofs is with how many drivers it has passed its self-test.
	Proofs int `json:"proofs"`
}

// Host is what one node has reported about the device.
type Host struct {
	// Node is the name of the host.
	Node string `json:"node"`
	// Address is the PCI address that the device had there.
	Address string `json:"address"`
	// From is when the device came to the host last, and Until when it left it; zero if that is not known.
	From  time.Time `json:"from"`
	Until time.Time `json:"until,omitzero"`
	// Counts are those of the host's own record, which began at Since. Before sums up the records that the host had
	// before that one: it was installed again, or purged.
	Since  time.Time `json:"since"`
	Counts Counts    `json:"counts"`
	Before Counts    `json:"before,omitzero"`
	// LastFault is its last fault there.
	LastFault *Fault `json:"lastFault,omitempty"`
}

// Fault is a fault of a device.
type Fault struct {
	// At is when it happened.
	At time.Time `json:"at"`
	// Reason is its code, as docs/reasons.md lists them.
	Reason accel.Reason `json:"reason"`
	// Message says what happened.
	Message string `json:"message,omitempty"`
}

// LastFault is the last fault of a device, and where it was then.
type LastFault struct {
	// At is when it happened.
	At time.Time `json:"at"`
	// Reason is its code, as docs/reasons.md lists them.
	Reason accel.Reason `json:"reason"`
	// Message says what happened.
	Message string `json:"message,omitempty"`
	// Node is where it happened.
	Node string `json:"node"`
}

// Earlier sums up hosts.
type Earlier struct {
	// Hosts is how many there were.
	Hosts int `json:"hosts"`
	// Counts is what happened to the device on them.
	Counts Counts `json:"counts"`
}

// The bounds of records.
const (
	maxHosts = 8
	maxCount = 1_000_000_000
	// maxBegun is how many records a node can have: of devices that it has, and of devices that it reported first and
	// that no node has now. A host has some sixteen devices.
	maxBegun = 128
	// maxRecords is how many records a cluster has: 5,000 nodes with eight devices have 40,000. A record takes about 1
	// KiB of the API server's storage, and 5 KiB at most.
	maxRecords = 100_000
)

// Name returns the name of the object of a device. No two devices have the same one: 80 bits of the digest.
func Name(kind, serial string) string {
	sum := sha256.Sum256([]byte(kind + "\x00" + serial))
	return kind + "-" + hex.EncodeToString(sum[:10])
}

func (c Counts) plus(o Counts) Counts {
	return Counts{
		min(c.Faults+o.Faults, maxCount), min(c.Resets+o.Resets, maxCount), min(c.Proofs+o.Proofs, maxCount),
	}
}

// atLeast returns the counts raised to others.
func (c Counts) atLeast(o Counts) Counts {
	return Counts{max(c.Faults, o.Faults), max(c.Resets, o.Resets), max(c.Proofs, o.Proofs)}
}

// owner is the node that the record counts for.
func (r *Record) owner() string { return cmp.Or(r.Node, r.FirstNode) }

// host returns what a node has reported; nil if it has not.
func (r *Record) host(node string) *Host {
	i := slices.IndexFunc(r.Hosts, func(h Host) bool { return h.Node == node })
	if i < 0 {
		return nil
	}
	return &r.Hosts[i]
}

// clockSkew is how far ahead the clock of a node may be. What it says of a later time is left out.
const clockSkew = 24 * time.Hour

// take takes over what the node reports. It only ever adds.
func (h *Host) take(r accel.DeviceReport, now time.Time) {
	h.Address = r.Address
	if latest := now.Add(clockSkew); r.Since.After(h.Since) && r.Since.Before(latest) {
		if !h.Since.IsZero() {
			h.Before, h.Counts = h.Before.plus(h.Counts), Counts{}
		}
		h.Since = r.Since
	}
	h.Counts = h.Counts.atLeast(Counts{r.Faults, r.Resets, r.Proofs})
	f := r.LastFault
	if f != nil && f.At.Before(now.Add(clockSkew)) && (h.LastFault == nil || f.At.After(h.LastFault.At)) {
		h.LastFault = &Fault{At: f.At, Reason: f.Reason, Message: f.Message}
	}
}

// settle brings the record into its bounds and its order, and sums up.
func (r *Record) settle(here []string) {
	for len(r.Hosts) > maxHosts {
		i := r.oldest(here)
		if r.Earlier == nil {
			r.Earlier = &Earlier{}
		}
		h := r.Hosts[i]
		r.Earlier = &Earlier{r.Earlier.Hosts + 1, r.Earlier.Counts.plus(h.Before).plus(h.Counts)}
		r.Hosts = slices.Delete(r.Hosts, i, i+1)
	}
	slices.SortStableFunc(r.Hosts, func(a, b Host) int {
		return cmp.Or(b.From.Compare(a.From), strings.Compare(a.Node, b.Node))
	})
	r.Total = Counts{}
	if r.Earlier != nil {
		r.Total = r.Earlier.Counts
	}
	for _, h := range r.Hosts {
		r.Total = r.Total.plus(h.Before).plus(h.Counts)
		if f := h.LastFault; f != nil && (r.LastFault == nil || f.At.After(r.LastFault.At)) {
			r.LastFault = &LastFault{At: f.At, Reason: f.Reason, Message: f.Message, Node: h.Node}
		}
	}
}

// oldest returns the host that is summed up first: the device has left it, the longest ago.
func (r *Record) oldest(here []string) int {
	oldest := 0
	rank := func(h Host) int {
		switch {
		case slices.Contains(here, h.Node):
			return 2
		case h.Until.IsZero():
			return 1
		}
		return 0
	}
	for i, h := range r.Hosts {
		o := r.Hosts[oldest]
		if cmp.Or(rank(h)-rank(o), h.Until.Compare(o.Until), h.From.Compare(o.From)) < 0 {
			oldest = i
		}
	}
	return oldest
}

// left returns when the last host lost the device; false if a host may still have it.
func (r *Record) left() (at time.Time, left bool) {
	for _, h := range r.Hosts {
		if h.Until.IsZero() {
			return time.Time{}, false
		}
		if h.Until.After(at) {
			at = h.Until
		}
	}
	return at, len(r.Hosts) > 0
}

// same reports whether a record that was changed from another one is as that is. What it points to is replaced, and
// never changed in place.
func (r Record) same(o Record) bool {
	return r.Kind == o.Kind && r.Serial == o.Serial && r.Model == o.Model && r.Node == o.Node &&
		r.Address == o.Address && r.Total == o.Total && r.LastFault == o.LastFault && r.Earlier == o.Earlier &&
		slices.Equal(r.Claimed, o.Claimed) && slices.Equal(r.Hosts, o.Hosts)
}

func (r Record) clone() Record {
	r.Hosts = slices.Clone(r.Hosts)
	return r
}
