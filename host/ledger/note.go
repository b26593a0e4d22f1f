package ledger

import "fmt"

// Note is something that acceld did to the running kernel and that is no file: a module that it loaded, a device that
// it took from another driver. It is true until the next boot.
type Note struct {
	Kind string `json:"kind"` // what was done, such as "module"
	Name string `json:"name"` // to what: one note for each kind and name, the last one
	// Text is what taking it back needs; its writer reads it.
	Text   string `json:"text,omitempty"`
	BootID string `json:"bootID,omitempty"`
}

// Note records what is about to be done. It is on record when the call returns.
func (l *Ledger) Note(kind, subject, text string) error {
	n := Note{Kind: kind, Name: subject, Text: text, BootID: l.bootID()}
	return l.noted(record{Op: opNote, Note: &n})
}

// Forget ends a note: it was not done, or has been taken back.
func (l *Ledger) Forget(kind, subject string) error {
	return l.noted(record{Op: opForget, Note: &Note{Kind: kind, Name: subject}})
}

func (l *Ledger) noted(r record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	release, err := l.boot.lock()
	if err == nil {
		defer release()
		err = l.boot.catchUp()
	}
	if err == nil {
		err = l.boot.add(true, r)
	}
	if err == nil {
		err = l.boot.compact()
	}
	if err != nil {
		return fmt.Errorf("cannot note %s %q: %w", r.Note.Kind, r.Note.Name, err)
	}
	return nil
}

// Notes returns the notes of a kind that are true in this boot, the oldest first; all kinds when it is empty.
func (l *Ledger) Notes(kind string) ([]Note, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.boot.catchUp(); err != nil {
		return nil, err
	}
	id := l.bootID()
	var out []Note
	for _, n := range l.boot.notes {
		if (kind == "" || n.Kind == kind) && n.BootID == id {
			out = append(out, n)
		}
	}
	return out, nil
}
