package store

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/kmod"
	"github.com/acceld/acceld/driver/trust"
)

// Keys are the keys of all entries of the store.
func (s *Store) Keys() []string {
	entries, err := s.List()
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Key)
	}
	return out
}

// ExpectedSteps is how many progress lines the last build of a kind had, 0 if there was none.
func (s *Store) ExpectedSteps(kind string) int64 {
	entries, err := s.List()
	if err != nil {
		return 0
	}
	for _, e := range slices.Backward(entries) {
		if e.Problem == "" && e.Kind == kind && e.Steps > 0 {
			return int64(e.Steps)
		}
	}
	return 0
}

// Schema changes with the meaning of the manifest; entries of another schema are not used.
const Schema = 1

// Manifest describes one entry of the store: everything that went into its key, and what came out.
type Manifest struct {
	Schema int    `json:"schema"`
	Key    string `json:"key"`
	Identity
	Built   time.Time `json:"built"`
	Modules []Module  `json:"modules"`
	// Steps is how many progress lines the build had. The next build of the kind uses it to estimate its progress.
	Steps int `json:"steps,omitempty"`
	// Kept marks a copy of a driver that was installed on the host. It is only for rollbacks and never chosen
	// otherwise.
	Kept bool `json:"kept,omitempty"`
	// Firmware lists the files below "firmware" in the entry.
	Firmware []artifact.File `json:"firmware,omitempty"`
	// Source is the type of the source that the entry came from: oci, bundle, build or installed. It is empty for an
	// entry of an earlier acceld, which did not note who signed it.
	Source accel.SourceType `json:"source,omitempty"`
	// Origin is the reference of the artifact that the entry came from, the source tree that it was built from, or the
	// directory that it was installed in.
	Origin string `json:"origin,omitempty"`
	// SignedBy are those who signed the artifact or the source tree, of those who were named when the entry came.
	SignedBy []trust.Signer `json:"signedBy,omitempty"`
}

// Identity is what a key is derived from. Equal drivers have equal keys on every host of a fleet.
type Identity struct {
	Kind          string `json:"kind"`
	Version       string `json:"version"` // the configured version; empty if the source decides
	SourceDigest  string `json:"sourceDigest"`
	Arch          string `json:"arch"`
	KernelRelease string `json:"kernelRelease"`
	// KernelID is the kernel's build-id, or `uname -v` if it has none.
	KernelID string   `json:"kernelID"`
	Make     []string `json:"make,omitempty"`
	// Signer is the hash and the certificate that the modules are signed with; empty if they are not signed.
	Signer string `json:"signer,omitempty"`
	// ModuleNames are the modules that the driver was built for, see [ModuleNames].
	ModuleNames []string `json:"moduleNames,omitempty"`
	// Builder is the digest of the builder image that it was built in; empty if it was built with the host's compiler.
	Builder string `json:"builder,omitempty"`
}

// Module is one module file of an entry, which is described as in an artifact.
type Module = artifact.Module

// Entry is one driver in the store.
type Entry struct {
	Manifest
	// Path is the entry's directory, as a path on the host.
	Path string `json:"path"`
	// Current is true if the driver is the one chosen for its kind and kernel.
	Current bool `json:"current"`
	// Previous is true if the driver served before the current one.
	Previous bool `json:"previous,omitempty"`
	// Problem says why the entry cannot be used; empty if it can. The digests of the modules are checked at each
	// load.
	Problem string `json:"problem,omitempty"`
}

// Key identifies an entry: the first 32 hexadecimal digits of the SHA-256 of the identity's canonical JSON.
func (id Identity) Key() string {
	b, err := json.Marshal(struct {
		Schema int `json:"schema"`
		Identity
	}{Schema, id})
	if err != nil {
		panic(err) // strings always marshal
	}
	return kmod.Fingerprint(b)
}

// SameKernel reports whether an entry is for a kernel. It also accepts `uname -v`: the build-id may have been unknown
// when the entry was made for a kernel that was not running.
func SameKernel(id string, k accel.Kernel) bool {
	return id != "" && (id == k.BuildID || id == k.Version)
}

