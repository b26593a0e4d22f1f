package engine

import (
	"bytes"
	"cmp"
	"path"
	"strconv"

	"github.com/pelletier/go-toml/v2"

	"github.com/acceld/acceld/accel"
)

const crioDropins = "/etc/crio/crio.conf.d"

// readCRIO merges the files as CRI-O 1.34 does. Its command line wins over them. CDI is always on.
func readCRIO(files Files, e accel.ContainerEngine) (*Config, *accel.Problem) {
	c := &Config{
		Name: e.Name, Layout: e.Layout, Top: cmp.Or(e.Config, "/etc/crio/crio.conf"), CDI: true,
		SpecDirs: defaultSpecDirs(), HookDirs: hookDirs()[:1],
	}
	tree := map[string]any{}
	for _, name := range append([]string{c.Top}, walk(files, dropinsOf(e))...) {
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
		data = bytes.TrimPrefix(data, []byte(byteOrderMark)) // CRI-O's decoder accepts it
		if err := toml.Unmarshal(data, &one); err != nil {
			return c, broken(name, err)
		}
		runtime := table(one, "crio", "runtime")
		for _, key := range []string{"hooks_dir", "cdi_spec_dirs"} {
			if v, ok := runtime[key]; ok && !listed(v) {
				return c, accel.Problemf(accel.RuntimeConfigInvalid, "cannot use %q: %s is not a list of directories",
					name, key)
			}
		}
		tree = merge(tree, one)
		c.Files = append(c.Files, name)
		if dirs, ok := list(runtime["cdi_spec_dirs"]); ok {
			c.SpecDirs = dirs
		}
		if dirs, ok := list(runtime["hooks_dir"]); ok {
			c.HookDirs = dirs
		}
	}
	if e.SpecDirs != nil {
		c.SpecDirs = e.SpecDirs
	}
	if e.HookDirs != nil {
		c.HookDirs = e.HookDirs
	}
	c.rest = []any{without(tree, []string{"crio", "runtime"}, "cdi_spec_dirs")}
	return c, nil
}

// dropinsOf returns the directory of CRI-O's drop-ins.
func dropinsOf(e accel.ContainerEngine) string { return cmp.Or(e.ConfigDir, crioDropins) }

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
