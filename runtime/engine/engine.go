// Package engine reads what the configuration files of a container runtime say, and finds the smallest change after
// which the runtime gives devices to containers by CDI. It follows each runtime's own rules: which files it reads
// and in which order, how it merges them, and what it refuses. The package writes nothing, starts nothing and asks
// no daemon: files come through an interface, a change goes out as a value.
//
// A change is proven before it is proposed: the files are read again as they would be, and the change is accepted
// only if devices then reach containers and everything else is unchanged.
package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/acceld/acceld/accel"
)

// Files is the file system from which a configuration is read. Paths are those of the machine.
type Files interface {
	ReadFile(name string) ([]byte, error)
	ReadDir(name string) ([]fs.DirEntry, error)
}

// Config is what the files of one container runtime say. It is what the runtime will do after its next start: a file
// that is newer than the daemon is not in force yet.
type Config struct {
	// Name and Layout identify the container runtime, see [accel.ContainerEngine].
	Name   string `json:"name"`
	Layout string `json:"layout,omitempty"`
	// Top is the top-level file, whether or not it exists.
	Top string `json:"top"`
	// Files are the files that were read, in the order in which they take effect.
	Files []string `json:"files,omitempty"`
	// CDI reports whether devices are injected. If that depends on an unknown version, it is what every version
	// does.
	CDI bool `json:"cdi"`
	// SpecDirs are the directories of CDI specs, lowest precedence first.
	SpecDirs []string `json:"specDirs,omitempty"`
	// Since is the first version that reads specs if this version is older. It is empty otherwise, and if the
	// version is not known.
	Since string `json:"since,omitempty"`
	// Unknown says why it is not known whether devices are injected, although the files are right; empty if it is.
	Unknown string `json:"unknown,omitempty"`
	// HookDirs are the directories of OCI hooks, lowest precedence first; none if the runtime reads no hooks.
	HookDirs []string `json:"hookDirs,omitempty"`

	// rest is everything else in the files, once for each major version that may be in use.
	rest []any
	// merge has containerd's files, which it merges.
	merge *containerdFiles
}

// Offers reports whether a device in a spec in dir is known to reach containers.
func (c *Config) Offers(dir string) bool { return c.Unknown == "" && c.right(dir) }

// right reports whether the files are such that a device in a spec in dir reaches containers.
func (c *Config) right(dir string) bool { return c.CDI && Reads(c.SpecDirs, dir) }

// Reads reports whether dir is one of the directories; /var/run is /run on every system with systemd.
func Reads(dirs []string, dir string) bool { return slices.ContainsFunc(dirs, samePlace(dir)) }

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

// Read reads the configuration of e. If a file cannot be read, or the runtime itself would refuse it, the problem is
// RuntimeConfigInvalid and names the file. For CRI-O and podman the result then has what the files before it say.
func Read(files Files, e accel.ContainerEngine) (*Config, *accel.Problem) {
	if row := RowOf(e.Name); row.read != nil {
		return row.read(files, e)
	}
	if e.Name == "" {
		return nil, accel.Problemf(accel.RuntimeMissingCDI, "cannot look at the container runtime: none was found").ToDo(
			"Install a container runtime, such as containerd or CRI-O, if containers should run here; acceld finds it by itself.")
	}
	return nil, accel.Problemf(accel.RuntimeMissingCDI,
		"cannot look at the container runtime: %q is not one that acceld knows", e.Name)
}

// Edit says which files may be changed.
type Edit string

// The edit policies.
const (
	EditNever  Edit = "never"  // no file
	EditDropin Edit = "dropin" // files of acceld's own, if the runtime reads such files
	EditFull   Edit = "full"   // also one line in an administrator's file
)

// File is one file of a change.
type File struct {
	Path string `json:"path"`
	// New is true if the file does not exist yet.
	New bool `json:"new,omitempty"`
	// Foreign is true for a file that is not acceld's own.
	Foreign bool   `json:"foreign,omitempty"`
	Before  []byte `json:"-"`
	After   []byte `json:"-"`
}

// Change has the files to write, in an order that keeps the configuration valid after each file. It is empty if
// there is nothing to do.
type Change struct {
	Files []File `json:"files,omitempty"`
	// Reload is true if the runtime takes over the change without a restart.
	Reload bool `json:"reload,omitempty"`
	// Restarts is true if the change itself restarts a running runtime, because its distribution watches the files.
	Restarts bool `json:"restarts,omitempty"`
}

// Foreign reports whether the change touches a file that is not acceld's own.
func (c Change) Foreign() bool {
	return slices.ContainsFunc(c.Files, func(f File) bool { return f.Foreign })
}

// Plan returns the change after which devices in specs in dir reach containers; it is empty if they already do. The
// problem is RuntimeConfigInvalid if the files are broken, and RuntimeMissingCDI if no change works or edit allows
// none that does.
func Plan(files Files, e accel.ContainerEngine, dir string, edit Edit) (Change, *accel.Problem) {
	now, p := Read(files, e)
	if p != nil {
		return Change{}, p
	}
	return now.Plan(files, e, dir, edit)
}

