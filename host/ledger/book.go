package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

// entry is one path that acceld changed.
type entry struct {
	path   string
	seq    int // entries are undone from the highest to the lowest
	bootID string
	prior  *State
	// ours holds the states that acceld may have put there: the last completed one and, after a crash, those begun
	// since.
	ours []*State
}

// last returns what acceld wrote, or was about to write, last.
func (e *entry) last() *State { return e.ours[len(e.ours)-1] }

// mine returns the state of ours with the same content as now, or nil if somebody else changed the path.
func (e *entry) mine(now *State) *State {
	for _, s := range slices.Backward(e.ours) {
		if s.sameContent(now) {
			return s
		}
	}
	return nil
}

// times describes a directory before the first change in it.
type times struct {
	bootID, listing string
	mtime           time.Time
}

// content is the decoded content of a journal.
type content struct {
	entries map[string]*entry
	// restored has what was there before acceld, of the paths at which it is there again.
	restored map[string]*State
	times    map[string]times
	notes    []Note
	seq      int
}

func newContent() content {
	return content{entries: map[string]*entry{}, restored: map[string]*State{}, times: map[string]times{}}
}

// apply applies one record. The first change of a path must have the prior state; otherwise the journal has a gap.
func (c *content) apply(r record) error {
	c.seq++
	switch r.Op {
	case opChange:
		e := c.entries[r.Path]
		if r.Wrote == nil || !path.IsAbs(r.Path) || e == nil && r.Prior == nil {
			return fmt.Errorf("the record of %q is not complete", r.Path)
		}
		if r.Prior != nil {
			e = &entry{path: r.Path, seq: c.seq, bootID: r.BootID, prior: r.Prior}
			c.entries[r.Path] = e
			delete(c.restored, r.Path)
		}
		e.ours = append(e.ours, r.Wrote)
	case opDone:
		e := c.entries[r.Path]
		if e == nil {
			break
		}
		e.ours = e.ours[len(e.ours)-1:]
		if e.last().Kind == Absent && e.prior.Kind == Absent {
			delete(c.entries, r.Path) // acceld undid its own change: what appears there later belongs to somebody else
		}
	case opUndone:
		delete(c.entries, r.Path)
		if r.Prior != nil {
			c.restored[r.Path] = r.Prior
		}
	case opTimed:
		delete(c.times, r.Path)
	case opTimes:
		if old, ok := c.times[r.Path]; !ok || old.bootID != r.BootID {
			c.times[r.Path] = times{r.BootID, r.Listing, r.Mtime}
		}
	case opNote, opForget:
		if r.Note == nil {
			return fmt.Errorf("a record %q is not complete", r.Op)
		}
		c.notes = slices.DeleteFunc(c.notes, func(n Note) bool {
			return n.Kind == r.Note.Kind && n.Name == r.Note.Name
		})
		if r.Op == opNote {
			c.notes = append(c.notes, *r.Note)
		}
	}
	return nil
}

// newest returns the entries in the order in which they must be undone.
func (c *content) newest() []*entry {
	var out []*entry
	for _, e := range c.entries {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *entry) int { return b.seq - a.seq })
	return out
}

// records returns the shortest list of records with the same meaning.
func (c *content) records() []record {
	out := []record{{Op: opSchema, Schema: schema, Time: time.Now().UTC()}}
	for key, t := range c.times {
		out = append(out, record{Op: opTimes, Path: key, BootID: t.bootID, Listing: t.listing, Mtime: t.mtime})
	}
	for _, e := range slices.Backward(c.newest()) {
		prior := e.prior
		for _, s := range e.ours {
			out = append(out, record{Op: opChange, Path: e.path, BootID: e.bootID, Prior: prior, Wrote: s})
			prior = nil
		}
		if len(e.ours) == 1 {
			out = append(out, record{Op: opDone, Path: e.path})
		}
	}
	for key, prior := range c.restored {
		out = append(out, record{Op: opUndone, Path: key, Prior: prior})
	}
	for i := range c.notes {
		out = append(out, record{Op: opNote, Note: &c.notes[i]})
	}
	return out
}

// book is one journal with its blobs, in its own directory.
type book struct {
	*files
	dir string
	// bootID returns the boot in which a new record is valid; "" means every boot.
	bootID func() string

	// base holds the first records of a new journal: the state before the book's own directory was created.
	base []record

	content
	head  string // the first line of the journal that was read; it has the time of the journal's creation
	read  int64  // bytes of it
	lines int
}

func (b *book) journal() string         { return path.Join(b.dir, "journal") }
func (b *book) blob(sum string) string  { return path.Join(b.dir, "blobs", sum) }
func (b *book) there() bool             { _, err := os.Lstat(b.path(b.dir)); return err == nil }
func (b *book) damaged(err error) error { return fail(accel.LedgerDamaged, b.journal(), err) }

