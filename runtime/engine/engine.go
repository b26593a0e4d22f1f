// Package engine reads what the configuration files of a container runtime say, and finds the smallest change after
// which the runtime gives devices to containers by CDI. Each runtime's own rules decide: which files it reads and in
// which order, how they are merged, what it refuses. The package writes nothing, starts nothing and asks no daemon:
// files come through an interface, a change goes out as a value.
//
// A change is proven before it is proposed: the files are read again as they would be, and it counts only when devices
// are then given and nothing else is different.
package engine

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
)

// Files is the file system that a configuration is read from, by the paths that the machine sees.
type Files interface {
	ReadFile(name string) ([]byte, error)
	ReadDir(name string) ([]fs.DirEntry, error)
}

// Config is what the files of one container runtime say. It is what the runtime does when it starts the next time; a
// file that is newer than the daemon is not in force yet.
type Config struct {
	// Name and Layout are those of the container runtime, as [accel.ContainerEngine] has them.
	Name   string `json:"name"`
	Layout string `json:"layout,omitempty"`
	// Top is the top-level file, whether it is there or not.
	Top string `json:"top"`
	// Files are those that were read, in the order in which they take effect.
	Files []string `json:"files,omitempty"`
	// CDI tells whether devices are injected. Where the version decides and is not known, it is what every version
	// does.
	CDI bool `json:"cdi"`
	// SpecDirs are the directories of CDI specs, the lowest precedence first.
	SpecDirs []string `json:"specDirs,omitempty"`
	// Since is the first version that reads specs, where this one is older; empty otherwise, and where the version is
	// not known.
	Since string `json:"since,omitempty"`
	// HookDirs are the directories of OCI hooks, the lowest precedence first; none where the runtime reads none.
	HookDirs []string `json:"hookDirs,omitempty"`

	// rest is everything else that the files say, once for each version that may be the right one.
	rest []any
	// merge is how containerd put its files together.
	merge *containerdFiles
}

// Offers reports whether a device in a spec in dir reaches containers.
func (c *Config) Offers(dir string) bool {
	return c.CDI && slices.ContainsFunc(c.SpecDirs, samePlace(dir))
}

// samePlace compares directories; /var/run is /run on every system with systemd.
func samePlace(dir string) func(string) bool {
	clean := func(d string) string {
		d = path.Clean(d)
		if d == "/var/run" || strings.HasPrefix(d, "/var/run/") {
			return strings.TrimPrefix(d, "/var")
		}
		return d
	}
	want := clean(dir)
	return func(d string) bool { return clean(d) == want }
}

// Read reads the configuration of e. The problem is RuntimeConfigInvalid and names the file when one cannot be read or
// is one that the runtime itself would refuse. Of CRI-O and podman it comes with what the files before it say.
func Read(files Files, e accel.ContainerEngine) (*Config, *accel.Problem) {
	switch e.Name {
	case "cri-o":
		return readCRIO(files, e)
	case "containerd":
		return readContainerd(files, e)
	case "docker":
		return readDocker(files, e)
	case "podman":
		return readPodman(files, e)
	case "":
		return nil, accel.Problemf(accel.RuntimeMissingCDI, "cannot look at the container runtime: none was found")
	}
	return nil, accel.Problemf(accel.RuntimeMissingCDI,
		"cannot look at the container runtime: %q is not one that acceld knows", e.Name)
}

// Edit says which files may be changed.
type Edit string

// The policies.
const (
	EditNever  Edit = "never"  // none
	EditDropin Edit = "dropin" // files of acceld's own, where the runtime reads such
	EditFull   Edit = "full"   // also one line in a file that is the administrator's
)

// File is one file of a change.
type File struct {
	Path string `json:"path"`
	// New is true when the file is not there.
	New bool `json:"new,omitempty"`
	// Foreign is true for a file that is not acceld's own.
	Foreign bool   `json:"foreign,omitempty"`
	Before  []byte `json:"-"`
	After   []byte `json:"-"`
}

// Change is what to write, in this order, so that the configuration is valid after each file. Empty when there is
// nothing to do.
type Change struct {
	Files []File `json:"files,omitempty"`
	// Reload is true when the runtime takes the change over without a restart.
	Reload bool `json:"reload,omitempty"`
}

// Foreign reports whether the change touches a file that is not acceld's own.
func (c Change) Foreign() bool {
	return slices.ContainsFunc(c.Files, func(f File) bool { return f.Foreign })
}