// Plan does what the function [Plan] does for the configuration of e that was read from files.
func (c *Config) Plan(files Files, e accel.ContainerEngine, dir string, edit Edit) (Change, *accel.Problem) {
	if c.right(dir) {
		return Change{}, nil
	}
	if c.Since != "" {
		return Change{}, accel.Problemf(accel.RuntimeMissingCDI,
			"%s %s does not read CDI specs, whatever its configuration: versions from %s do", e.Name, e.Version,
			c.Since)
	}
	var refused *accel.Problem
	row := RowOf(e.Name)
	for _, change := range row.changes(files, e, c, dir) {
		change.Reload, change.Restarts = row.Reload, Restarts(e, change)
		if len(change.Files) == 0 || !proven(files, e, c, change, dir) {
			continue
		}
		if edit == EditFull || edit == EditDropin && !change.Foreign() {
			return change, nil
		}
		if refused == nil {
			refused = accel.Problemf(accel.RuntimeMissingCDI,
				"%s does not read CDI specs in %q; it would after a change of %s, which `runtime.edit: %s` does not allow",
				e.Name, dir, names(change), edit)
		}
	}
	if refused == nil {
		refused = accel.Problemf(accel.RuntimeMissingCDI, "%s does not read CDI specs in %q, %s", e.Name, dir,
			obstacle(files, e, c, dir))
	}
	return Change{}, refused
}

// obstacle says why no change makes a runtime read the specs in dir, and where a person has to make one.
func obstacle(files Files, e accel.ContainerEngine, now *Config, dir string) string {
	switch {
	case e.CDI == "off":
		return "because its command line switches that off"
	case e.SpecDirs != nil && !Reads(e.SpecDirs, dir):
		return fmt.Sprintf("because its command line names other directories (%s)", strings.Join(e.SpecDirs, " "))
	}
	place := now.Top
	if rendersTemplate(e) {
		if r, p := rancherFiles(files, e); p == nil {
			place = r.ownTemplate(now)
		}
	}
	return fmt.Sprintf("and no change of %q that leaves the rest as it is makes it", place)
}

func names(c Change) string {
	var all []string
	for _, f := range c.Files {
		all = append(all, `"`+f.Path+`"`)
	}
	return strings.Join(all, " and ")
}

// proven reads the files as they would be after the change, and reports whether the change achieves its purpose and
// nothing else.
func proven(files Files, e accel.ContainerEngine, now *Config, c Change, dir string) bool {
	then, p := Read(With(files, c), e)
	return p == nil && then.right(dir) && reflect.DeepEqual(now.rest, then.rest) && slices.Equal(now.HookDirs,
		then.HookDirs)
}

// brought turns CDI off if the version is older than since, the first one that reads specs. If the version is not
// known well enough to tell, neither is whether it reads them.
func (c *Config) brought(version, since string) {
	switch order, known := compare(version, since); {
	case known && order < 0:
		c.CDI, c.Since = false, since
	case !known && c.CDI:
		c.Unknown = fmt.Sprintf("the version of %s is not known, and versions before %s do not read CDI specs", c.Name,
			since)
	}
}

// older reports whether a version is known to be older than another one.
func older(version, than string) bool {
	order, known := compare(version, than)
	return known && order < 0
}

// compare compares a version with a complete one. It is not known if the version has fewer numbers, all the same.
func compare(version, with string) (order int, known bool) {
	a, b := strings.Split(version, "."), strings.Split(with, ".")
	for i := range b {
		if i >= len(a) {
			return 0, false
		}
		x, err := strconv.Atoi(leadingDigits.FindString(a[i]))
		if err != nil {
			return 0, false
		}
		if y, _ := strconv.Atoi(b[i]); x != y { // with is a constant of this package
			return x - y, true
		}
	}
	return 0, true
}

var leadingDigits = regexp.MustCompile(`^[0-9]*`)

// read returns the content of name and whether the file exists.
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

// one returns the change that gives a single file the content after.
func one(files Files, name string, after []byte, foreign bool) Change {
	return Change{Files: []File{change(files, name, after, foreign)}}
}

// change returns the File that gives name the content after.
func change(files Files, name string, after []byte, foreign bool) File {
	b, there, _ := read(files, name) // what cannot be read was a problem earlier
	return File{Path: name, New: !there, Foreign: foreign, Before: b, After: after}
}

// list returns the strings of a configured list; false if v is not a list.
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

// listed reports whether v is a list of strings only.
func listed(v any) bool {
	all, ok := list(v)
	return ok && len(all) == len(v.([]any))
}

// table returns the table below t along the keys; nil if one of them is missing.
func table(t map[string]any, keys ...string) map[string]any {
	for _, k := range keys {
		t, _ = t[k].(map[string]any)
	}
	return t
}

// without returns a copy of t without the keys in the table at the path.
func without(t map[string]any, at []string, keys ...string) map[string]any {
	out := map[string]any{}
	for k, v := range t {
		if len(at) == 0 && slices.Contains(keys, k) {
			continue
		}
		if sub, ok := v.(map[string]any); ok && len(at) > 0 && k == at[0] {
			if sub = without(sub, at[1:], keys...); len(sub) == 0 {
				continue // a table with nothing else in it
			}
			v = sub
		}
		out[k] = v
	}
	return out
}

// merge returns a overridden by b: tables are merged, everything else is replaced.
func merge(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
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

// quoted renders a list of strings as TOML. It escapes nothing: proven refuses a path that would need it.
func quoted(all []string) string {
	if len(all) == 0 {
		return "[]"
	}
	return `["` + strings.Join(all, `", "`) + `"]`
}
