package ledger

import "strings"

// Attribute writes text to a sysfs or procfs attribute that can be read back. Its previous text stays on record until
// the next boot. Nothing is written if the attribute already has this text.
func (l *Ledger) Attribute(attr, text string) error {
	key, err := l.Key(attr)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	release, err := l.boot.lock()
	if err != nil {
		return unrecorded(key, err)
	}
	defer release()
	now, err := l.said(key)
	if err != nil {
		return err
	}
	to := &State{Kind: Attribute, Text: strings.TrimSpace(text)}
	if now.sameContent(to) {
		return nil
	}
	r := record{Op: opChange, Path: key, BootID: l.bootID(), Wrote: to}
	if e := l.boot.entries[key]; e == nil || e.bootID != r.BootID {
		r.Prior = now
	}
	if err := l.boot.add(true, r); err != nil {
		return unrecorded(key, err)
	}
	if err := l.say(key, text); err != nil {
		return err
	}
	return l.boot.add(false, record{Op: opDone, Path: key})
}

// said reads an attribute.
func (l *Ledger) said(key string) (*State, error) {
	text, err := l.h.ReadAttribute(key)
	return &State{Kind: Attribute, Text: text}, err
}

// say writes an attribute.
func (l *Ledger) say(key, text string) error {
	return l.files.step("attribute", key, func(string) error { return l.h.WriteAttribute(key, text) })
}

// unsaid returns the text to write so that an attribute reads as said again. Sysfs shows "(null)" for an override that
// is not set, and a lone newline unsets it (driver_set_override, Linux 5.19). An empty write never reaches the kernel,
// so the empty string is written as one NUL.
func unsaid(said string) string {
	switch said {
	case "(null)":
		return "\n"
	case "":
		return "\x00"
	}
	return said
}
