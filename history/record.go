package history

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// What is the type of an [Entry].
type What string

// The types of entries.
const (
	Found  What = "found"  // the device was seen for the first time
	Moved  What = "moved"  // it is at another address than before
	Fault  What = "fault"  // its health became worse than healthy, or that for another reason
	Well   What = "well"   // it is healthy again
	Proven What = "proven" // it passed its self-test with a driver for the first time
	// Cleaned: it was cleaned for its next tenant. Unclean: it could not be.
	Cleaned What = "cleaned"
	Unclean What = "unclean"
	Reset   What = "reset" // somebody reset it
	// Would: acceld would have reset it, if that were no dry run. GivenUp: it waits for a person.
	Would   What = "would-reset"
	GivenUp What = "given-up"
)

// Entry is something that happened to a device.
type Entry struct {
	What What      `json:"what"`
	At   time.Time `json:"at"`
	// Address is where the device was: a PCI address.
	Address string `json:"address"`
	// State, Reason and Message are those of a fault.
	State   accel.HealthState `json:"state,omitempty"`
	Reason  accel.Reason      `json:"reason,omitempty"`
	Message string            `json:"message,omitempty"`
	// Driver is the version of the driver of a proof.
	Driver string `json:"driver,omitempty"`
	// Times is how often the same happened in a row; Last is when it did for the last time. Both are zero if it
	// happened once.
	Times int       `json:"times,omitempty"`
	Last  time.Time `json:"last,omitzero"`
}

// Record is what is remembered of one device.
type Record struct {
	Schema int    `json:"schema"`
	Kind   string `json:"kind"`
	// ID is its serial number; its UUID, or its address, if it has no serial number.
	ID      string `json:"id"`
	Model   string `json:"model,omitempty"`
	Address string `json:"address"`
	// First and Last are when it was seen for the first and, rounded down to the hour, for the last time; see
	// [Record.Seen].
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Faults counts faults by reason, also those whose entries were dropped.
	Faults map[accel.Reason]int `json:"faults,omitempty"`
	// Resets and Proofs count resets and the drivers with which it passed its self-test, as Faults does.
	Resets int `json:"resets,omitempty"`
	Proofs int `json:"proofs,omitempty"`
	// Entries are what happened, oldest first.
	Entries []Entry `json:"entries"`
}

// The bounds of what is remembered.
const (
	schema     = 1
	maxDevices = 256
	maxEntries = 64
	maxReasons = 32
	maxText    = 300 // bytes of a message or a name
	maxFile    = 256 << 10
)

// Dir is where the records are below the agent's state, as a path on the host.
func Dir(stateDir string) string { return path.Join(stateDir, "history") }

// precision is that of [Record.Last]: a device that is only seen causes no more writes than this.
const precision = time.Hour

// identity is how a device is known again.
func identity(a accel.Accelerator) string {
	for _, id := range []string{a.Serial, a.UUID} {
		if id != "" {
			return cut(id)
		}
	}
	return a.ID
}

