package engine

import (
	"cmp"
	"path"
	"slices"

	"github.com/pelletier/go-toml/v2"

	"github.com/acceld/acceld/accel"
)

const podmanDropins = "/etc/containers/containers.conf.d"

// readPodman merges the files as containers.conf(5) says. podman reads them for each container, so nothing ever
// needs a restart. CDI is always on.
func readPodman(files Files, e accel.ContainerEngine) (*Config, *accel.Problem) {
	c := &Config{
		Name: e.Name, Layout: e.Layout, Top: cmp.Or(e.Config, "/etc/containers/containers.conf"), CDI: true,
		SpecDirs: defaultSpecDirs(), HookDirs: hookDirs()[:1],
	}
	tree := map[string]any{}
	names := []string{"/usr/share/containers/containers.conf", c.Top}
	if found, err := glob(files, podmanDropins+"/*.conf"); err == nil {
		names = append(names, found...)
	}
	for _, name := range names {
		data, there, p := read(files, name)
		if p != nil {
			return c, p
		}
		if !there {
			continue
		}
		one := map[string]any{}
		if err := toml.Unmarshal(data, &one); err != nil {
			return c, broken(name, err)
		}
		engine := table(one, "engine")
		c.SpecDirs = appended(engine["cdi_spec_dirs"], c.SpecDirs)
		c.HookDirs = appended(engine["hooks_dir"], c.HookDirs)
		tree = merge(tree, one)
		c.Files = append(c.Files, name)
	}
	c.rest = []any{without(tree, []string{"engine"}, "cdi_spec_dirs")}
	return c, nil
}

// appended applies a configured list of directories to the previous one: it replaces it, or with {append = true}
// extends it.
func appended(v any, before []string) []string {
	all, ok := v.([]any)
	if !ok {
		return before
	}
	dirs := []string{}
	for _, e := range all {
		switch e := e.(type) {
		case string:
			if path.IsAbs(e) {
				dirs = append(dirs, path.Clean(e))
			}
		case map[string]any:
			if e["append"] == true {
				dirs = append(slices.Clone(before), dirs...)
			}
		}
	}
	return dirs
}