// KernelID tells builds of one release apart.
func KernelID(k accel.Kernel) string { return cmp.Or(k.BuildID, k.Version) }

// ModuleNames returns the names of a definition's modules for an identity: one source may yield any of them, and an
// entry has only those that the definition had. A single module is left out, so that its keys stay the same as before
// identities had names.
func ModuleNames(def *accel.Definition) []string {
	if len(def.Driver.Modules) < 2 {
		return nil
	}
	var out []string
	for _, m := range def.Driver.Modules {
		out = append(out, kmod.Normal(m.Name))
	}
	slices.Sort(out)
	return out
}

// Module returns the file of a definition's module; ok is false if the entry has none.
func (m Manifest) Module(name string) (Module, bool) {
	i := slices.IndexFunc(m.Modules, func(s Module) bool { return kmod.Normal(s.Name) == kmod.Normal(name) })
	if i < 0 {
		return Module{}, false
	}
	return m.Modules[i], true
}

// ModulesVersion is the driver's version, as its modules report it.
func (m Manifest) ModulesVersion() string {
	for _, s := range m.Modules {
		if s.Version != "" {
			return s.Version
		}
	}
	return ""
}

// StateDir is the agent's persistent directory, as a path on the host.
func (s *Store) StateDir() string { return s.o.StateDir }

func (s *Store) dir() string { return path.Join(s.o.StateDir, "kmod") }

// EntryDir is the directory of an entry, as a path on the host.
func (s *Store) EntryDir(key string) string { return path.Join(s.dir(), key) }

// BuildDir is the directory of the workspaces.
func (s *Store) BuildDir() string { return path.Join(s.o.StateDir, "build") }

func (s *Store) currentDir() string { return path.Join(s.dir(), "current") }

// FailedLog is the file with the output of a failed build.
func (s *Store) FailedLog(key string) string { return path.Join(s.dir(), "failed", key+".log") }

// isKey tells an entry's directory from the other directories of the store.
func isKey(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == 16
}

// Manifest reads and checks an entry's manifest. It must name this key: an entry that was copied, or whose manifest
// was changed, is not used.
func (s *Store) Manifest(key string) (Manifest, error) {
	name := path.Join(s.EntryDir(key), "manifest.json")
	b, err := s.h.ReadFile(name)
	if err != nil {
		return Manifest{}, err
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return Manifest{}, fmt.Errorf("cannot read %q: %w", name, err)
	}
	if m.Schema != Schema || m.Key != key || m.Identity.Key() != key || len(m.Modules) == 0 {
		return Manifest{}, fmt.Errorf("cannot use %q: it does not describe this entry", name)
	}
	for _, s := range m.Modules {
		if s.File != path.Base(s.File) || !strings.HasSuffix(s.File, ".ko") {
			return Manifest{}, fmt.Errorf("cannot use %q: it names the file %q", name, s.File)
		}
	}
	return m, nil
}

// List returns the entries of the store, oldest first. A directory that is not a usable entry is listed with its
// problem.
func (s *Store) List() ([]Entry, error) {
	dirs, err := s.h.ReadDir(s.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	current, previous := map[string]bool{}, map[string]bool{}
	for _, c := range s.choices() {
		if c.Current != nil {
			current[c.Current.Key] = true
		}
		if c.Previous != nil {
			previous[c.Previous.Key] = true
		}
	}
	var entries []Entry
	for _, e := range dirs {
		if !isKey(e.Name()) {
			continue
		}
		entry := Entry{Path: s.EntryDir(e.Name()), Current: current[e.Name()], Previous: previous[e.Name()]}
		if entry.Manifest, err = s.Manifest(e.Name()); err != nil {
			entry.Key, entry.Problem = e.Name(), err.Error()
		}
		entry.Version = cmp.Or(entry.Version, entry.ModulesVersion())
		entries = append(entries, entry)
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.Built.Compare(b.Built) })
	return entries, nil
}

