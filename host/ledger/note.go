package ledger

import "fmt"

// Note records something that acceld did to the running kernel or to a device and that is not a file: a module that it
// loaded, or a device that it took from another driver. It is valid until the next boot unless it is lasting.
type Note struct {
	Kind string `json:"kind"` // what was done, such as "module"
	Name string `json:"name"` // what it was done to; there is one note, the latest, for each kind and name
	// Text is what undoing it needs; only its writer interprets it.
	Text   string `json:"text,omitempty"`
	BootID string `json:"bootID,omitempty"`
	// Lasting notes are about what survives a boot. They are on the disk.
	Lasting bool `json:"lasting,omitempty"`
}

// Note records what is about to be done. The record is written when the call returns.
func (l *Ledger) Note(kind, subject, text string) error {
	return l.noted(l.boot, record{Op: opNote, Note: &Note{Kind: kind, Name: subject, Text: text, BootID: l.bootID()}})
}

// Forget removes a note: it was not done, or has been undone.
func (l *Ledger) Forget(kind, subject string) error {
	return l.noted(l.boot, record{Op: opForget, Note: &Note{Kind: kind, Name: subject}})
}

// Notes returns the notes of a kind that are valid in this boot, oldest first. An empty kind means all kinds.
func (l *Ledger) Notes(kind string) ([]Note, error) { return l.notesOf(l.boot, kind) }

// NoteLasting is [Ledger.Note] for what survives a boot: the record is on the disk.
func (l *Ledger) NoteLasting(kind, subject, text string) error {
	return l.noted(l.disk, record{Op: opNote, Note: &Note{Kind: kind, Name: subject, Text: text, Lasting: true}})
}

// ForgetLasting removes a lasting note.
func (l *Ledger) ForgetLasting(kind, subject string) error {
	return l.noted(l.disk, record{Op: opForget, Note: &Note{Kind: kind, Name: subject}})
}

// LastingNotes returns the lasting notes of a kind, oldest first. An empty kind means all kinds.
func (l *Ledger) LastingNotes(kind string) ([]Note, error) { return l.notesOf(l.disk, kind) }

func (l *Ledger) noted(b *book, r record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	release, err := b.lock()
	if err == nil {
		defer release()
		err = b.add(true, r)
	}
	if err == nil {
		err = b.compact()
	}
	if err != nil {
		return fmt.Errorf("cannot note %s %q: %w", r.Note.Kind, r.Note.Name, err)
	}
	return nil
}

func (l *Ledger) notesOf(b *book, kind string) ([]Note, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := b.catchUp(); err != nil {
		return nil, err
	}
	id := l.bootID()
	var out []Note
	for _, n := range b.notes {
		if (kind == "" || n.Kind == kind) && n.valid(id) {
			out = append(out, n)
		}
	}
	return out, nil
}

// valid reports whether a note is valid in a boot.
func (n Note) valid(bootID string) bool { return n.Lasting || n.BootID == bootID }
