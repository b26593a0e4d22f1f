package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// Action says what happened to a path.
type Action string

// The actions.
const (
	Restored Action = "restored" // it is again as it was before acceld
	Removed  Action = "removed"  // it did not exist before acceld, and is removed
	Settled  Action = "settled"  // it already was as before acceld
	Kept     Action = "kept"     // the caller asked to keep it, or others use it now; the detail says how
	Left     Action = "left"     // it is left as found; the reason says why
)

// Outcome is what Undo did with one path, or would do.
type Outcome struct {
	Path   string       `json:"path"`
	Action Action       `json:"action"`
	Reason accel.Reason `json:"reason,omitempty"` // for Left
	Detail string       `json:"detail,omitempty"`
}

// UndoOptions choose what to undo.
type UndoOptions struct {
	// DryRun changes nothing and takes no lock; the outcomes are what would happen.
	DryRun bool
	// Keep leaves the paths as they are and removes them from the record.
	Keep bool
	// Only selects the paths for which it returns true; nil selects all.
	Only func(path string) bool
}

// Undo undoes what the ledger has on record, the last change first. Each path is restored to its state before acceld,
// with content, mode, owner, extended attributes and time, unless somebody else has changed it since. A directory that
// acceld created is removed if it is empty; if others have put something into it, it is theirs from now on. If somebody
// else has changed the permissions or owner of a file since,
// those stay. A path that is left stays on record, so that a later Undo can finish. If an Undo is interrupted at any
// step, the next one finishes it.
//
// Undo returns an error if a ledger cannot be read or locked; then nothing was changed.
func (l *Ledger) Undo(o UndoOptions) ([]Outcome, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Outcome
	if !o.DryRun {
		release, err := l.lock()
		if err != nil {
			return nil, err
		}
		defer release()
	}
	for _, b := range []*book{l.boot, l.disk} { // if one cannot be read, neither is touched
		if err := b.catchUp(); err != nil {
			return nil, err
		}
	}
	for _, b := range []*book{l.boot, l.disk} {
		out = append(out, l.undoBook(b, o)...)
	}
	return out, nil
}

// lock takes the locks of the existing books.
func (l *Ledger) lock() (release func(), err error) {
	var held []func()
	release = func() {
		for _, r := range held {
			r()
		}
	}
	for _, b := range []*book{l.boot, l.disk} {
		if !b.there() {
			continue
		}
		r, err := b.lock()
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, r)
	}
	return release, nil
}

// Changed returns the paths that acceld wrote and that somebody else has changed since.
func (l *Ledger) Changed() ([]Outcome, error) {
	all, err := l.Undo(UndoOptions{DryRun: true})
	return slices.DeleteFunc(all, func(o Outcome) bool { return o.Action != Left || o.Reason != accel.FileChanged }),
		err
}

func (l *Ledger) undoBook(b *book, o UndoOptions) []Outcome {
	var out []Outcome
	done := map[string]Action{}
	for _, e := range b.newest() {
		if o.Only != nil && !o.Only(e.path) || l.above(e.path) {
			continue
		}
		result := Outcome{Path: e.path, Action: Kept}
		if !o.Keep {
			result = l.undoEntry(b, e, o.DryRun, done)
		}
		done[e.path] = result.Action
		out = append(out, result)
		if result.Action == Left || o.DryRun {
			continue
		}
		undone := record{Op: opUndone, Path: e.path}
		if e.prior.Kind != Absent && result.Action != Kept {
			undone.Prior = e.prior
		}
		if err := b.add(false, undone); err != nil {
			// Nothing is lost: the next Undo finds the path already restored.
			l.log.Debug("an undone change is still on record", "path", e.path, "error", err)
		}
	}
	if !o.DryRun {
		out = append(out, l.undoTimes(b, o)...)
		if err := b.sweep(); err != nil && b.there() {
			l.log.Debug("contents that are needed no more are still there", "error", err)
		}
	}
	return out
}

// above reports whether key is a directory that contains acceld's own. Those are removed last, see [Ledger.Discard].
func (l *Ledger) above(key string) bool { return below(l.stateDir, key) || below(RunDir, key) }

func (l *Ledger) undoEntry(b *book, e *entry, dry bool, done map[string]Action) Outcome {
	out := Outcome{Path: e.path}
	if e.bootID != "" && e.bootID != l.bootID() {
		return l.undoForeignBoot(b, e, dry)
	}
	now, err := b.observe(e.path)
	if e.last().Kind == Attribute {
		now, err = l.said(e.path)
		if errors.Is(err, fs.ErrNotExist) { // its device or module is gone, and so is the setting
			return Outcome{Path: e.path, Action: Settled}
		}
	}
	if err != nil {
		return out.left(err)
	}
	mine := e.mine(now)
	switch {
	case now.sameContent(e.prior) && (mine == nil || now.whole(e.prior)):
		out.Action = Settled
		if !dry {
			if err := b.clear(e.path); err != nil {
				return out.left(err)
			}
		}
		return out
	case mine == nil:
		out.Action, out.Reason, out.Detail = Left, accel.FileChanged, now.differs(e.last())
		if e.prior.Kind == File {
			out.Detail += fmt.Sprintf("; what was there before acceld is in %q", b.blob(e.prior.SHA256))
		}
		return out
	}
	out.Action = Restored
	if e.prior.Kind == Absent {
		out.Action = Removed
	}
	if e.prior.Names > 1 {
		out.Detail = fmt.Sprintf("it was one of %d names of a file and is a file of its own now", e.prior.Names)
	}
	if now.Kind == Dir {
		if o, full := b.full(e.path, done); full {
			return o
		}
	}
	if !dry {
		if err := l.restore(b, e, now, mine); err != nil {
			return out.left(err)
		}
	}
	return out
}