// Find returns the usable entries for the kind on a kernel: the current one first, then the newest first. A kernel of
// which only the release is known has none. It needs no source tree and no network.
func (s *Store) Find(def *accel.Definition, k accel.Kernel) ([]Entry, error) {
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	var out []Entry
	for _, e := range all {
		if e.Problem == "" && !e.Kept && e.Kind == def.Kind && e.Arch == k.Arch && e.KernelRelease == k.Release &&
			SameKernel(e.KernelID, k) &&
			(def.Driver.Version == "" || e.Version == def.Driver.Version || e.ModulesVersion() == def.Driver.Version) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return b.Built.Compare(a.Built) })
	chosen := s.Choice(def.Kind, k).Current.Ref().Key
	if i := slices.IndexFunc(out, func(e Entry) bool { return e.Key == chosen }); i > 0 {
		e := out[i]
		out = slices.Insert(slices.Delete(out, i, i+1), 0, e)
	}
	return out, nil
}

// Generation describes the driver of an entry, with the parameters that def has now.
func (e Entry) Generation(def *accel.Definition) *Generation {
	g := &Generation{
		Source: accel.SourceStore, Key: e.Key, ID: e.Key, Version: e.ModulesVersion(),
		Binds: def.Driver.Binds,
	}
	for _, s := range e.Modules {
		m := accel.Module{Name: s.Name}
		if i := slices.IndexFunc(def.Driver.Modules,
			func(x accel.Module) bool { return kmod.Normal(x.Name) == kmod.Normal(s.Name) }); i >= 0 {
			m = def.Driver.Modules[i]
		}
		g.Modules = append(g.Modules, GenerationModule{
			Module: m, BuildID: s.BuildID, SrcVersion: s.SrcVersion,
			Version: s.Version,
		})
	}
	return g
}

// Digest returns the SHA-256 of the rest of r, in hexadecimal.
func Digest(r io.Reader) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Check compares a module file of the store with its manifest.
func (s *Store) Check(e Entry, m Module) *accel.Problem {
	name := path.Join(e.Path, m.File)
	f, err := s.h.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return accel.Problemf(accel.DigestMismatch, "file %q of the store is gone", name)
	}
	sum := ""
	if err == nil {
		defer f.Close()
		sum, err = Digest(f)
	}
	if err != nil {
		return accel.ProblemOf(err, "cannot read module %q", name)
	}
	if sum != m.SHA256 {
		return accel.Problemf(accel.DigestMismatch, "file %q has SHA-256 %s, stored was %s", name, sum, m.SHA256)
	}
	return nil
}

// Describe writes the manifest of an entry.
func (s *Store) Describe(w *Workspace, m Manifest) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return s.h.WriteFile(path.Join(w.Entry, "manifest.json"), append(b, '\n'), 0o600)
}

// Publish moves the finished entry of a workspace to its place in the store. An entry that is already there and may be
// used wins: the same key means the same content. Any other is replaced.
func (s *Store) Publish(w *Workspace, def *accel.Definition, key string) error {
	to := s.EntryDir(key)
	if s.h.Exists(to) {
		if m, err := s.Manifest(key); err == nil && s.Trusted(def, m) == nil {
			return nil
		}
		if err := s.h.RemoveAll(to); err != nil {
			return err
		}
	}
	return s.h.Rename(w.Entry, to)
}

// Sweep removes what unfinished builds left behind. A running build holds the lock file next to its directory.
func (s *Store) Sweep() {
	dirs := map[string]bool{}
	for _, name := range s.h.Glob(s.BuildDir(), "*") {
		dirs[strings.TrimSuffix(name, ".lock")] = true
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		release, err := s.h.Locks().Try(dir+".lock", "")
		if err != nil {
			continue // in progress
		}
		if err := errors.Join(s.h.RemoveAll(dir), s.h.Remove(dir+".lock")); err != nil {
			s.o.Log.Warn("cannot remove an old build", "directory", dir, "error", err)
		}
		release()
	}
}
