package engine

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/acceld/acceld/accel"
)

// ownName is the name of acceld's own file in a drop-in directory.
const ownName = "60-acceld"

const ownComment = "# Written by acceld so that containers can be given devices by CDI; `acceld purge` takes it back."

// byteOrderMark starts the files of some editors. containerd 1.7 skips it; 2.4 rejects the file.
const byteOrderMark = "\xef\xbb\xbf"

// containerdFiles are the configuration files of one containerd as read.
type containerdFiles struct {
	files []containerdFile // the top-level file first
	deep  bool             // tables are merged in every version, as k0s does
	dialects
}

// containerdFile is one of the files.
type containerdFile struct {
	name    string
	there   bool
	data    []byte
	masked  []byte // for a template, the data with its actions masked
	version int    // of the format; 1 if it has none
	tree    map[string]any
}

// dialects says which major versions of containerd may read the files. Up to 1.7, a plugin's table in an imported
// file replaces the previous table completely, and CDI is off unless it is enabled. From 2.0, tables are merged and
// CDI is on; from 2.4, it cannot be disabled. Seen with 1.7.27 and 2.4.2.
type dialects struct{ one, two bool }

// plugin is the canonical name for the table of the CRI plugin, whatever a file calls it.
const plugin = "cri"

// criTable is the table with enable_cdi and cdi_spec_dirs in a file of the given format version.
func criTable(version int) []string {
	switch {
	case version >= 3:
		return []string{"plugins", "io.containerd.cri.v1.runtime"}
	case version == 2:
		return []string{"plugins", "io.containerd.grpc.v1.cri"}
	}
	return []string{"plugins", "cri"}
}

// readContainerd reads the files of a containerd. The kubelet names devices in a CRI field that containerd reads
// since 1.7.2 (containerd/containerd#8519). An older containerd starts the container without them, whatever
// enable_cdi says.
func readContainerd(files Files, e accel.ContainerEngine) (*Config, *accel.Problem) {
	c, p := readRendered(files, e)
	if c == nil && p == nil {
		c, p = readStandard(files, e, cmp.Or(e.Config, "/etc/containerd/config.toml"), decodeContainerd)
	}
	if c != nil {
		version := e.Version
		if !c.merge.one { // as the format of its files says
			version = cmp.Or(version, "2")
		}
		c.brought(version, "1.7.2")
	}
	return c, p
}

// decoder decodes the content of the named file.
type decoder func(name string, data []byte) (containerdFile, *accel.Problem)

// readStandard reads the file top, decoded by first, and its imports, breadth first as containerd does.
func readStandard(files Files, e accel.ContainerEngine, top string, first decoder) (*Config, *accel.Problem) {
	m := &containerdFiles{}
	seen := map[string]bool{}
	for pending := []string{top}; len(pending) > 0; pending = pending[1:] {
		name := pending[0]
		if seen[name] {
			continue
		}
		seen[name] = true
		decode := decodeContainerd
		if name == top {
			decode = first
		}
		f, p := parseContainerd(files, name, decode)
		if p != nil {
			return nil, p
		}
		if !f.there && name != top {
			return nil, accel.Problemf(accel.RuntimeConfigInvalid, "%q is imported and is not there", name)
		}
		imports, p := importsOf(files, f)
		if p != nil {
			return nil, p
		}
		pending = append(pending, imports...)
		m.files = append(m.files, f)
	}
	c := m.config(e)
	for _, f := range m.files {
		if !bytes.HasPrefix(f.data, []byte(byteOrderMark)) {
			continue
		}
		if !m.one {
			return nil, accel.Problemf(accel.RuntimeConfigInvalid,
				"cannot use %q: it starts with a byte order mark, which containerd 2 does not take", f.name)
		}
		e.Version = "1" // no other version could have started with it
		return m.config(e), nil
	}
	return c, nil
}

// parseContainerd reads one file by containerd's rules. A file that does not exist counts as empty.
func parseContainerd(files Files, name string, decode decoder) (containerdFile, *accel.Problem) {
	data, there, p := read(files, name)
	if p != nil {
		return containerdFile{}, p
	}
	f, p := decode(name, data)
	f.there = there
	return f, p
}

func decodeContainerd(name string, data []byte) (containerdFile, *accel.Problem) {
	f := containerdFile{name: name, data: data, version: 1, tree: map[string]any{}}
	if err := toml.Unmarshal(bytes.TrimPrefix(data, []byte(byteOrderMark)), &f.tree); err != nil {
		return f, broken(name, err)
	}
	if key := mistyped(f.tree); key != "" {
		return f, accel.Problemf(accel.RuntimeConfigInvalid, "cannot use %q: %s is not of the right type", name, key)
	}
	if v, ok := f.tree["version"].(int64); ok && v > 0 {
		f.version = int(v)
	}
	const newest = 4 // containerd 2.4
	if f.version > newest {
		return f, accel.Problemf(accel.RuntimeConfigInvalid, "cannot use %q: version %d of the format is not known",
			name, f.version)
	}
	return f, nil
}

