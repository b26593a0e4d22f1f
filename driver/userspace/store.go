package userspace

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/driver/trust"
	"github.com/acceld/acceld/host"
)

// Schema changes with the meaning of the manifest; entries of another schema are not used.
const Schema = 1

// Manifest describes one entry.
type Manifest struct {
	Schema int `json:"schema"`
	// Key is derived from the kind, the version, the wish and the files.
	Key     string `json:"key"`
	Kind    string `json:"kind"`
	Version string `json:"version"` // of the modules that it belongs to
	// Wish is a hash of what the definition asked for, see [Wish].
	Wish  string    `json:"wish"`
	Files []File    `json:"files"` // by path
	Made  time.Time `json:"made"`
	Source
}

// Source is where an entry came from.
type Source struct {
	Type accel.SourceType `json:"source"`
	// Origin is the reference of an image, or a directory of the host.
	Origin   string         `json:"origin"`
	SignedBy []trust.Signer `json:"signedBy,omitempty"`
	// Packages are what it was unpacked from, with the repository and the date at which that was signed.
	Packages   []Package `json:"packages,omitempty"`
	Repository string    `json:"repository,omitempty"`
	Dated      time.Time `json:"dated,omitzero"`
}

// Package is a package that was verified and unpacked.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256,omitempty"`
	// Key is the fingerprint of the OpenPGP key that signed it or its repository; empty if none did.
	Key string `json:"key,omitempty"`
}

// File is one file of an entry; its path is relative to the root.
type File struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256,omitempty"`
	Size   int64  `json:"size,omitempty"` // bytes
	// Link is the target of a symbolic link, which is in the same directory.
	Link string `json:"link,omitempty"`
}

// Size is the total size of the files in bytes.
func (m Manifest) Size() (sum int64) {
	for _, f := range m.Files {
		sum += f.Size
	}
	return sum
}

// Options of [Spaces]; all are required.
type Options struct {
	// StateDir is the agent's persistent directory, as a path on the host.
	StateDir string
	Log      *slog.Logger
	Store    *store.Store
	// Trust is the host's policy on signatures.
	Trust accel.Trust
	Now   func() time.Time
	// Point is called before and after each effect that outlives the process, with its name.
	Point func(string)
}

// Spaces are the user spaces of one host. Their methods are safe for concurrent use, even by several processes.
type Spaces struct {
	h *host.Host
	o Options
}

// New returns the user spaces of a host.
func New(h *host.Host, o Options) *Spaces { return &Spaces{h, o} }

func (s *Spaces) dir() string { return path.Join(s.o.StateDir, "userspace") }

// Root is the directory of an entry's files, as a path on the host.
func (s *Spaces) Root(key string) string { return path.Join(s.dir(), key, "root") }

// isKey tells an entry's directory from others.
func isKey(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == 16
}

// key derives the key of an entry.
func (m Manifest) key() string {
	b, err := json.Marshal(struct {
		Schema              int
		Kind, Version, Wish string
		Files               []File
	}{Schema, m.Kind, m.Version, m.Wish, m.Files})
	if err != nil {
		panic(err) // strings always marshal
	}
	return kmod.Fingerprint(b)
}

// Manifest reads and checks the manifest of an entry, not its files.
func (s *Spaces) Manifest(key string) (Manifest, error) {
	if !isKey(key) {
		return Manifest{}, fmt.Errorf("%.64q is not the key of a user space", key)
	}
	name := path.Join(s.dir(), key, "manifest.json")
	b, err := s.h.ReadFile(name)
	if err != nil {
		return Manifest{}, err
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return Manifest{}, fmt.Errorf("cannot read %q: %w", name, err)
	}
	if m.Schema != Schema || m.Key != key || m.key() != key || len(m.Files) == 0 {
		return Manifest{}, fmt.Errorf("cannot use %q: it does not describe this entry", name)
	}
	return m, nil
}

