package driver

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
)

// storeSchema changes when the meaning of a manifest does; entries of another schema are not used.
const storeSchema = 1

// Manifest describes one entry of the store: everything that went into its key, and what came out.
type Manifest struct {
	Schema int    `json:"schema"`
	Key    string `json:"key"`
	Identity
	Built   time.Time      `json:"built"`
	Modules []StoredModule `json:"modules"`
	// Steps is how many lines of progress the build had: the next one of the kind is told how far it is by it.
	Steps int `json:"steps,omitempty"`
	// Kept is a copy of a driver that was installed on the host: to go back to, never to be chosen otherwise.
	Kept bool `json:"kept,omitempty"`
	// Firmware are files below "firmware" in the entry.
	Firmware []artifact.File `json:"firmware,omitempty"`
	// Origin is the reference of the artifact that it came from; empty when it was built here.
	Origin string `json:"origin,omitempty"`
}

// Identity is what a key is made of. Equal things have equal keys on every host of a fleet.
type Identity struct {
	Kind          string `json:"kind"`
	Version       string `json:"version"` // that the definition wants; empty when it takes what the source says
	SourceDigest  string `json:"sourceDigest"`
	Arch          string `json:"arch"`
	KernelRelease string `json:"kernelRelease"`
	// KernelID is the kernel's build-id, or `uname -v` where it has none.
	KernelID string   `json:"kernelID"`
	Make     []string `json:"make,omitempty"`
	// Signer is the hash and the certificate that the modules are signed with; empty when they are not.
	Signer string `json:"signer,omitempty"`
}

// StoredModule is one module file of an entry.
type StoredModule struct {
	Name       string   `json:"name"`
	File       string   `json:"file"`
	SHA256     string   `json:"sha256"`
	BuildID    string   `json:"buildID,omitempty"`
	SrcVersion string   `json:"srcVersion,omitempty"`
	Vermagic   string   `json:"vermagic"`
	Depends    []string `json:"depends,omitempty"`
	Version    string   `json:"version,omitempty"`
}

// Entry is one driver in the store.
type Entry struct {
	Manifest
	// Path is the entry's directory as the machine sees it.
	Path string `json:"path"`
	// Current is true when the driver is the one chosen for its kind and kernel.
	Current bool `json:"current"`
	// Previous is true when the driver is the one that served before the current one.
	Previous bool `json:"previous,omitempty"`
	// Problem says why the entry cannot be used; empty when it can. The modules' digests are checked at each load.
	Problem string `json:"problem,omitempty"`
}

// key names an entry: the first 32 hexadecimal digits of the SHA-256 of the identity's canonical JSON.
func (id Identity) key() string {
	b, err := json.Marshal(struct {
		Schema int `json:"schema"`
		Identity
	}{storeSchema, id})
	if err != nil {
		panic(err) // strings always marshal
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])[:32]
}

// sameKernel reports whether an entry is for a kernel: by `uname -v` too, for a kernel that was not running when the entry
// was made may not have told its build-id.
func sameKernel(id string, k accel.Kernel) bool {
	return id != "" && (id == k.BuildID || id == k.Version)
}

// kernelID is what makes a kernel itself, where a release is not enough.
func kernelID(k accel.Kernel) string { return cmp.Or(k.BuildID, k.Version) }

func (m Manifest) module(name string) (StoredModule, bool) {
	i := slices.IndexFunc(m.Modules, func(s StoredModule) bool { return kmod.Normal(s.Name) == kmod.Normal(name) })
	if i < 0 {
		return StoredModule{}, false
	}
	return m.Modules[i], true
}

// modulesVersion is the driver's version as its modules say it.
func (m Manifest) modulesVersion() string {
	for _, s := range m.Modules {
		if s.Version != "" {
			return s.Version
		}
	}
	return ""
}

func (d *Driver) storeDir() string { return path.Join(d.o.StateDir, "kmod") }

func (d *Driver) entryDir(key string) string { return path.Join(d.storeDir(), key) }

func (d *Driver) buildDir() string { return path.Join(d.o.StateDir, "build") }

func (d *Driver) currentDir() string { return path.Join(d.storeDir(), "current") }

func (d *Driver) failedLog(key string) string { return path.Join(d.storeDir(), "failed", key+".log") }

// isKey tells an entry's directory from the store's others.
func isKey(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == 16
}

// manifest reads and checks an entry's manifest. It must say that it is of this key: an entry that was copied or whose
// manifest was changed is not used.
func (d *Driver) manifest(key string) (Manifest, error) {
	name := path.Join(d.entryDir(key), "manifest.json")
	b, err := d.h.ReadFile(name)
	if err != nil {
		return Manifest{}, err
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return Manifest{}, fmt.Errorf("cannot read %q: %w", name, err)
	}
	if m.Schema != storeSchema || m.Key != key || m.Identity.key() != key || len(m.Modules) == 0 {
		return Manifest{}, fmt.Errorf("cannot use %q: it does not describe this entry", name)
	}
	for _, s := range m.Modules {
		if s.File != path.Base(s.File) || !strings.HasSuffix(s.File, ".ko") {
			return Manifest{}, fmt.Errorf("cannot use %q: it names the file %q", name, s.File)
		}
	}
	return m, nil
}