func cut(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

// Count is how many faults there were.
func (r *Record) Count() (n int) {
	for _, times := range r.Faults {
		n += times
	}
	return n
}

// health is the last entry about the device's health; nil if none is left, or none was made.
func (r *Record) health() *Entry {
	for i := range slices.Backward(r.Entries) {
		if what := r.Entries[i].What; what == Fault || what == Well {
			return &r.Entries[i]
		}
	}
	return nil
}

// ill reports whether the last that was said of its health is a fault.
func (r *Record) ill() bool { h := r.health(); return h != nil && h.What == Fault }

// sinceFault reports whether something is on record since the last fault.
func (r *Record) sinceFault(what What) bool {
	for _, e := range slices.Backward(r.Entries) {
		if e.What == what {
			return true
		}
		if e.What == Fault {
			return false
		}
	}
	return false
}

// provenWith reports whether it is on record that it passed its self-test with a driver.
func (r *Record) provenWith(driver string) bool {
	return slices.ContainsFunc(r.Entries, func(e Entry) bool { return e.What == Proven && e.Driver == driver })
}

// add appends an entry. A device that flaps between one fault and healthy has one entry for each, which are counted.
func (r *Record) add(e Entry) {
	e.Message = cut(e.Message)
	if e.What == Fault {
		if r.Faults == nil {
			r.Faults = map[accel.Reason]int{}
		}
		if _, known := r.Faults[e.Reason]; known || len(r.Faults) < maxReasons {
			r.Faults[e.Reason]++
		}
	}
	r.count(e.What, 1)
	const flap = 2 // a fault and its end
	for i := len(r.Entries) - 1; i >= max(0, len(r.Entries)-flap); i-- {
		if r.Entries[i].again(e) {
			last := r.Entries[i]
			last.Times, last.Last = max(last.Times, 1)+1, e.At
			r.Entries = append(slices.Delete(r.Entries, i, i+1), last)
			return
		}
	}
	r.Entries = append(r.Entries, e)
	if over := len(r.Entries) - maxEntries; over > 0 {
		r.Entries = slices.Delete(r.Entries, 0, over)
	}
}

// Seen returns when the device was last seen, as precisely as the record can say. A report that it is gone does not
// count.
func (r *Record) Seen() time.Time {
	seen := accel.Latest(r.First, r.Last)
	for _, e := range r.Entries {
		if e.State != accel.Gone {
			seen = accel.Latest(seen, e.latest())
		}
	}
	return seen
}

// latest returns when the same happened for the last time.
func (e *Entry) latest() time.Time { return accel.Latest(e.At, e.Last) }

// count counts what is not counted by reason.
func (r *Record) count(what What, times int) {
	switch what {
	case Reset:
		r.Resets += times
	case Proven:
		r.Proofs += times
	default:
	}
}

// lastFault returns the last fault that is on record; nil if there is none.
func (r *Record) lastFault() *accel.PastFault {
	for _, e := range slices.Backward(r.Entries) {
		if e.What == Fault {
			return &accel.PastFault{At: e.latest(), Reason: e.Reason, Message: e.Message}
		}
	}
	return nil
}

// past is the record in short. A device that is known by its address alone has no serial number.
func (r *Record) past() accel.Past {
	p := accel.Past{
		Serial: r.ID, Since: r.First, Faults: r.Count(), Resets: r.Resets, Proofs: r.Proofs, LastFault: r.lastFault(),
	}
	if r.ID == r.Address {
		p.Serial = ""
	}
	return p
}

// merge adds the entries that another record of the same device has and this one lacks.
func (r *Record) merge(o *Record) {
	for _, e := range o.Entries {
		same := func(x Entry) bool { return x.What == e.What && x.At.Equal(e.At) && x.Address == e.Address }
		if e.What != Found && !slices.ContainsFunc(r.Entries, same) {
			r.add(e)
		}
	}
}

// again reports whether e is the same happening once more.
func (e Entry) again(o Entry) bool {
	once := e.What == Found || e.What == Moved || e.What == Proven
	return !once && e.What == o.What && e.Address == o.Address && e.State == o.State && e.Reason == o.Reason
}

// Text says in words what happened.
func (e Entry) Text() string {
	text, more := string(e.What), e.Message
	switch e.What {
	case Found:
		text = "seen for the first time"
	case Moved:
		return "moved " + e.Message
	case Well:
		text = "healthy again"
	case Fault:
		text = strings.TrimSpace(string(e.State) + " " + string(e.Reason))
	case Proven:
		text = "proven with driver " + e.Driver
	case Cleaned:
		text = "cleaned for its next tenant"
	case Unclean:
		text = "not clean for its next tenant: " + string(e.Reason)
	case Reset:
		text = "reset"
	case Would:
		text = "would have been reset (dry run)"
	case GivenUp:
		text = "waits for a person"
	}
	if more != "" {
		text += ": " + more
	}
	return text
}

// file is where a record is kept below dir.
func file(dir, kind, id string) string {
	sum := sha256.Sum256([]byte(kind + "\x00" + id))
	return path.Join(dir, fmt.Sprintf("%x.json", sum[:8]))
}

// Read reads all records below a directory, those of the devices that were seen last first. What cannot be read is left
// out, and returned as bad with the reason.
func Read(h *host.Host, dir string) (all []Record, bad []string) {
	for _, name := range h.Glob(dir, "*.json") {
		r, err := read(h, name)
		if err != nil {
			bad = append(bad, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		all = append(all, r)
	}
	slices.SortFunc(all, order)
	return all, bad
}

// order puts the devices that were seen last first, and those of one hour by their addresses.
func order(a, b Record) int {
	return cmp.Or(b.Last.Compare(a.Last), strings.Compare(a.Address, b.Address), strings.Compare(a.ID, b.ID))
}

// read reads a record and holds it to the bounds.
func read(h *host.Host, name string) (r Record, err error) {
	text, err := h.ReadFile(name)
	if err != nil {
		return r, err
	}
	if len(text) > maxFile {
		return r, fmt.Errorf("it has %d bytes, at most %d are read", len(text), maxFile)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, err
	}
	switch {
	case r.Schema != schema:
		return r, fmt.Errorf("it has schema %d, not %d", r.Schema, schema)
	case r.Kind == "" || r.ID == "" || file(path.Dir(name), r.Kind, r.ID) != name:
		return r, fmt.Errorf("it is not that of the device that it names")
	case len(r.Entries) > maxEntries || len(r.Faults) > maxReasons:
		return r, fmt.Errorf("it has more entries than are kept")
	}
	if r.Resets == 0 && r.Proofs == 0 { // of an earlier version, which did not count them
		for _, e := range r.Entries {
			r.count(e.What, max(e.Times, 1))
		}
	}
	return r, nil
}
