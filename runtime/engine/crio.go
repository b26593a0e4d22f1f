package engine

import (
	"bytes"
	"path"
	"slices"
	"strconv"

	"github.com/pelletier/go-toml/v2"

	"github.com/acceld/acceld/accel"
)

const crioDropins = "/etc/crio/crio.conf.d"

// readCRIO merges the files as CRI-O 1.34 does. CDI is always on.
func readCRIO(files Files, e accel.ContainerEngine) (*Config, *accel.Problem) {
	c := &Config{
		Name: e.Name, Layout: e.Layout, Top: or(e.Config, "/etc/crio/crio.conf"), CDI: true,
		SpecDirs: defaultSpecDirs(), HookDirs: hookDirs()[:1],
	}
	tree := map[string]any{}
	for _, name := range append([]string{c.Top}, walk(files, crioDropins)...) {
		data, there, p := read(files, name)
		if p != nil {
			return c, p
		}
		if !there {
			if name == c.Top {
				continue
			}
			return c, accel.Problemf(accel.RuntimeConfigInvalid,
				"cannot use %q: it is a link to a file that is not there", name)
		}
		one := map[string]any{}
		data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // CRI-O's decoder accepts a byte order mark
		if err := toml.Unmarshal(data, &one); err != nil {
			return c, broken(name, err)
		}
		if p := listsOf(name, one, "crio", "runtime", "hooks_dir", "cdi_spec_dirs"); p != nil {
			return c, p
		}
		tree = merge(tree, one)
		c.Files = append(c.Files, name)
		if dirs, ok := list(table(one, "crio", "runtime")["cdi_spec_dirs"]); ok {
			c.SpecDirs = dirs
		}
		if dirs, ok := list(table(one, "crio", "runtime")["hooks_dir"]); ok {
			c.HookDirs = dirs
		}
	}
	c.rest = []any{without(tree, []string{"crio", "runtime"}, "cdi_spec_dirs")}
	return c, nil
}

// listsOf returns a problem if one of the keys of a table exists and is not a list of strings.
func listsOf(name string, tree map[string]any, at1, at2 string, keys ...string) *accel.Problem {
	for _, key := range keys {
		v, ok := table(tree, at1, at2)[key]
		if !ok {
			continue
		}
		if l, isList := list(v); !isList || len(l) != len(v.([]any)) {
			return accel.Problemf(accel.RuntimeConfigInvalid, "cannot use %q: %s is not a list of directories", name,
				key)
		}
	}
	return nil
}

// walk returns the files below dir in the order in which CRI-O reads them: lexical, recursive, with any suffix. So
// no temporary file may ever be in it.
func walk(files Files, dir string) []string {
	entries, err := files.ReadDir(dir)
	if err != nil {
		return nil
	}
	var all []string
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, walk(files, path.Join(dir, e.Name()))...)
		} else {
			all = append(all, path.Join(dir, e.Name()))
		}
	}
	return all
}

func crioChanges(files Files, _ accel.ContainerEngine, now *Config, dir string) []Change {
	text := ownComment + "\n[crio.runtime]\ncdi_spec_dirs = " + quoted(append(slices.Clone(now.SpecDirs), dir)) + "\n"
	return ownFiles(files, crioDropins, ".conf", text)
}

// stageCRIO stages crio.conf and the drop-ins in crio.conf.d, in the order in which they take effect.
func stageCRIO(files Files, c *Config) (map[string][]byte, error) {
	staged := map[string][]byte{"crio.conf": nil, "crio.conf.d/.keep/none": nil} // the directory must exist
	for i, name := range c.Files {
		data, _, p := read(files, name)
		if p != nil {
			return nil, p
		}
		if name == c.Top {
			staged["crio.conf"] = data
		} else {
			staged["crio.conf.d/"+strconv.Itoa(1000+i)] = data
		}
	}
	return staged, nil
}
