package ledger

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/host"
)

// Remaining returns how many changes and notes are still on record. Directories around acceld's own are not counted.
func (l *Ledger) Remaining() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remaining()
}

// Recorded reports whether a change of the file is still on record, or the file is as it was before acceld because an
// Undo restored it.
func (l *Ledger) Recorded(name string) (bool, error) {
	key, err := l.Key(name)
	if err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bookOf(key)
	if err := b.catchUp(); err != nil {
		return false, err
	}
	return b.entries[key] != nil || b.restored[key] != nil, nil
}

// Links returns the links on record whose target text begins with prefix, in order.
func (l *Ledger) Links(prefix string) (out []string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range []*book{l.boot, l.disk} {
		if err := b.catchUp(); err != nil {
			return nil, err
		}
		for _, e := range b.entries {
			if s := e.last(); s.Kind == Link && strings.HasPrefix(s.Text, prefix) {
				out = append(out, e.path)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

func (l *Ledger) remaining() (int, error) {
	n, id := 0, l.bootID()
	for _, b := range []*book{l.boot, l.disk} {
		if err := b.catchUp(); err != nil {
			return 0, err
		}
		for _, e := range b.entries {
			if !l.above(e.path) {
				n++
			}
		}
		for _, note := range b.notes {
			if note.valid(id) {
				n++
			}
		}
	}
	return n, nil
}

// Discard removes acceld's own directories, the state directory and [RunDir], with everything in them. While the
// ledger has anything on record, the ledger itself stays and everything else is removed. Directories around them that
// acceld had to create are removed too. Discard returns the paths that it removed and those that it could not remove.
// With dry it changes nothing and answers as if everything had been undone.
func (l *Ledger) Discard(dry bool) ([]Outcome, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest, err := l.remaining()
	if err != nil {
		return nil, err
	}
	if dry {
		rest = 0 // in a dry run, what would be undone is still on record
	}
	var around []record
	for _, b := range []*book{l.boot, l.disk} {
		for _, r := range b.records() {
			if (r.Op == opChange || r.Op == opTimes) && l.above(r.Path) {
				around = append(around, r)
			}
		}
	}
	var out []Outcome
	for _, dir := range []string{l.stateDir, RunDir} {
		removed, err := l.discard(dir, rest > 0, dry)
		if removed {
			out = append(out, Outcome{Path: dir, Action: Removed})
		}
		if err != nil {
			out = append(out, Outcome{Path: dir}.left(err))
		}
	}
	if rest == 0 && !dry {
		l.tidy(around)
	}
	return out, nil
}

// discard empties one of acceld's own directories.
func (l *Ledger) discard(dir string, keep, dry bool) (removed bool, err error) {
	entries, err := os.ReadDir(l.files.path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, host.Relabel(err, dir)
	}
	if dry {
		return !keep, nil
	}
	for _, e := range entries {
		if keep && e.Name() == "ledger" {
			continue
		}
		key := path.Join(dir, e.Name())
		err = errors.Join(err, l.files.step("removeall", key, os.RemoveAll))
	}
	if err != nil || keep {
		return false, err
	}
	err = l.files.step("rmdir", dir, func(p string) error { return unlinked(unix.Rmdir(p)) })
	if errors.Is(err, unix.EBUSY) {
		return true, nil // it is a mount point: emptying it is all that can be done
	}
	return err == nil, err
}

// tidy undoes what creating the books changed around them. Its errors are only logged: the books are gone, so nothing
// could be retried.
func (l *Ledger) tidy(around []record) {
	for i := len(around) - 1; i >= 0; i-- {
		r := around[i]
		var err error
		if r.Op == opChange && r.Prior != nil && r.Prior.Kind == Absent {
			err = l.files.rmdir(r.Path)
		}
		if sum, _, _, e := l.files.listing(r.Path); r.Op == opTimes && e == nil && sum == r.Listing {
			err = l.files.setTime(r.Path, r.Mtime)
		}
		if err != nil {
			l.log.Debug("a directory above acceld's own stays", "path", r.Path, "error", err)
		}
	}
}
