package history

import (
	"context"
	"encoding/json"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// Options of a [Book].
type Options struct {
	Host *host.Host
	// Dir is the directory of the records, as a path on the host.
	Dir string
	Log *slog.Logger
}

// Book keeps the records of a host's devices. Its methods are safe for concurrent use.
type Book struct {
	o       Options
	dirty   chan struct{}
	writing sync.Mutex // while files are written, so that none is replaced by older content

	mu      sync.Mutex
	records map[string]*Record            // by file
	passed  map[string]accel.HandoverHave // the last that was seen of the passing from tenant to tenant, by file
	resets  map[string]bool               // files of the devices that are being reset
	noted   map[string]bool               // files of the devices of which that is on record already
	changed map[string]bool               // files to write, or to remove if there is no record any more
	seen    map[string]bool               // files of the devices that this book has seen under their own serial numbers
	shown   map[string]shown              // what was last shown of a record in short, by file
	loaded  bool
	last    accel.Machine // what was seen last before the records were read
}

// shown is a record in short, and since when it is shown.
type shown struct {
	past accel.Past
	at   time.Time
}

// publish is how long it is shown at least.
const publish = time.Minute

// together is how long a change waits for others, so that a device that flaps causes few writes; again is how long a
// write that failed waits.
const (
	together = 5 * time.Second
	again    = time.Minute
)

// New returns a book that reads the records there are once it runs: the disk that they are on may hang.
func New(o Options) *Book {
	return &Book{
		o: o, dirty: make(chan struct{}, 1), records: map[string]*Record{}, changed: map[string]bool{},
		passed: map[string]accel.HandoverHave{}, resets: map[string]bool{}, noted: map[string]bool{},
		seen: map[string]bool{}, shown: map[string]shown{},
	}
}

// load reads the records that there are, and takes over what was seen meanwhile.
func (b *Book) load() {
	b.o.Host.Locks().RemoveAbandoned(b.o.Dir)
	all, bad := Read(b.o.Host, b.o.Dir)
	for _, why := range bad {
		b.o.Log.Warn("the history of a device cannot be read and begins again", "error", why)
	}
	b.mu.Lock()
	for _, r := range all {
		b.records[file(b.o.Dir, r.Kind, r.ID)] = &r
	}
	b.loaded = true
	last := b.last
	b.mu.Unlock()
	b.See(last)
}

// See takes over what a new machine says. Call it with every one, in order; it is quick.
func (b *Book) See(m accel.Machine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.loaded {
		b.last = m
		return
	}
	for kind, have := range m.Have {
		for _, a := range have.Accelerators {
			b.see(m.Taken, kind, have.Driver, a)
		}
	}
	b.forget()
	if len(b.changed) > 0 {
		select {
		case b.dirty <- struct{}{}:
		default:
		}
	}
}

// see takes over what a machine says of one device.
func (b *Book) see(now time.Time, kind string, d accel.DriverHave, a accel.Accelerator) {
	name, r := b.find(kind, a)
	if r == nil {
		if a.Health.State == "" || a.Health.State == accel.Gone {
			return // nothing is known of it yet
		}
		r = &Record{Schema: schema, Kind: kind, ID: identity(a), Address: a.ID, First: now}
		r.add(Entry{What: Found, At: now, Address: a.ID})
		b.records[name], b.changed[name] = r, true
	}
	if a.Health.State != accel.Gone && r.Address != a.ID {
		r.add(Entry{What: Moved, At: now, Address: a.ID, Message: "from " + r.Address})
		r.Address, b.changed[name] = a.ID, true
	}
	if model := cut(a.Model); model != "" && model != r.Model {
		r.Model, b.changed[name] = model, true
	}
	if now.Sub(r.Last) >= precision && a.Health.State != accel.Gone {
		r.Last, b.changed[name] = now.Truncate(precision), true
	}
	judged, passed, reset := b.judge(r, now, d, a), b.handedOver(r, name, now, a), b.reset(r, name, now, a)
	if waits := r.waits(now, a); waits || judged || passed || reset {
		b.changed[name] = true
	}
}

// reset adds that a device is being reset, and reports whether that is new.
func (b *Book) reset(r *Record, name string, now time.Time, a accel.Accelerator) bool {
	before := b.resets[name]
	b.resets[name] = a.WithheldBy(accel.ByReset)
	if before || !b.resets[name] || b.noted[name] {
		return false
	}
	r.add(Entry{What: Reset, At: now, Address: r.Address})
	return true
}

// waits adds that a device waits for a person, once after each fault, and reports whether that is new.
func (r *Record) waits(now time.Time, a accel.Accelerator) bool {
	e := Entry{At: now, Address: r.Address}
	switch {
	case a.Repair == nil:
	case a.Repair.Would:
		e.What = Would
	case a.Repair.State == accel.RepairGivenUp:
		e.What, e.Message = GivenUp, a.Repair.Message
	}
	if e.What == "" || r.sinceFault(e.What) {
		return false
	}
	r.add(e)
	return true
}

// handedOver adds what is new about the passing of a device from tenant to tenant, and reports whether anything is.
func (b *Book) handedOver(r *Record, name string, now time.Time, a accel.Accelerator) (changed bool) {
	if a.Handover == nil {
		return false
	}
	last := b.passed[name]
	b.passed[name] = *a.Handover
	if a.Handover.Cleaned > last.Cleaned {
		r.add(Entry{What: Cleaned, At: now, Address: r.Address})
		changed = true
	}
	if a.WithheldBy(accel.ByHandover) && last.State != accel.HandoverFailed {
		r.add(Entry{
			What: Unclean, At: now, Address: r.Address, Reason: a.Withheld.Reason, Message: a.Withheld.Message,
		})
		changed = true
	}
	return changed
}

// Enrich notes in each device how many faults of it are on record. The result is accs.
func (b *Book) Enrich(kind string, accs []accel.Accelerator) []accel.Accelerator {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range accs {
		if _, r := b.known(kind, accs[i]); r != nil {
			accs[i].Recorded = r.Count()
		}
	}
	return accs
}

// Past returns in short what a device has been through on this host; false if nothing is on record. It changes at most
// once in a while: a device that flaps causes few writes of whatever it is published in.
func (b *Book) Past(kind string, a accel.Accelerator, now time.Time) (p accel.Past, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name, r := b.known(kind, a)
	if r == nil {
		return accel.Past{}, false
	}
	fresh, last := r.past(), b.shown[name]
	if age := now.Sub(last.at); last.past.Serial == fresh.Serial && age >= 0 && age < publish {
		return last.past, true
	}
	if !reflect.DeepEqual(last.past, fresh) {
		b.shown[name] = shown{fresh, now}
	}
	return fresh, true
}

// known returns the record of a device and its file, as [Book.find] does, and changes nothing.
func (b *Book) known(kind string, a accel.Accelerator) (name string, r *Record) {
	id := identity(a)
	name = file(b.o.Dir, kind, id)
	if r = b.records[name]; r != nil || id != a.ID {
		return name, r
	}
	for other, x := range b.records {
		if x.Kind == kind && x.Address == a.ID && b.seen[other] {
			return other, x
		}
	}
	return name, nil
}

// find returns the record of a device and its file. A device whose serial number is not known now, because its driver
// is not loaded or it is gone, is the one that this book has seen at its address. A record that was begun without a
// serial number goes on under it.
func (b *Book) find(kind string, a accel.Accelerator) (name string, r *Record) {
	name, r = b.known(kind, a)
	if id := identity(a); id != a.ID {
		b.seen[name] = true
		for _, before := range []string{a.UUID, a.ID} { // a serial number may be known later than those
			bare := file(b.o.Dir, kind, cut(before))
			old := b.records[bare]
			if old == nil || before == "" {
				continue
			}
			delete(b.records, bare)
			b.changed[name], b.changed[bare] = true, true
			if r == nil {
				old.ID, r = id, old
				b.records[name] = r
			} else { // a start with a slow driver began a second record, or a kill kept its file from being removed
				r.merge(old)
			}
		}
	}
	return name, r
}

// judge adds what is new about a device's health and proof, and reports whether anything is.
func (b *Book) judge(r *Record, now time.Time, d accel.DriverHave, a accel.Accelerator) (changed bool) {
	h, last := a.Health, r.health()
	switch {
	case h.State == "":
	case h.State == accel.Healthy:
		if r.ill() {
			r.add(Entry{What: Well, At: now, Address: r.Address})
			changed = true
		}
	case last == nil || last.What != Fault || last.State != h.State || last.Reason != h.Reason:
		r.add(Entry{
			What: Fault, At: now, Address: r.Address, State: h.State, Reason: h.Reason, Message: h.Message,
		})
		changed = true
	}
	if !d.Proven.IsZero() && a.Offered() && d.Version != "" && !r.provenWith(d.Version) {
		r.add(Entry{What: Proven, At: d.Proven, Address: r.Address, Driver: d.Version, Message: d.Proof})
		changed = true
	}
	return changed
}

// forget drops the devices that were not seen for the longest time if there are too many.
func (b *Book) forget() {
	for len(b.records) > maxDevices {
		oldest := ""
		for name, r := range b.records {
			if oldest == "" || r.Last.Before(b.records[oldest].Last) {
				oldest = name
			}
		}
		delete(b.records, oldest)
		delete(b.shown, oldest)
		b.changed[oldest] = true
	}
}

// Records returns a copy of all records, as [Read] orders them.
func (b *Book) Records() []Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Record
	for _, r := range b.records {
		c := *r
		c.Entries = slices.Clone(r.Entries)
		all = append(all, c)
	}
	slices.SortFunc(all, order)
	return all
}