// List returns the usable entries, newest first.
func (s *Spaces) List() ([]Manifest, error) {
	dirs, err := s.h.ReadDir(s.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Manifest
	for _, d := range dirs {
		if m, err := s.Manifest(d.Name()); err == nil {
			out = append(out, m)
		}
	}
	slices.SortStableFunc(out, func(a, b Manifest) int { return b.Made.Compare(a.Made) })
	return out, nil
}

// Find returns the entry for a version of a kind's modules: the newest of those that were made for what def asks for
// now, else the newest one. The problem is UserSpaceMissing if there is none, and SignatureInvalid if this host does
// not trust who signed those that there are.
func (s *Spaces) Find(def *accel.Definition, version string) (Manifest, *accel.Problem) {
	if version == "" {
		return Manifest{}, accel.Problemf(accel.UserSpaceMissing,
			"the modules of %q have no version that a user space could belong to", def.Kind)
	}
	all, err := s.List()
	if err != nil {
		return Manifest{}, accel.ProblemOf(err, "cannot read the store of user spaces")
	}
	problem := accel.Problemf(accel.UserSpaceMissing, "the store has no user space of %q in version %q", def.Kind,
		version)
	found, wish := Manifest{}, Wish(def)
	for _, m := range all {
		if m.Kind != def.Kind || m.Version != version {
			continue
		}
		if p := s.trusted(def, m); p != nil {
			problem = p
			continue
		}
		if m.Wish == wish {
			return m, nil
		}
		if found.Key == "" {
			found = m
		}
	}
	if found.Key != "" {
		return found, nil
	}
	return Manifest{}, problem
}

// Of returns the entry for a version of a kind's modules that is to go with them to another host: the one that serves,
// else the newest.
func (s *Spaces) Of(kind, version string) (m Manifest, there bool) {
	all, err := s.List()
	if err != nil || version == "" {
		return m, false
	}
	serves := s.Served(kind)
	for _, e := range all {
		if e.Kind == kind && e.Version == version && (!there || e.Key == serves) {
			m, there = e, true
		}
	}
	return m, there
}

// Seen is when a repository was signed that was used last; zero if none was.
func (s *Spaces) Seen(repository string) (last time.Time) {
	all, err := s.List()
	if err != nil {
		return last
	}
	for _, m := range all {
		if m.Repository == repository && m.Dated.After(last) {
			last = m.Dated
		}
	}
	return last
}

// Check compares the files of an entry with its manifest.
func (s *Spaces) Check(m Manifest) *accel.Problem {
	for _, f := range m.Files {
		name := path.Join(s.Root(m.Key), f.Path)
		if f.Link != "" {
			if text, err := s.h.Readlink(name); err != nil || text != f.Link {
				return accel.Problemf(accel.DigestMismatch, "link %q of the store is gone or changed", name)
			}
			continue
		}
		sum, err := digest(s.h, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return accel.Problemf(accel.DigestMismatch, "file %q of the store is gone", name)
		case err != nil:
			return accel.ProblemOf(err, "cannot read %q", name)
		case sum != f.SHA256:
			return accel.Problemf(accel.DigestMismatch, "file %q has SHA-256 %s, stored was %s", name, sum, f.SHA256)
		}
	}
	return nil
}

func digest(h *host.Host, name string) (string, error) {
	f, err := h.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return store.Digest(f)
}

// trusted judges by today's configuration who signed an entry; the problem is nil if it may serve.
func (s *Spaces) trusted(def *accel.Definition, m Manifest) *accel.Problem {
	if m.Type == accel.SourcePackages {
		// OpenPGP keys are no anchors of the host; those that the source names were asked when the packages came.
		signed := !slices.ContainsFunc(m.Packages, func(p Package) bool { return p.Key == "" })
		if s.o.Trust.Require && !signed {
			return accel.Problemf(accel.SignatureInvalid,
				"the user space %q, from %q, is not used: not all of its packages are signed (trust.require)", m.Key, m.Origin)
		}
		return nil
	}
	var keys []string
	free := false // some source demands no key
	for _, source := range def.UserSpaceSources() {
		if source.Type != accel.SourcePackages {
			keys = append(keys, source.Keys...)
			free = free || len(source.Keys) == 0
		}
	}
	if !s.o.Trust.Require && (free || len(keys) == 0) {
		return nil
	}
	t := s.o.Trust
	if !s.o.Trust.Require {
		t.Keys = slices.Concat(keys, t.Keys)
	}
	anchors, problem := trust.Read(s.h, t)
	if problem == nil && !anchors.Has(m.SignedBy) {
		problem = accel.Problemf(accel.SignatureInvalid, "the user space %q, from %q, is not used: signed by %s", m.Key,
			m.Origin, trust.Signers(m.SignedBy))
	}
	return problem
}

// Wish is a hash of what a definition asks of a user space: its sources and the names of what containers get.
func Wish(def *accel.Definition) string {
	b, err := json.Marshal(def.UserSpaceWish())
	if err != nil {
		panic(err) // strings always marshal
	}
	return kmod.Fingerprint(b)
}

// Collect removes the entries that nothing needs: those of which needed says no for the kind and the version. It keeps
// the one that serves.
func (s *Spaces) Collect(needed func(kind, version string) bool) {
	all, err := s.List()
	if err != nil {
		s.o.Log.Warn("cannot read the store of user spaces", "error", err)
		return
	}
	seen := map[[3]string]bool{}
	for _, m := range all { // the newest first: an older one for the same wish is needed no more
		at := [3]string{m.Kind, m.Version, m.Wish}
		twice := seen[at]
		seen[at] = true
		if s.Served(m.Kind) == m.Key || !twice && needed(m.Kind, m.Version) {
			continue
		}
		if err := s.discard(m.Key); err != nil {
			s.o.Log.Warn("cannot remove a user space", "kind", m.Kind, "key", m.Key, "error", err)
			continue
		}
		s.o.Log.Info("user space removed from the store", "kind", m.Kind, "version", m.Version, "key", m.Key)
	}
}

// discard removes an entry, its manifest first: what is left if the process is killed is no entry.
func (s *Spaces) discard(key string) error {
	dir := path.Join(s.dir(), key)
	if err := s.h.Remove(path.Join(dir, "manifest.json")); err != nil {
		return err
	}
	s.o.Point("discard user space")
	return s.h.RemoveAll(dir)
}

// publish moves a finished entry to its place. One that is already there wins: the same key means the same content.
func (s *Spaces) publish(w *store.Workspace, m Manifest) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := s.h.WriteFile(path.Join(w.Entry, "manifest.json"), append(b, '\n'), 0o600); err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	to := path.Join(s.dir(), m.Key)
	if s.h.Exists(to) {
		if have, err := s.Manifest(m.Key); err == nil && s.Check(have) == nil {
			return nil
		}
		if err := s.h.RemoveAll(to); err != nil {
			return err
		}
	}
	s.o.Point("publish user space")
	err = errors.Join(s.h.Chmod(w.Entry, 0o755), s.h.Rename(w.Entry, to))
	s.o.Point("publish user space")
	return err
}

// open makes the directory of the entries. A self-test reads them as nobody, so everybody may pass through the state
// directory to names that are known; what is in it has rights of its own.
func (s *Spaces) open() error {
	if err := s.h.MkdirAll(s.dir(), 0o755); err != nil {
		return err
	}
	st, err := s.h.Stat(s.o.StateDir)
	if err != nil || st.Mode()&0o111 == 0o111 {
		return err
	}
	return s.h.Chmod(s.o.StateDir, st.Mode().Perm()|0o111)
}

// stem is the part of a library's name before its versions: "libx.so".
func stem(name string) string {
	if i := strings.Index(name, ".so"); i >= 0 {
		return name[:i+len(".so")]
	}
	return name
}