// List returns the entries of the store, the oldest first. A directory that is no usable entry is listed with its
// problem.
func (d *Driver) List() ([]Entry, error) {
	dirs, err := d.h.ReadDir(d.storeDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	current, previous := map[string]bool{}, map[string]bool{}
	for _, c := range d.choices() {
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
		entry := Entry{Path: d.entryDir(e.Name()), Current: current[e.Name()], Previous: previous[e.Name()]}
		if entry.Manifest, err = d.manifest(e.Name()); err != nil {
			entry.Key, entry.Problem = e.Name(), err.Error()
		}
		entry.Version = cmp.Or(entry.Version, entry.modulesVersion())
		entries = append(entries, entry)
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.Built.Compare(b.Built) })
	return entries, nil
}

// find returns the usable entries for the kind on a kernel: the current one first, then the youngest first. Of a kernel
// that does not run only the release may be known.
// It needs no source tree and no network.
func (d *Driver) find(def *accel.Definition, k accel.Kernel) ([]Entry, error) {
	all, err := d.List()
	if err != nil {
		return nil, err
	}
	var out []Entry
	for _, e := range all {
		if e.Problem == "" && !e.Kept && e.Kind == def.Kind && e.Arch == k.Arch && e.KernelRelease == k.Release && sameKernel(e.KernelID, k) &&
			(def.Driver.Version == "" || e.Version == def.Driver.Version || e.modulesVersion() == def.Driver.Version) {
			out = append(out, e)
		}
	}
	chosen := ""
	if c := d.choice(def.Kind, k); c.Current != nil {
		chosen = c.Current.Key
	}
	slices.SortStableFunc(out, func(a, b Entry) int {
		if (a.Key == chosen) != (b.Key == chosen) {
			if a.Key == chosen {
				return -1
			}
			return 1
		}
		return b.Built.Compare(a.Built)
	})
	return out, nil
}

// generation describes the driver of an entry with the parameters that def has now.
func (e Entry) generation(def *accel.Definition) *Generation {
	g := &Generation{Source: accel.SourceStore, Key: e.Key, ID: e.Key, Version: e.modulesVersion(), Binds: def.Driver.Binds}
	for _, s := range e.Modules {
		m := accel.Module{Name: s.Name}
		if i := slices.IndexFunc(def.Driver.Modules, func(x accel.Module) bool { return kmod.Normal(x.Name) == kmod.Normal(s.Name) }); i >= 0 {
			m = def.Driver.Modules[i]
		}
		g.Modules = append(g.Modules, GenerationModule{Module: m, BuildID: s.BuildID, SrcVersion: s.SrcVersion, Version: s.Version})
	}
	return g
}

// digest returns the SHA-256 of what r has left, in hexadecimal.
func digest(r io.Reader) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// checkDigest compares a module file of the store with its manifest.
func (d *Driver) checkDigest(e Entry, s StoredModule) *accel.Problem {
	name := path.Join(e.Path, s.File)
	f, err := d.h.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return accel.Problemf(accel.DigestMismatch, "file %q of the store is gone", name)
	}
	if err != nil {
		return accel.ProblemOf(err, "cannot read module %q", name)
	}
	defer f.Close()
	sum, err := digest(f)
	if err != nil {
		return accel.ProblemOf(err, "cannot read module %q", name)
	}
	if sum != s.SHA256 {
		return accel.Problemf(accel.DigestMismatch, "file %q has SHA-256 %s, stored was %s", name, sum, s.SHA256)
	}
	return nil
}

// describe writes the manifest of an entry.
func (d *Driver) describe(w *workspace, m Manifest) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return d.h.WriteFile(path.Join(w.entry, "manifest.json"), append(b, '\n'), 0o600)
}

// publish moves the finished entry of a workspace to its place in the store. An entry that is there and readable wins: it has the
// same content by its name. One that is not readable is replaced.
func (d *Driver) publish(w *workspace, key string) error {
	to := d.entryDir(key)
	if d.h.Exists(to) {
		if _, err := d.manifest(key); err == nil {
			return nil
		}
		if err := d.h.RemoveAll(to); err != nil {
			return err
		}
	}
	return d.h.Rename(w.entry, to)
}

// sweep removes what builds that did not end left behind. A build holds the lock beside its directory.
func (d *Driver) sweep() {
	dirs := map[string]bool{}
	for _, name := range d.h.Glob(d.buildDir(), "*") {
		dirs[strings.TrimSuffix(name, ".lock")] = true
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		release, err := d.h.TryLock(dir+".lock", "")
		if err != nil {
			continue // at work
		}
		if err := errors.Join(d.h.RemoveAll(dir), d.h.Remove(dir+".lock")); err != nil {
			d.log.Warn("cannot remove an old build", "directory", dir, "error", err)
		}
		release()
	}
}