// mistyped returns a key whose type containerd does not accept; empty if there is none.
func mistyped(tree map[string]any) string {
	if v, ok := tree["version"]; ok {
		if _, is := v.(int64); !is {
			return "version"
		}
	}
	if v, ok := tree["imports"]; ok && !listed(v) {
		return "imports"
	}
	if v, ok := tree["plugins"]; ok {
		if _, is := v.(map[string]any); !is {
			return "plugins"
		}
	}
	return ""
}

// broken reports where a TOML file is broken.
func broken(name string, err error) *accel.Problem {
	if d, ok := err.(*toml.DecodeError); ok { //nolint:errorlint // the decoder returns it as it is
		row, column := d.Position()
		return accel.Problemf(accel.RuntimeConfigInvalid, "cannot use %q: line %d, column %d: %v", name, row, column,
			err)
	}
	return accel.Problemf(accel.RuntimeConfigInvalid, "cannot use %q: %v", name, err)
}

// importsOf resolves the imports of a file. Those with a star are patterns, others must exist. Relative ones are
// relative to the file.
func importsOf(files Files, f containerdFile) ([]string, *accel.Problem) {
	var out []string
	imports, _ := list(f.tree["imports"])
	for _, name := range imports {
		name = path.Clean(name)
		if !path.IsAbs(name) {
			name = path.Join(path.Dir(f.name), name)
		}
		if !strings.Contains(name, "*") {
			out = append(out, name)
			continue
		}
		found, err := glob(files, name)
		if err != nil {
			return nil, accel.Problemf(accel.RuntimeConfigInvalid, "cannot use %q: import %q: %v", f.name, name, err)
		}
		out = append(out, found...)
	}
	return out, nil
}

// dialectsOf returns which major versions may be in use: by the version if it is known, otherwise by the format of
// the top-level file, since only newer ones read format 3.
func dialectsOf(version string, format int) dialects {
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	n, err := strconv.Atoi(major)
	switch {
	case format >= 3 || err == nil && n >= 2:
		return dialects{two: true}
	case err == nil && n == 1:
		return dialects{one: true}
	}
	return dialects{one: true, two: true}
}

// config merges the files.
func (m *containerdFiles) config(e accel.ContainerEngine) *Config {
	top := m.files[0]
	m.dialects = dialectsOf(e.Version, top.version)
	c := &Config{Name: e.Name, Layout: e.Layout, Top: top.name, CDI: true, merge: m}
	for _, f := range m.files {
		if f.there {
			c.Files = append(c.Files, f.name)
		}
	}
	if m.one {
		m.take(c, m.merged(m.deep), false)
	}
	if m.two {
		m.take(c, m.merged(true), true)
	}
	return c
}

// take adds to c how one major version reads the files; tree is the merged content, and on is the default for CDI.
func (m *containerdFiles) take(c *Config, tree map[string]any, on bool) {
	cri := table(tree, "plugins", plugin)
	if v, ok := cri["enable_cdi"].(bool); ok {
		on = v
	}
	c.CDI = c.CDI && on
	dirs, ok := list(cri["cdi_spec_dirs"])
	if !ok {
		dirs = defaultSpecDirs()
	}
	if len(c.rest) == 0 {
		c.SpecDirs = dirs
	} else { // only those that both major versions read
		c.SpecDirs = slices.DeleteFunc(c.SpecDirs, func(d string) bool { return !slices.Contains(dirs, d) })
	}
	c.rest = append(c.rest, without(tree, []string{"plugins", plugin}, "enable_cdi", "cdi_spec_dirs"))
}

// merged merges the files. It leaves out imports and versions: they say where settings are, not what they are.
func (m *containerdFiles) merged(deep bool) map[string]any {
	out := map[string]any{}
	for _, f := range m.files {
		tree := without(f.tree, nil, "imports", "version")
		if plugins, ok := tree["plugins"].(map[string]any); ok {
			named := map[string]any{}
			for name, v := range plugins {
				if name == criTable(f.version)[1] {
					name = plugin
				}
				named[name] = v
			}
			tree["plugins"] = named
			if before, ok := out["plugins"].(map[string]any); ok && !deep {
				for name := range named {
					delete(before, name)
				}
			}
		}
		out = merge(out, tree)
	}
	return out
}

// owner returns the file whose table of the CRI plugin is in force; the top-level file if none has such a table.
func (m *containerdFiles) owner() containerdFile {
	for _, f := range slices.Backward(m.files) {
		if table(f.tree, criTable(f.version)...) != nil {
			return f
		}
	}
	return m.files[0]
}

// wanted is a key of the plugin's table, its value as TOML, and, for a list, the missing element.
type wanted struct{ key, value, element string }

// wants returns the keys that must change.
func wants(now *Config, dir string) []wanted {
	var w []wanted
	if !now.CDI {
		w = append(w, wanted{"enable_cdi", "true", ""})
	}
	if !slices.ContainsFunc(now.SpecDirs, samePlace(dir)) {
		w = append(w, wanted{"cdi_spec_dirs", quoted(append(slices.Clone(now.SpecDirs), dir)), dir})
	}
	return w
}