// Run reads the records and writes what has changed until ctx ends, and then once more.
func (b *Book) Run(ctx context.Context) error {
	b.load()
	for wait := together; ; {
		select {
		case <-ctx.Done():
			b.write()
			return nil
		case <-b.dirty:
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = together
		if !b.write() {
			wait = again
			select {
			case b.dirty <- struct{}{}:
			default:
			}
		}
	}
}

// write writes the records that have changed. It reports whether all were written; the others are still to be.
func (b *Book) write() bool {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.mu.Lock()
	texts := map[string][]byte{}
	for name := range b.changed {
		texts[name] = nil
		if r := b.records[name]; r != nil {
			text, err := json.Marshal(r)
			if err != nil {
				panic(err) // texts and numbers always marshal
			}
			texts[name] = append(text, '\n')
		}
	}
	b.changed = map[string]bool{}
	b.mu.Unlock()
	var failed []string
	var why error
	for name, text := range texts {
		if err := b.put(name, text); err != nil {
			failed, why = append(failed, name), err
		}
	}
	if why == nil {
		return true
	}
	b.o.Log.Warn("the history of devices cannot be written; it is tried again", "devices", len(failed), "error", why)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range failed {
		b.changed[name] = true
	}
	return false
}

// put writes a record; one that is nil is removed.
func (b *Book) put(name string, text []byte) error {
	if text == nil {
		return b.o.Host.RemoveAll(name)
	}
	const private = 0o700 // serial numbers
	if err := b.o.Host.MkdirAll(b.o.Dir, private); err != nil {
		return err
	}
	return b.o.Host.WriteFile(name, text, 0o600)
}
