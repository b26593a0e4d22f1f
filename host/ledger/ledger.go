package ledger

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/acceld/acceld/host"
)

// RunDir is acceld's directory for everything that ends with the boot: sockets, locks, and the second book.
const RunDir = "/run/acceld"

// Ledger changes the files of one host and records the changes. It is safe for concurrent use, even by several
// processes: the agent and the command line share the books through a lock.
type Ledger struct {
	h        *host.Host
	log      *slog.Logger
	stateDir string

	mu         sync.Mutex
	files      *files
	disk, boot *book
}

// Open returns the ledger of h in the directory stateDir, an absolute path as the machine sees it. Nothing is read or
// created before the first call that needs it. Open fails only if stateDir cannot be a state directory.
func Open(h *host.Host, stateDir string, log *slog.Logger) (*Ledger, error) {
	if !path.IsAbs(stateDir) || path.Clean(stateDir) == "/" {
		return nil, fmt.Errorf("cannot keep a ledger in %q: not an absolute path of a directory", stateDir)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := &Ledger{h: h, log: log, files: &files{root: h.Root()}}
	var err error
	if l.stateDir, err = l.Key(stateDir); err != nil {
		return nil, err
	}
	always := func() string { return "" }
	l.disk = &book{files: l.files, dir: path.Join(l.stateDir, "ledger"), bootID: always, content: newContent()}
	l.boot = &book{files: l.files, dir: path.Join(RunDir, "ledger"), bootID: l.bootID, content: newContent()}
	return l, nil
}

// Key returns the path under which name is on record: links in its directory are resolved inside the root, its last
// element is not.
func (l *Ledger) Key(name string) (string, error) {
	clean := path.Clean("/" + name)
	dir, err := l.h.Follow(path.Dir(clean))
	if err != nil {
		return "", err
	}
	return path.Join(dir, path.Base(clean)), nil
}

// below reports whether key is dir or in it.
func below(key, dir string) bool { return key == dir || strings.HasPrefix(key, dir+"/") }

// volatile reports whether key is in a tree that does not survive a reboot.
func volatile(key string) bool {
	return slices.ContainsFunc([]string{"/run", "/dev", "/sys", "/proc"}, func(dir string) bool {
		return below(key, dir)
	})
}

// own reports whether key is in one of acceld's own directories, which are removed as a whole.
func (l *Ledger) own(key string) bool { return below(key, l.stateDir) || below(key, RunDir) }

// bookOf returns the book for key.
func (l *Ledger) bookOf(key string) *book {
	if volatile(key) {
		return l.boot
	}
	return l.disk
}

func (l *Ledger) bootID() string {
	id, err := l.h.ReadAttribute("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // a copy of a machine
	}
	return id
}

// WriteFile makes name a regular file with this content and mode, in one step: a reader sees either the old state or
// the complete new file. Missing directories are created with mode 0755. A file that is replaced passes on its owner
// and extended attributes. Nothing happens if the file is already right.
func (l *Ledger) WriteFile(name string, data []byte, mode fs.FileMode) error {
	sum := sha256.Sum256(data)
	to := State{Kind: File, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data)), Mode: permissions(mode)}
	return l.change(name, to, bytes.NewReader(data))
}

// permissions converts mode to the bits of st_mode.
func permissions(mode fs.FileMode) uint32 {
	m := uint32(mode.Perm())
	for bit, is := range map[uint32]fs.FileMode{
		unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid,
		unix.S_ISVTX: fs.ModeSticky,
	} {
		if mode&is != 0 {
			m |= bit
		}
	}
	return m
}

// Symlink makes name a symbolic link with this target text, replacing a file or link.
func (l *Ledger) Symlink(text, name string) error {
	return l.change(name, State{Kind: Link, Text: text}, nil)
}

// Mknod makes name a character device with these numbers and this mode, replacing a file or node.
func (l *Ledger) Mknod(name string, major, minor uint32, mode fs.FileMode) error {
	return l.change(name, State{Kind: CharNode, Device: unix.Mkdev(major, minor), Mode: permissions(mode)}, nil)
}

// MkdirAll creates the directory name and its parents if they are missing.
func (l *Ledger) MkdirAll(name string, mode fs.FileMode) error {
	key, err := l.Key(path.Join(name, "x"))
	if err != nil {
		return err
	}
	if st, err := os.Stat(l.files.path(path.Dir(key))); err == nil && st.IsDir() {
		return nil
	}
	return l.change(path.Dir(key), State{Kind: Dir, Mode: permissions(mode)}, nil)
}

// Remove removes the file, link, node or empty directory name. It is no error if name does not exist.
func (l *Ledger) Remove(name string) error {
	return l.change(name, State{Kind: Absent}, nil)
}