// dropin renders acceld's own file.
func dropin(version int, w []wanted) []byte {
	var b strings.Builder
	b.WriteString(ownComment + "\n")
	if version > 1 {
		fmt.Fprintf(&b, "version = %d\n", version)
	}
	fmt.Fprintf(&b, "\n%s\n", header(criTable(version)))
	for _, k := range w {
		fmt.Fprintf(&b, "  %s = %s\n", k.key, k.value)
	}
	return []byte(b.String())
}

// containerdChanges returns candidates in this order: a file of our own, if one would be imported already; a file of
// our own and the line that imports it; the keys in the table that is in force.
func containerdChanges(files Files, e accel.ContainerEngine, now *Config, dir string) []Change {
	w := wants(now, dir)
	switch {
	case rendersTemplate(e):
		return rancherChanges(files, e, now, w)
	case now.merge.deep:
		return ownFiles(files, k0sDropins(now.Top), ".toml", dropin(now.merge.files[0].version, w))
	}
	return standardChanges(files, now, w)
}

func standardChanges(files Files, now *Config, w []wanted) []Change {
	m := now.merge
	top := m.files[0]
	changes := ownImports(files, now, w)
	own := path.Join(path.Dir(top.name), "conf.d", ownName+".toml")
	if d, err := parseDocument(top.data); err == nil {
		pattern := path.Join(path.Dir(own), "*.toml")
		var after []byte
		switch _, has := d.find(false, "imports"); {
		case has:
			after, err = d.extend(pattern, "imports")
		case top.there:
			after = d.addRoot("imports", `["`+pattern+`"]`, "version")
		default:
			after = []byte(ownComment + "\nversion = 2\nimports = [\"" + pattern + "\"]\n")
		}
		if err == nil {
			version := top.version
			if !top.there {
				version = 2
			}
			changes = append(changes, Change{Files: []File{
				change(files, own, dropin(version, w), false),
				change(files, top.name, after, true),
			}})
		}
	}
	return append(changes, keysInForce(files, m, w)...)
}

// keysInForce returns the change of the table that is in force; none if it cannot be made.
func keysInForce(files Files, m *containerdFiles, w []wanted) []Change {
	after, err := setKeys(m.owner(), w)
	if err != nil {
		return nil
	}
	return []Change{one(files, m.owner().name, after, true)}
}

// ownImports returns the changes that only add a file of our own, which an existing import pattern matches.
func ownImports(files Files, now *Config, w []wanted) []Change {
	var changes []Change
	for _, f := range now.merge.files {
		imports, _ := list(f.tree["imports"])
		for _, pattern := range imports {
			if !path.IsAbs(pattern) {
				pattern = path.Join(path.Dir(f.name), pattern)
			}
			dir, last := path.Split(path.Clean(pattern))
			for _, name := range ownNames() {
				name += ".toml"
				if ok, err := path.Match(last, name); err == nil && ok && !strings.Contains(dir, "*") && last != name {
					changes = append(changes,
						one(files, path.Join(dir, name), dropin(now.merge.files[0].version, w), false))
				}
			}
		}
	}
	return changes
}

// setKeys writes the keys into the file's own table.
func setKeys(f containerdFile, w []wanted) ([]byte, error) {
	data := f.data
	version := f.version
	if !f.there {
		data, version = []byte(ownComment+"\nversion = 2\n"), 2
	}
	for _, k := range slices.Backward(w) { // backward, because each key is inserted first
		places := data
		if f.masked != nil {
			places = mask(data)
		}
		d, err := parseDocument(places)
		if err != nil {
			return nil, err
		}
		d.data = data
		if it, ok := d.find(false, append(criTable(version), k.key)...); ok && k.element != "" &&
			data[it.value] == '[' {
			if data, err = d.extend(k.element, it.path...); err != nil {
				return nil, err
			}
			continue
		}
		if data, err = d.set(k.value, k.key, criTable(version)...); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// stageContainerd stages the files as 0.toml, 1.toml and so on; their imports point to the copies.
func stageContainerd(files Files, c *Config) (map[string][]byte, error) {
	if c.merge == nil || c.Layout != "" {
		return nil, nil
	}
	staged := map[string][]byte{}
	number := map[string]int{}
	for i, f := range c.merge.files {
		number[f.name] = i
	}
	for i, f := range c.merge.files {
		imports, p := importsOf(files, f)
		if p != nil {
			return nil, p
		}
		var moved []string
		for _, name := range imports {
			moved = append(moved, path.Join(StageDir, strconv.Itoa(number[name])+".toml"))
		}
		data := f.data
		d, err := parseDocument(data)
		if err != nil {
			return nil, err
		}
		if it, ok := d.find(false, "imports"); ok {
			data = d.replace(it.value, it.end, quoted(moved))
		}
		staged[strconv.Itoa(i)+".toml"] = data
	}
	return staged, nil
}