// lock waits for the book's lock, creates the book if it is missing, and reads it. The lock ends with its process.
func (b *book) lock() (release func(), err error) {
	for {
		if err := b.found(); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(b.path(path.Join(b.dir, "lock")), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, host.Relabel(err, path.Join(b.dir, "lock"))
		}
		if err := host.Flock(f, unix.LOCK_EX); err != nil {
			_ = f.Close() // nothing was written
			return nil, fmt.Errorf("cannot lock %q: %w", b.dir, err)
		}
		ours, err1 := f.Stat()
		there, err2 := os.Stat(b.path(path.Join(b.dir, "lock")))
		if err1 == nil && err2 == nil && os.SameFile(ours, there) {
			if err := b.catchUp(); err != nil {
				_ = f.Close() // nothing was written
				return nil, err
			}
			return func() { _ = f.Close() }, nil
		}
		_ = f.Close() // a purge removed it while we waited
	}
}

// found creates the book's directories. The book is accessible to root alone: blobs may hold secrets. Everyone can go
// through the state directory above it, where programs may be.
func (b *book) found() error {
	if _, err := os.Lstat(b.path(path.Join(b.dir, "blobs"))); err == nil {
		return nil
	}
	own := path.Dir(b.dir)
	if _, err := os.Lstat(b.path(own)); err != nil {
		if b.base, err = b.announce(own); err != nil {
			return err
		}
	}
	dirs := []string{own, b.dir, path.Join(b.dir, "blobs")}
	for dir := path.Dir(own); dir != "/"; dir = path.Dir(dir) {
		dirs = append([]string{dir}, dirs...)
	}
	for _, dir := range dirs {
		mode := fs.FileMode(0o700)
		switch {
		case !below(dir, own) || dir == RunDir:
			mode = 0o755 // others need to reach the socket in it
		case dir == own:
			mode = 0o711
		}
		if _, err := os.Stat(b.path(dir)); err == nil && !below(dir, own) {
			continue
		}
		if err := b.mkdirLasting(dir, mode); err != nil {
			return err
		}
	}
	return nil
}

// announce returns records of what the creation of key changes around it: the missing directories, and the time of the
// existing directory above them. Directories that the book has already recorded are left out.
func (b *book) announce(key string) (records []record, err error) {
	bootID := b.bootID()
	dir := path.Dir(key)
	for ; dir != "/"; dir = path.Dir(dir) {
		st, err := os.Lstat(b.path(dir))
		if err == nil && !st.IsDir() {
			return nil, &fs.PathError{Op: "mkdir", Path: dir, Err: unix.ENOTDIR}
		}
		if err == nil {
			break
		}
		r := record{Op: opChange, Path: dir, BootID: bootID, Wrote: &State{Kind: Dir}}
		if b.entries[dir] == nil {
			r.Prior = &State{Kind: Absent}
		}
		records = append([]record{r}, records...)
	}
	changed := []string{dir}
	if len(records) == 0 { // the entry's temporary name may be in another directory
		changed = slices.Compact([]string{dir, path.Dir(passage(key))})
	}
	for _, dir := range changed {
		if t, ok := b.times[dir]; ok && t.bootID == bootID || b.entries[dir] != nil {
			continue
		}
		sum, _, mtime, err := b.listing(dir)
		if err != nil {
			return nil, err
		}
		records = append([]record{{Op: opTimes, Path: dir, BootID: bootID, Listing: sum, Mtime: mtime}}, records...)
	}
	return records, nil
}

// catchUp reads what was appended to the journal since the last call. It needs no lock: an append is seen whole or as
// a torn line, and a compacted journal is a new file.
func (b *book) catchUp() error {
	f, err := os.OpenFile(b.path(b.journal()), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		b.content, b.head, b.read, b.lines = newContent(), "", 0, 0
		return nil
	}
	if err != nil {
		return host.Relabel(err, b.journal())
	}
	defer f.Close()
	head := make([]byte, len(b.head))
	if _, err := f.ReadAt(head, 0); b.head == "" || err != nil || string(head) != b.head {
		b.content, b.head, b.read, b.lines = newContent(), "", 0, 0 // another journal, or the first read
	}
	text, err := io.ReadAll(io.NewSectionReader(f, b.read, math.MaxInt64-b.read))
	if err != nil {
		return host.Relabel(err, b.journal())
	}
	records, good, err := split(text, b.lines)
	if err != nil {
		return b.damaged(err)
	}
	if b.lines == 0 && len(records) > 0 && records[0].Op != opSchema {
		return b.damaged(errors.New("it does not begin as a ledger does"))
	}
	for _, r := range records {
		if err := b.apply(r); err != nil {
			b.head = "" // what was read of it cannot be trusted
			return b.damaged(err)
		}
	}
	if b.lines == 0 && good > 0 {
		first, _, _ := bytes.Cut(text, []byte{'\n'})
		b.head = string(first)
	}
	b.read += int64(good)
	b.lines += len(records)
	return nil
}