// full reports whether a directory holds anything that is not about to be removed. What acceld has not made belongs to
// others, and with it the directory, unless something of acceld's stays in it.
func (b *book) full(key string, done map[string]Action) (Outcome, bool) {
	_, names, _, err := b.listing(key)
	if err != nil {
		return Outcome{Path: key}.left(err), true
	}
	out := Outcome{Path: key, Action: Kept}
	names = slices.DeleteFunc(names, func(n string) bool { return done[path.Join(key, n)] == Removed })
	if len(names) == 0 {
		return Outcome{}, false
	}
	for _, n := range names {
		p := path.Join(key, n)
		if action, tried := done[p]; action == Left || !tried && b.entries[p] != nil {
			out.Action, out.Reason = Left, accel.FileChanged
		}
	}
	more := ""
	if len(names) > 3 {
		more = fmt.Sprintf(" and %d more", len(names)-3)
		names = names[:3]
	}
	out.Detail = "it holds " + strings.Join(names, ", ") + more
	if out.Action == Kept {
		out.Detail = "others use it: " + out.Detail
	}
	return out, true
}

// undoForeignBoot handles an entry that was written in another boot, below directories that a boot empties. If the
// path exists all the same, as acceld wrote it and where nothing was before, it is ours. Anything else belongs to this
// boot.
func (l *Ledger) undoForeignBoot(b *book, e *entry, dry bool) Outcome {
	out := Outcome{Path: e.path, Action: Settled}
	now, err := b.observe(e.path)
	if err != nil || e.prior.Kind != Absent || now.Kind != File && now.Kind != Link && now.Kind != Dir ||
		e.mine(now) == nil {
		return out
	}
	if _, names, _, err := b.listing(e.path); now.Kind == Dir && (err != nil || len(names) > 0) {
		return out
	}
	out.Action = Removed
	if !dry {
		if err := b.remove(e.path, now); err != nil {
			return out.left(err)
		}
	}
	return out
}

// left returns the outcome of a path that could not be undone.
func (o Outcome) left(err error) Outcome {
	o.Action, o.Reason, o.Detail = Left, accel.ReasonForError(err, accel.InternalError), err.Error()
	var p *accel.Problem
	if errors.As(err, &p) {
		o.Reason, o.Detail = p.Reason, p.Message
	}
	return o
}

// restore restores a path to its prior state, in one step.
func (l *Ledger) restore(b *book, e *entry, now, mine *State) error {
	to := *e.prior
	if to.Kind == Attribute {
		return l.say(e.path, unsaid(to.Text))
	}
	if to.Kind == Absent {
		return b.remove(e.path, now)
	}
	if st, err := os.Lstat(b.path(path.Dir(e.path))); err != nil || !st.IsDir() {
		return accel.Problemf(accel.FileChanged, "its directory is gone")
	}
	if now.Kind == mine.Kind && now.Kind != Link && now.Mode != mine.Mode {
		to.Mode = now.Mode // somebody else decided who may read it
	}
	if now.Kind == mine.Kind && (now.UID != mine.UID || now.GID != mine.GID) {
		to.UID, to.GID = now.UID, now.GID
	}
	if to.Kind == Dir && now.Kind == Dir { // its time first: once the rest is right, the directory counts as restored
		return errors.Join(b.setTime(e.path, to.Mtime), b.dress(e.path, &to))
	}
	if to.Kind != File {
		return b.replace(e.path, &to, nil)
	}
	from, err := b.open(&to)
	if err != nil {
		return err
	}
	defer from.Close()
	return b.replace(e.path, &to, from)
}

// undoTimes restores the time of directories that hold the same names again.
func (l *Ledger) undoTimes(b *book, o UndoOptions) []Outcome {
	var out []Outcome
	for key, t := range b.times {
		waits := func(e *entry) bool { return path.Dir(e.path) == key || path.Dir(passage(e.path)) == key }
		if o.Only != nil && !o.Only(key) || l.above(key) || slices.ContainsFunc(b.newest(), waits) {
			continue
		}
		sum, _, mtime, err := b.listing(key)
		if err == nil && sum == t.listing && !mtime.Equal(t.mtime) && (t.bootID == "" || t.bootID == l.bootID()) {
			err = b.setTime(key, t.mtime)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			out = append(out, Outcome{Path: key}.left(err))
			continue
		}
		if err := b.add(false, record{Op: opTimed, Path: key}); err != nil {
			l.log.Debug("a directory's time is still on record", "path", key, "error", err)
		}
	}
	return out
}
