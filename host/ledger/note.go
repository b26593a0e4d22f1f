package ledger

import "fmt"

// Note records something that acceld did to the running kernel and that is not a file: a module that it loaded, or a
// device that it took from another driver. It is valid until the next boot.
type Note struct {
	Kind string `json:"kind"` // what was done, such as "module"
	Name string `json:"name"` // what it was done to; there is one note, the latest, for each kind and name
	// Text is what undoing it needs; only its writer interprets it.
	Text   string `json:"text,omitempty"`
	BootID string `json:"bootID,omitempty"`
}

// Note records what is about to be done. The record is written when the call returns.
func (l *Ledger) Note(kind, subject, text string) error {
	n := Note{Kind: kind, Name: subject, Text: text, BootID: l.bootID()}
	return l.noted(record{Op: opNote, Note: &n})
}

// Forget removes a note: it was not done, or has been undone.
func (l *Ledger) Forget(kind, subject string) error {
	return l.noted(record{Op: opForget, Note: &Note{Kind: kind, Name: subject}})
}

func (l *Ledger) noted(r record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	release, err := l.boot.lock()
	if err == nil {
		defer release()
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

// Notes returns the notes of a kind that are valid in this boot, oldest first. An empty kind means all kinds.
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
