package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host/ledger"
)

// note is the kind of the ledger's notes about settings.
const note = "setting"

// Record is what the ledger has about a setting of a device: what was there before, and what acceld may have left
// there. It needs no definition to be undone.
type Record struct {
	Kind    string `json:"kind"`
	Address string `json:"address"`
	Setting string `json:"setting"`
	// File is the attribute, as the definition has it; empty for a setting of the probe program.
	File string `json:"file,omitempty"`
	// Before is what was there before acceld; nil if the device did not say it. Undo undoes the setting then.
	Before *string `json:"before,omitempty"`
	Undo   string  `json:"undo,omitempty"`
	// Ours are the texts that acceld may have left there; the last one is what it was about to write, or wrote.
	Ours []string `json:"ours"`
	// Done is true if the last one was seen there.
	Done bool `json:"done,omitempty"`
	// Binding is that of the driver when it was written; see [Binding].
	Binding uint64             `json:"binding,omitempty"`
	Lasting bool               `json:"lasting,omitempty"`
	Needs   accel.SettingNeeds `json:"needs,omitempty"`
}

// Bounds of what is read from the ledger.
const (
	maxRecord = 4 << 10 // bytes
	maxOurs   = 4
)

// last is what acceld wrote last, or was about to write.
func (r Record) last() string { return r.Ours[len(r.Ours)-1] }

// mine reports whether acceld may have written a text.
func (r Record) mine(text string) bool {
	return slices.ContainsFunc(r.Ours, func(o string) bool { return accel.SameSetting(o, text) })
}

// back returns what undoes the setting; known is false if nothing is known to.
func (r Record) back() (text string, known bool) {
	if r.Before != nil {
		return *r.Before, true
	}
	return r.Undo, r.Undo != ""
}

// setting is the setting without its definition, as far as the record has it.
func (r Record) setting() accel.Setting {
	return accel.Setting{Name: r.Setting, File: r.File, Needs: r.Needs, Lasting: r.Lasting}
}

// name is the name of the note about a setting of a device. What survives a boot may come back at another address.
func name(kind string, a accel.Accelerator, setting string, lasting bool) string {
	id := a.ID
	for _, own := range []string{a.UUID, a.Serial} {
		if lasting && own != "" {
			id = own
		}
	}
	return fmt.Sprintf("%s %.200s %s", kind, id, setting)
}

// decode reads the text of a note and holds it to what acceld writes.
func decode(text string) (r Record, err error) {
	if len(text) > maxRecord {
		return r, fmt.Errorf("it has %d bytes", len(text))
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, err
	}
	strange := func(s string) bool { return !accel.SettingText(s) }
	switch {
	case r.Kind == "" || !accel.IsAddress(r.Address) || !accel.SettingName(r.Setting):
		return r, errors.New("it names no setting of a device")
	case len(r.Ours) == 0 || len(r.Ours) > maxOurs || slices.ContainsFunc(r.Ours, strange):
		return r, errors.New("it does not say what was written")
	case r.Before != nil && strange(*r.Before) || r.Undo != "" && strange(r.Undo):
		return r, errors.New("what was there before is no value of a setting")
	case r.File != "" && (path.IsAbs(r.File) || slices.Contains(strings.Split(r.File, "/"), "..")):
		return r, errors.New("its file is not the device's own")
	}
	return r, nil
}

func (r Record) encode() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // texts and numbers always marshal
	}
	return string(text)
}

// book has the records of a host. It is safe for concurrent use.
type book struct {
	ledger *ledger.Ledger

	mu      sync.Mutex
	records map[string]Record // by the name of the note; nil before they are read
}

// load reads the records. Bad are notes that cannot be read, with the reason.
func (b *book) load() (bad []string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.records != nil {
		return nil, nil
	}
	notes, err := b.ledger.Notes(note)
	if err != nil {
		return nil, err
	}
	lasting, err := b.ledger.LastingNotes(note)
	if err != nil {
		return nil, err
	}
	b.records = map[string]Record{}
	for _, n := range slices.Concat(lasting, notes) {
		r, err := decode(n.Text)
		if err != nil {
			bad = append(bad, fmt.Sprintf("%s: %v", n.Name, err))
			continue
		}
		r.Lasting = n.Lasting
		b.records[n.Name] = r
	}
	return bad, nil
}

// of returns a record; nil if there is none.
func (b *book) of(name string) *Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r, ok := b.records[name]; ok {
		return &r
	}
	return nil
}

// put writes a record down. It is on record when put returns.
func (b *book) put(name string, r Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.records == nil {
		return errors.New("what is on record cannot be read")
	}
	write := b.ledger.Note
	if r.Lasting {
		write = b.ledger.NoteLasting
	}
	if err := write(note, name, r.encode()); err != nil {
		return err
	}
	b.records[name] = r
	return nil
}

// drop removes a record.
func (b *book) drop(name string, r Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	forget := b.ledger.Forget
	if r.Lasting {
		forget = b.ledger.ForgetLasting
	}
	if err := forget(note, name); err != nil {
		return err
	}
	delete(b.records, name)
	return nil
}

// about returns the names of a kind's settings that are on record for a device, in order.
func (b *book) about(kind string, a accel.Accelerator) (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, r := range b.records {
		if r.Kind == kind && key == name(kind, a, r.Setting, r.Lasting) {
			names = append(names, r.Setting)
		}
	}
	slices.Sort(names)
	return names
}