// add appends records to the journal. If lasting is true, it returns when they are on the disk. The caller holds the
// lock.
func (b *book) add(lasting bool, records ...record) error {
	fresh := b.lines == 0
	if fresh {
		begun := record{Op: opSchema, Schema: schema, Time: time.Now().UTC()}
		records = slices.Concat([]record{begun}, b.base, records)
	}
	text, err := encode(records...)
	if err != nil {
		return err
	}
	var f *os.File
	err = b.step("open", b.journal(), func(p string) (err error) {
		f, err = os.OpenFile(p, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	defer f.Close()
	if err := b.step("truncate", b.journal(), func(string) error { return f.Truncate(b.read) }); err != nil {
		return err
	}
	err = b.step("append", b.journal(), func(string) error { _, err := f.WriteAt(text, b.read); return err })
	if err != nil {
		if b.fault != nil {
			_, _ = f.WriteAt(text[:len(text)*2/3], b.read) // a test's fault interrupts the write halfway
		}
		return err
	}
	if lasting {
		if err := b.step("fsync", b.journal(), func(string) error { return f.Sync() }); err != nil {
			return err
		}
		if fresh {
			if err := b.syncDir(b.dir); err != nil {
				return err
			}
		}
	}
	return b.catchUp()
}

// compactAt is the size in bytes from which rewriting a journal pays off: some hundred lines.
const compactAt = 256 << 10

// compact rewrites the journal if most of it is history, and removes blobs that are no longer needed.
func (b *book) compact() error {
	if b.read < compactAt || b.lines < 8*(len(b.entries)+len(b.notes)+len(b.times)) {
		return nil
	}
	text, err := encode(b.records()...)
	if err != nil {
		return err
	}
	to := &State{Kind: File, Mode: 0o600, UID: os.Geteuid(), GID: os.Getegid()}
	if err := b.replace(b.journal(), to, bytes.NewReader(text)); err != nil {
		return err
	}
	if err := b.catchUp(); err != nil {
		return err
	}
	return b.sweep()
}

// sweep removes blobs that no entry needs.
func (b *book) sweep() error {
	needed := map[string]bool{}
	for _, e := range b.entries {
		needed[e.prior.SHA256] = true
	}
	dir := path.Join(b.dir, "blobs")
	entries, err := os.ReadDir(b.path(dir))
	if err != nil {
		return host.Relabel(err, dir)
	}
	for _, e := range entries {
		if !needed[e.Name()] {
			err = errors.Join(err, b.unlink(path.Join(dir, e.Name())))
		}
	}
	return err
}

// keep stores the content of the file key as a blob and returns its state. The stored content always matches the
// digest, even if somebody writes to the file at the same time, because the digest is taken from the stored copy.
func (b *book) keep(key string) (*State, error) {
	s, err := b.observe(key)
	if err != nil || s.Kind != File {
		return s, err
	}
	if sum, _, err := b.sum(b.blob(s.SHA256)); err == nil && sum == s.SHA256 {
		return s, nil
	}
	temp := path.Join(b.dir, "blobs", tempPrefix+"new"+tempSuffix)
	if err := b.unlink(temp); err != nil {
		return nil, err
	}
	from, err := os.OpenFile(b.path(key), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, host.Relabel(err, key)
	}
	defer from.Close()
	err = b.write(temp, from)
	if err == nil {
		err = b.syncDir(temp)
	}
	if err == nil {
		s.SHA256, s.Size, err = b.sum(temp)
	}
	if err == nil {
		err = b.step("rename", temp, func(p string) error { return os.Rename(p, b.path(b.blob(s.SHA256))) })
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot keep the content of %q: %w", key, err), b.unlink(temp))
	}
	return s, b.syncDir(path.Join(b.dir, "blobs"))
}

// open verifies and opens the blob of a prior state: either the exact content is restored, or nothing.
func (b *book) open(s *State) (*os.File, error) {
	sum, _, err := b.sum(b.blob(s.SHA256))
	if err == nil && sum != s.SHA256 {
		err = errSum
	}
	if err != nil {
		return nil, fail(accel.LedgerDamaged, b.blob(s.SHA256), err)
	}
	return os.Open(b.path(b.blob(s.SHA256)))
}

// fail returns an error about a file of the ledger, with a reason.
func fail(r accel.Reason, key string, err error) error {
	return accel.Problemf(accel.ReasonForError(err, r), "cannot use %q: %v", key, err)
}