// Plan returns the change after which devices in specs in dir reach containers: none when they do already. The problem
// is RuntimeConfigInvalid when the files are broken as they are, and RuntimeMissingCDI when no change is good, or none
// that edit allows.
func Plan(files Files, e accel.ContainerEngine, dir string, edit Edit) (Change, *accel.Problem) {
	now, p := Read(files, e)
	if p != nil || now.Offers(dir) {
		return Change{}, p
	}
	if now.Since != "" {
		return Change{}, accel.Problemf(accel.RuntimeMissingCDI,
			"%s %s does not read CDI specs, whatever its configuration: versions from %s do", e.Name, e.Version,
			now.Since)
	}
	var refused *accel.Problem
	for _, c := range candidates(files, e, now, dir) {
		if len(c.Files) == 0 || !proven(files, e, now, c, dir) {
			continue
		}
		if edit == EditFull || edit == EditDropin && !c.Foreign() {
			return c, nil
		}
		if refused == nil {
			refused = accel.Problemf(accel.RuntimeMissingCDI,
				"%s does not read CDI specs in %q; it would after a change of %s, which `runtime.edit: %s` does not allow",
				e.Name, dir, names(c), edit)
		}
	}
	if refused == nil {
		refused = accel.Problemf(accel.RuntimeMissingCDI,
			"%s does not read CDI specs in %q, and no change of %q that leaves the rest as it is makes it", e.Name, dir,
			now.Top)
	}
	return Change{}, refused
}

func names(c Change) string {
	var all []string
	for _, f := range c.Files {
		all = append(all, `"`+f.Path+`"`)
	}
	return strings.Join(all, " and ")
}

// candidates returns changes that may do, the one that changes least of others' files first.
func candidates(files Files, e accel.ContainerEngine, now *Config, dir string) []Change {
	switch e.Name {
	case "cri-o":
		return crioChanges(files, now, dir)
	case "containerd":
		return containerdChanges(files, e, now, dir)
	case "docker":
		return dockerChanges(files, now, dir)
	case "podman":
		return podmanChanges(files, now, dir)
	}
	return nil
}

// proven reads the files as they would be.
func proven(files Files, e accel.ContainerEngine, now *Config, c Change, dir string) bool {
	then, p := Read(With(files, c), e)
	return p == nil && then.Offers(dir) && reflect.DeepEqual(now.rest, then.rest) && slices.Equal(now.HookDirs,
		then.HookDirs)
}

// brought makes the configuration that of a version which is older than the first one that reads specs.
func (c *Config) brought(version, since string) {
	if older(version, since) {
		c.CDI, c.Since = false, since
	}
}

// older compares versions as far as both have numbers. One that is not known is not older.
func older(version, than string) bool {
	a, b := strings.Split(version, "."), strings.Split(than, ".")
	for i := range min(len(a), len(b)) {
		x, err := strconv.Atoi(leadingDigits.FindString(a[i]))
		if err != nil {
			return false
		}
		if y, _ := strconv.Atoi(b[i]); x != y { // ours
			return x < y
		}
	}
	return false
}

var leadingDigits = regexp.MustCompile(`^[0-9]*`)

// read returns the content of name and whether it is there.
func read(files Files, name string) ([]byte, bool, *accel.Problem) {
	b, err := files.ReadFile(name)
	switch {
	case err == nil:
		return b, true, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	}
	return nil, false, accel.Problemf(accel.RuntimeConfigInvalid, "cannot read %q: %v", name, err)
}

// change makes the File that gives name the content after.
func change(files Files, name string, after []byte, foreign bool) File {
	b, there, _ := read(files, name) // what cannot be read was a problem before
	return File{Path: name, New: !there, Foreign: foreign, Before: b, After: after}
}

// list takes the strings of a configured list; false when there is none.
func list(v any) ([]string, bool) {
	all, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out := []string{}
	for _, e := range all {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out, true
}

// table returns the table below t along the keys; nil when one is not there.
func table(t map[string]any, keys ...string) map[string]any {
	for _, k := range keys {
		t, _ = t[k].(map[string]any)
	}
	return t
}

// without returns t without the keys in the table along the path; t stays as it is.
func without(t map[string]any, at []string, keys ...string) map[string]any {
	out := map[string]any{}
	for k, v := range t {
		if len(at) == 0 && slices.Contains(keys, k) {
			continue
		}
		if sub, ok := v.(map[string]any); ok && len(at) > 0 && k == at[0] {
			if sub = without(sub, at[1:], keys...); len(sub) == 0 {
				continue // a table that held nothing else
			}
			v = sub
		}
		out[k] = v
	}
	return out
}

// merge returns a with b over it: tables are merged, everything else is replaced.
func merge(a, b map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range a {
		out[k] = v
	}
	for k, v := range b {
		over, isTable := v.(map[string]any)
		under, wasTable := out[k].(map[string]any)
		if isTable && wasTable {
			v = merge(under, over)
		}
		out[k] = v
	}
	return out
}

func defaultSpecDirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// quoted renders a list of strings in TOML. Paths have no character that needs escaping; others are refused by proven.
func quoted(all []string) string {
	return `["` + strings.Join(all, `", "`) + `"]`
}

func or(s, otherwise string) string { return cmp.Or(s, otherwise) }
