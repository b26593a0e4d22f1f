package ledger

import "strings"

// Attribute writes text to an attribute of sysfs or procfs, whose text it can be read back from. What it said before is
// on record until the next boot. Nothing is written when it says so already.
func (l *Ledger) Attribute(attr, text string) error {
	key, err := l.resolve(attr)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attribute(key, text)
}

func (l *Ledger) attribute(key, text string) error {
	release, err := l.boot.lock()
	if err != nil {
		return unrecorded(key, err)
	}
	defer release()
	if err := l.boot.catchUp(); err != nil {
		return unrecorded(key, err)
	}
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

// said returns what an attribute says.
func (l *Ledger) said(key string) (*State, error) {
	text, err := l.h.ReadAttribute(key)
	return &State{Kind: Attribute, Text: text}, err
}

// say writes to an attribute.
func (l *Ledger) say(key, text string) error {
	return l.files.step("attribute", key, func(string) error { return l.h.WriteAttribute(key, text) })
}

// unsaid is the text that brings an attribute back to what it said: sysfs says "(null)" of an override that is not set
// and unsets it at a lone newline (driver_set_override, Linux 5.19); a write of nothing never reaches the kernel, so an
// empty string is one NUL.
func unsaid(said string) string {
	switch said {
	case "(null)":
		return "\n"
	case "":
		return "\x00"
	}
	return said
}
