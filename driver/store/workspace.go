package store

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/lock"
)

// Workspace is a private directory for one piece of work, <StateDir>/build/<random>.
type Workspace struct {
	Dir   string
	Work  string // scratch space
	Entry string // the entry for the store, until it is published
}

// Workspace creates one. Its work directory is at the relative path at, "work" when empty. Done removes it; after a
// crash, the next [Store.Sweep] does, once it has locked the file next to the directory.
func (s *Store) Workspace(at string) (w *Workspace, done func(), problem *accel.Problem) {
	for _, dir := range []string{s.dir(), s.BuildDir()} {
		if err := s.h.MkdirAll(dir, 0o700); err != nil {
			return nil, nil, accel.ProblemOf(err, "cannot make %q", dir)
		}
	}
	dir, release, problem := s.claim()
	if problem != nil {
		return nil, nil, problem
	}
	w = &Workspace{Dir: dir, Work: path.Join(dir, cmp.Or(at, "work")), Entry: path.Join(dir, "entry")}
	done = func() {
		if err := errors.Join(s.h.RemoveAll(dir), s.h.Remove(dir+".lock")); err != nil {
			s.o.Log.Warn("cannot remove a build", "directory", dir, "error", err)
		}
		release()
	}
	for sub, mode := range map[string]fs.FileMode{w.Work: 0o755, w.Entry: 0o700, path.Join(dir, "tmp"): 0o700} {
		if err := s.h.MkdirAll(sub, mode); err != nil {
			done()
			return nil, nil, accel.ProblemOf(err, "cannot make %q", sub)
		}
	}
	return w, done, nil
}

// claim creates a directory and locks it. Another process that starts at this moment may take the new directory for
// an abandoned one and remove it. Claim then creates another one.
func (s *Store) claim() (dir string, release func(), problem *accel.Problem) {
	for {
		dir, err := s.h.MakeTemp(s.BuildDir(), "")
		if err != nil {
			return "", nil, accel.ProblemOf(err, "cannot make a directory in %q", s.BuildDir())
		}
		release, err := s.h.Locks().Try(dir+".lock", lock.Text(s.h))
		if err == nil && s.h.Exists(dir) && s.h.Exists(dir+".lock") {
			return dir, release, nil
		}
		if err == nil {
			release()
		} else if !errors.Is(err, syscall.EWOULDBLOCK) {
			return "", nil, accel.ProblemOf(err, "cannot lock %q", dir)
		}
	}
}

// LockKey makes the caller the only builder of a key on the host.
func (s *Store) LockKey(ctx context.Context, kind, key string) (release func(), problem *accel.Problem) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Wait)
	defer cancel()
	name := path.Join(s.dir(), "lock", key)
	if err := s.h.MkdirAll(path.Dir(name), 0o700); err != nil {
		return nil, accel.ProblemOf(err, "cannot make %q", path.Dir(name))
	}
	release, err := s.o.Locks.File(ctx, kind, name)
	if err != nil {
		return nil, accel.ProblemOr(err, accel.BuildTimeout, "another build of %q has not ended", key)
	}
	return release, nil
}

// Copy copies an open file to name, syncs it, and returns its digest.
func (s *Store) Copy(from *os.File, name string) (string, *accel.Problem) {
	to, err := s.h.Create(name, 0o600)
	if err != nil {
		return "", accel.ProblemOf(err, "cannot make %q", name)
	}
	_, err = from.Seek(0, io.SeekStart)
	sum := ""
	if err == nil {
		sum, err = Digest(io.TeeReader(from, to))
	}
	if err = errors.Join(err, to.Sync(), to.Close()); err != nil {
		return "", accel.ProblemOf(err, "cannot write %q", name)
	}
	return sum, nil
}
