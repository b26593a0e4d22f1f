// Package cache keeps what the test bed builds: one folder outside the tree, each entry named by the content it was
// made from. It never changes an entry once it exists; whoever wants another content gets another name.
package cache

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is the cache folder.
type Dir struct {
	path string
	say  func(format string, args ...any)
}

// Open returns the folder named by the environment variable ACCELD_CACHE, or `acceld` in the user's cache folder, and
// creates it. say hears about waiting for another run; it may be nil.
func Open(say func(format string, args ...any)) (Dir, error) {
	path := os.Getenv("ACCELD_CACHE")
	if path == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return Dir{}, fmt.Errorf("cannot find a cache folder (set ACCELD_CACHE): %w", err)
		}
		path = filepath.Join(user, "acceld")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return Dir{}, fmt.Errorf("cannot resolve cache folder %q: %w", path, err)
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return Dir{}, fmt.Errorf("cannot create cache folder: %w", err)
	}
	if say == nil {
		say = func(string, ...any) {}
	}
	return Dir{path: path, say: say}, nil
}

// Path joins names below the folder.
func (d Dir) Path(names ...string) string {
	return filepath.Join(append([]string{d.path}, names...)...)
}

// Sub is a folder in the folder, for what only one of several users of it needs.
func (d Dir) Sub(name string) (Dir, error) {
	path := d.Path(name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return Dir{}, fmt.Errorf("cannot create cache folder: %w", err)
	}
	return Dir{path: path, say: d.say}, nil
}

// Lock holds one of the named locks of the folder, the first that is free, until unlock is called or the process ends.
// While all have other holders it waits.
func (d Dir) Lock(ctx context.Context, names ...string) (name string, unlock func(), err error) {
	dir := d.Path("locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, fmt.Errorf("cannot create lock folder: %w", err)
	}
	for tries := 0; ; tries++ {
		for _, name := range names {
			if unlock, err := try(filepath.Join(dir, name)); unlock != nil || err != nil {
				return name, unlock, err
			}
		}
		if tries == 10 { // those who start together wait for a moment
			d.say("waiting for lock %s", d.holders(names))
		}
		// Asking again and again, because a blocking flock(2) cannot be given up.
		select {
		case <-ctx.Done():
			return "", nil, fmt.Errorf("cannot wait for lock %q: %w", names, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// try takes a lock that is free; without an error unlock is nil for one that is not.
func try(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot open lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
			return nil, nil
		}
		return nil, fmt.Errorf("cannot lock %q: %w", path, err)
	}
	// Who holds it is for the others to say while they wait; the lock works without. WriteAt, because the holder before
	// may have been read up to somewhere.
	_ = f.Truncate(0)
	_, _ = f.WriteAt(fmt.Appendf(nil, "pid %d", os.Getpid()), 0)
	return func() { f.Close() }, nil
}

func (d Dir) holders(names []string) string {
	said := make([]string, len(names))
	for i, name := range names {
		holder, _ := os.ReadFile(d.Path("locks", name))
		said[i] = fmt.Sprintf("%q, held by %s", name, cmp.Or(string(holder), "another process"))
	}
	return strings.Join(said, ", ")
}

// Has tells whether an entry is there.
func (d Dir) Has(kind string, key *Key) bool { return exists(d.Path(kind + "-" + key.String())) }

// Entry returns the folder of the entry `<kind>-<key>`. When it does not exist, build fills a temporary folder that
// then takes that name in one step, so that an interrupted build leaves nothing that looks like a result. One process
// builds a kind at a time.
func (d Dir) Entry(ctx context.Context, kind string, key *Key, build func(tmp string) error) (string, error) {
	final := d.Path(kind + "-" + key.String())
	if exists(final) {
		return final, touch(final)
	}
	_, unlock, err := d.Lock(ctx, kind)
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(final) {
		return final, touch(final)
	}
	tmp := final + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return "", fmt.Errorf("cannot clear %q: %w", tmp, err)
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return "", fmt.Errorf("cannot create %q: %w", tmp, err)
	}
	if err := whole(tmp, build); err != nil {
		os.RemoveAll(tmp)
		return "", err
	}
	if err := os.Rename(tmp, final); err != nil {
		return "", fmt.Errorf("cannot finish cache entry %q: %w", final, err)
	}
	return final, d.prune(kind, final)
}

// keepEntries is how many entries of one kind stay: the newest one and two before it, to go back and forth between
// branches without a rebuild.
const keepEntries = 3

// prune removes the least recently used entries of a kind.
func (d Dir) prune(kind, keep string) error {
	matches, err := filepath.Glob(d.Path(kind + "-" + anyKey))
	if err != nil {
		return fmt.Errorf("cannot list cache entries of kind %q: %w", kind, err)
	}
	for len(matches) > keepEntries {
		oldest := -1
		var when time.Time
		for i, m := range matches {
			info, err := os.Stat(m)
			if err != nil || m == keep {
				continue
			}
			if oldest < 0 || info.ModTime().Before(when) {
				oldest, when = i, info.ModTime()
			}
		}
		if oldest < 0 {
			return nil
		}
		if err := os.RemoveAll(matches[oldest]); err != nil {
			return fmt.Errorf("cannot remove old cache entry %q: %w", matches[oldest], err)
		}
		matches = append(matches[:oldest], matches[oldest+1:]...)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// touch marks an entry as used just now, for prune.
func touch(path string) error {
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		return fmt.Errorf("cannot mark cache entry %q as used: %w", path, err)
	}
	return nil
}

// Key is the hash of everything that an entry is made from.
type Key struct {
	sum []byte
	err error
}

// NewKey starts a key with some words, such as a recipe version.
func NewKey(words ...string) *Key {
	return (&Key{}).Add(words...)
}

// Add puts words into the key.
func (k *Key) Add(words ...string) *Key {
	for _, w := range words {
		h := sha256.New()
		h.Write(k.sum)
		fmt.Fprintf(h, "%d:%s", len(w), w)
		k.sum = h.Sum(nil)
	}
	return k
}

// AddFile puts a file's content into the key. A file that cannot be read shows in Err.
func (k *Key) AddFile(path string) *Key {
	content, err := os.ReadFile(path)
	if err != nil && k.err == nil {
		k.err = fmt.Errorf("cannot hash %q: %w", path, err)
	}
	return k.Add(string(content))
}

// Err is the first error met while the key was made.
func (k *Key) Err() error { return k.err }

// String is the key as 16 hexadecimal digits.
func (k *Key) String() string { return hex.EncodeToString(k.sum)[:keyLength] }

// keyLength is how many letters a key has in the name of an entry; anyKey matches all of them.
const (
	keyLength = 16
	anyKey    = "????????????????"
)
