package userspace

import (
	"errors"
	"io/fs"
	"path"

	"github.com/acceld/acceld/accel"
)

// Served returns the key of the entry that serves a kind; empty if none does.
func (s *Spaces) Served(kind string) string {
	text, err := s.h.Readlink(accel.UserSpaceRoot(kind))
	if err != nil {
		return ""
	}
	key := path.Base(path.Dir(text))
	if text != s.Root(key) || !isKey(key) {
		return ""
	}
	return key
}

// Judge says whether the user space that serves is the one for a version of the modules. Stale means that it is, but
// was made for another wish than def's. The problem is UserSpaceMissing if another one serves, or none. It reads no
// file but the manifest.
func (s *Spaces) Judge(def *accel.Definition, version string) (have *accel.UserSpaceHave, stale bool,
	problem *accel.Problem,
) {
	if def.Driver.UserSpace == nil {
		return nil, false, nil
	}
	missing := func(why string) *accel.Problem {
		return accel.Problemf(accel.UserSpaceMissing, "no user space of %q serves for version %q of its modules: %s",
			def.Kind, version, why)
	}
	key := s.Served(def.Kind)
	if key == "" {
		return nil, false, missing("none is set")
	}
	m, err := s.Manifest(key)
	switch {
	case err != nil:
		return nil, false, missing(err.Error())
	case m.Kind != def.Kind || m.Version != version:
		return nil, false, missing("the one that is set is of version " + m.Version)
	}
	return &accel.UserSpaceHave{Key: key, Origin: m.Origin}, m.Wish != Wish(def), s.trusted(def, m)
}

// Serve makes the entry for a version of the modules the one that serves, after it has compared its files with their
// digests. If there is no such entry, none serves, and the problem says why.
func (s *Spaces) Serve(def *accel.Definition, version string) *accel.Problem {
	if def.Driver.UserSpace == nil {
		return s.Hide(def.Kind)
	}
	m, problem := s.Find(def, version)
	if problem == nil {
		problem = s.Check(m)
	}
	if problem != nil {
		if p := s.Hide(def.Kind); p != nil {
			return p
		}
		return problem
	}
	link := accel.UserSpaceRoot(def.Kind)
	if text, err := s.h.Readlink(link); err == nil && text == s.Root(m.Key) {
		return nil
	}
	if err := s.set(link, s.Root(m.Key)); err != nil {
		return accel.ProblemOf(err, "cannot set %q", link)
	}
	s.o.Log.Info("user space serves", "kind", def.Kind, "version", version, "key", m.Key, "from", m.Origin)
	return nil
}

// set makes a link, which replaces the one that is there in one step.
func (s *Spaces) set(link, text string) error {
	if err := s.h.MkdirAll(path.Dir(link), 0o755); err != nil {
		return err
	}
	next := path.Join(path.Dir(link), "."+path.Base(link)+".new")
	if err := s.h.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.h.Symlink(text, next); err != nil {
		return err
	}
	s.o.Point("serve user space")
	err := s.h.Rename(next, link)
	s.o.Point("serve user space")
	return err
}

// Hide takes the user space of a kind out of service. Containers that start from now on do not get its files.
func (s *Spaces) Hide(kind string) *accel.Problem {
	link := accel.UserSpaceRoot(kind)
	if _, err := s.h.Readlink(link); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s.o.Point("hide user space")
	if err := s.h.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return accel.ProblemOf(err, "cannot remove %q", link)
	}
	s.o.Point("hide user space")
	return nil
}