// change brings file to the state to: it records first and changes then.
func (l *Ledger) change(file string, to State, from io.ReadSeeker) error {
	key, err := l.Key(file)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, err := l.files.observe(key)
	if err != nil {
		return err
	}
	if now.sameContent(&to) && (to.Kind != File || now.Mode == to.Mode) {
		return nil
	}
	if to.Kind != Absent {
		to.UID, to.GID = os.Geteuid(), os.Getegid()
	}
	if to.Kind == File && now.Kind == File {
		to.UID, to.GID, to.Xattrs = now.UID, now.GID, now.Xattrs
	}
	if l.own(key) {
		if err := os.MkdirAll(l.files.path(path.Dir(key)), 0o755); err != nil {
			return host.Relabel(err, path.Dir(key))
		}
		return l.files.become(key, now, &to, from)
	}
	return l.recorded(key, now, &to, from)
}

// replaceable refuses changes that could not be undone, or that are never intended.
func (f *files) replaceable(key string, now, to *State) error {
	switch {
	case now.Kind == Other:
		return &fs.PathError{Op: "replace", Path: key, Err: errors.New("it is a socket or FIFO")}
	case now.Kind == Dir && to.Kind != Absent:
		return &fs.PathError{Op: "replace", Path: key, Err: unix.EISDIR}
	case now.Kind != Absent && to.Kind == Dir:
		return &fs.PathError{Op: "mkdir", Path: key, Err: unix.ENOTDIR}
	case now.Kind == Dir:
		if _, names, _, err := f.listing(key); err != nil || len(names) > 0 {
			return cmp.Or(err, error(&fs.PathError{Op: "remove", Path: key, Err: unix.ENOTEMPTY}))
		}
	}
	return nil
}

// become changes key from the state now to the state to.
func (f *files) become(key string, now, to *State, from io.ReadSeeker) error {
	switch {
	case to.Kind == Absent:
		return f.remove(key, now)
	case to.Kind == Dir:
		return f.mkdirLasting(key, fs.FileMode(to.Mode))
	}
	return f.replace(key, to, from)
}

// recorded makes a change with its records.
func (l *Ledger) recorded(key string, now, to *State, from io.ReadSeeker) error {
	if err := l.files.replaceable(key, now, to); err != nil {
		return err
	}
	b := l.bookOf(key)
	release, err := b.lock()
	if err != nil {
		return unrecorded(key, err)
	}
	defer release()
	records, err := b.announce(key)
	if err != nil {
		return err
	}
	r, err := l.announced(b, key, to)
	if err != nil {
		return unrecorded(key, err)
	}
	if err := b.add(true, append(records, r)...); err != nil {
		return unrecorded(key, err)
	}
	for _, r := range records {
		if r.Op == opChange {
			if err := l.files.mkdirLasting(r.Path, 0o755); err != nil {
				return b.failed(r.Path, err)
			}
		}
	}
	if err := l.files.become(key, now, to, from); err != nil {
		return b.failed(key, err)
	}
	// This append is not synced, because the change is undone even without the line. The line shows that a damaged
	// record before it is not just a torn last line.
	if err := b.add(false, record{Op: opDone, Path: key}); err != nil {
		return err
	}
	return b.compact()
}

// unrecorded says that nothing was changed, because the change could not have been undone.
func unrecorded(key string, err error) error {
	return fmt.Errorf("%q is not changed, because what is there now cannot be recorded: %w", key, err)
}

// announced returns the record that key is about to become to. For the first change, the record has the current state
// and the book keeps the current content.
func (l *Ledger) announced(b *book, key string, to *State) (record, error) {
	bootID := b.bootID()
	r := record{Op: opChange, Path: key, BootID: bootID, Wrote: to}
	e := b.entries[key]
	if e == nil {
		prior, err := b.keep(key)
		r.Prior = prior
		return r, err
	}
	now, err := b.observe(key)
	switch {
	case err != nil:
		return r, err
	case e.mine(now) != nil && e.bootID != bootID: // it survived the reboot: the state before it still counts
		r.Prior = e.prior
	case e.bootID != bootID:
		r.Prior, err = b.keep(key)
	case e.mine(now) == nil && !e.prior.sameContent(now):
		l.log.Info("what somebody else wrote is replaced", "path", key, "kind", now.Kind)
	}
	return r, err
}

// failed records that a change did not happen, if that is the case, and returns why.
func (b *book) failed(key string, why error) error {
	e := b.entries[key]
	if now, err := b.observe(key); err != nil || e == nil || len(e.ours) > 1 || !now.sameContent(e.prior) ||
		!now.sameMeta(e.prior) {
		return why
	}
	return errors.Join(why, b.add(false, record{Op: opUndone, Path: key}))
}
