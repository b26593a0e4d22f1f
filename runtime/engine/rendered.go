package engine

import (
	"bytes"
	"cmp"
	"path"
	"regexp"
	"slices"

	"github.com/pelletier/go-toml/v2"

	"github.com/acceld/acceld/accel"
)

// readRendered reads the configuration of Kubernetes distributions that write containerd's files themselves. It
// returns nil for a containerd that reads what the administrator wrote. Each renders what the administrator put next to
// its file:
//
//	k3s, RKE2  config.toml is rendered at each start from config.toml.tmpl, or config-v3.toml.tmpl for containerd 2,
//	           or a built-in template ("base"); newer ones import config.toml.d/*.toml or config-v3.toml.d/*.toml
//	k0s        containerd.toml with the first line "# k0s_managed=true" is written by k0s, which merges the tables of
//	           the CRI in containerd.d/*.toml over its own; without the line it is the administrator's
//
//	microk8s   containerd.toml is made at each start from containerd-template.toml by replacing words such as ${SNAP}
//
// Sources: pkg/agent/templates of k3s, pkg/component/worker/containerd of k0s, run-containerd-with-args of microk8s.
func readRendered(files Files, e accel.ContainerEngine) (*Config, *accel.Problem) {
	switch e.Layout {
	case "k3s", "rke2":
		return readRancher(files, e)
	case "k0s":
		return readK0s(files, e)
	case "microk8s":
		dir := path.Dir(cmp.Or(e.Config, "/var/snap/microk8s/current/args/containerd.toml"))
		return readStandard(files, e, path.Join(dir, "containerd-template.toml"), decodeContainerd)
	}
	return nil, nil
}

// rancher has the files of a k3s or RKE2.
type rancher struct {
	dir, generated, template string // template is empty if there is none
	base                     bool   // the template includes the built-in one
}

func rancherFiles(files Files, e accel.ContainerEngine) (rancher, *accel.Problem) {
	r := rancher{dir: "/var/lib/rancher/" + e.Layout + "/agent/etc/containerd"}
	if e.Config != "" {
		r.dir = path.Dir(e.Config)
	}
	r.generated = path.Join(r.dir, "config.toml")
	g, p := parseContainerd(files, r.generated, decodeContainerd)
	if p != nil {
		return r, p
	}
	names := []string{"config.toml.tmpl"}
	if dialectsOf(e.Version, g.version).two { // containerd 2 falls back to the other template
		names = []string{"config-v3.toml.tmpl", "config.toml.tmpl"}
	}
	for _, name := range names {
		data, there, p := read(files, path.Join(r.dir, name))
		if p != nil {
			return r, p
		}
		if there {
			r.template = path.Join(r.dir, name)
			r.base = regexp.MustCompile(`\{\{-?\s*template\s+["` + "`" + `]base["` + "`" + `]`).Match(data)
			break
		}
	}
	return r, nil
}

// readRancher reads the template if it is complete, otherwise what the last start rendered from the built-in one.
func readRancher(files Files, e accel.ContainerEngine) (*Config, *accel.Problem) {
	r, p := rancherFiles(files, e)
	if p != nil {
		return nil, p
	}
	if r.template != "" && !r.base {
		return readStandard(files, e, r.template, decodeTemplate)
	}
	return readStandard(files, e, r.generated, decodeContainerd)
}

const k0sMark = "# k0s_managed=true"

func readK0s(files Files, e accel.ContainerEngine) (*Config, *accel.Problem) {
	top := cmp.Or(e.Config, k0sConfig)
	f, p := parseContainerd(files, top, decodeContainerd)
	if p != nil {
		return nil, p
	}
	if f.there && !bytes.HasPrefix(bytes.TrimSpace(f.data), []byte(k0sMark)) {
		return readStandard(files, e, top, decodeContainerd)
	}
	if !f.there {
		f.version = 2 // as in every k0s so far with containerd 1
	}
	f.tree = map[string]any{}
	m := &containerdFiles{deep: true, files: []containerdFile{f}}
	dropins, err := glob(files, k0sDropins(top)+"/*.toml")
	if err != nil {
		return nil, accel.Problemf(accel.RuntimeConfigInvalid, "cannot look for files beside %q: %v", top, err)
	}
	for _, name := range dropins {
		d, p := parseContainerd(files, name, decodeContainerd)
		if p != nil {
			return nil, p
		}
		if _, ok := d.tree["version"]; !ok {
			d.version = f.version // k0s looks only at the tables' names
		}
		m.files = append(m.files, d)
	}
	return m.config(e), nil
}

// Restarts reports whether writing a change restarts a running containerd: k0s watches its directory of drop-ins, and
// restarts containerd three seconds after a change in it (k0sproject/k0s,
// pkg/component/worker/containerd/component.go).
func Restarts(e accel.ContainerEngine, c Change) bool {
	dir := k0sDropins(cmp.Or(e.Config, k0sConfig))
	return e.Layout == "k0s" && slices.ContainsFunc(c.Files, func(f File) bool { return path.Dir(f.Path) == dir })
}

const k0sConfig = "/etc/k0s/containerd.toml"

func k0sDropins(top string) string { return path.Join(path.Dir(top), "containerd.d") }

// rendersTemplate reports whether the distribution renders containerd's file from a template at each start.
func rendersTemplate(e accel.ContainerEngine) bool { return e.Layout == "k3s" || e.Layout == "rke2" }

// ownTemplate returns the template in which a person changes the configuration: what is rendered from it would be
// overwritten at the next start.
func (r rancher) ownTemplate(now *Config) string {
	name := "config.toml.tmpl"
	if now.merge.files[0].version >= 3 {
		name = "config-v3.toml.tmpl"
	}
	return cmp.Or(r.template, path.Join(r.dir, name))
}

// rancherChanges returns the changes for k3s and RKE2. They never change the rendered file.
func rancherChanges(files Files, e accel.ContainerEngine, now *Config, w []wanted) []Change {
	r, p := rancherFiles(files, e)
	if p != nil {
		return nil
	}
	changes := ownImports(files, now, w)
	owner := now.merge.owner()
	switch {
	case r.template != "" && !r.base:
		changes = append(changes, keysInForce(files, now.merge, w)...)
	case r.template == "" && owner.name == r.generated && owner.there && !bytes.Contains(owner.data, []byte("{{")):
		// The table is in the built-in template, and appending to that would define it twice. The only way left is a
		// complete template: the rendered file with our keys. It stops following the built-in template, so it needs
		// the full policy.
		after, err := setKeys(owner, w)
		if err != nil {
			break
		}
		text := ownComment + "\n# It is the config.toml that was rendered, and one change.\n" + string(after)
		changes = append(changes, one(files, r.ownTemplate(now), []byte(text), true))
	}
	return changes
}

// mask replaces the actions of a template by TOML of the same length, so that positions stay the same. An action at
// the start of a line becomes white space. An action within a line becomes a number or, in a string, some of its
// characters.
func mask(data []byte) []byte {
	out := slices.Clone(data)
	for _, at := range regexp.MustCompile(`(?s)\{\{.*?\}\}`).FindAllIndex(data, -1) {
		for i := at[0]; i < at[1]; i++ {
			if out[i] != '\n' && out[i] != '\r' {
				out[i] = ' '
			}
		}
		start := bytes.LastIndexByte(out[:at[0]], '\n') + 1
		if len(bytes.Trim(out[start:at[0]], " \t")) > 0 {
			out[at[0]] = '1'
		}
	}
	return out
}

// decodeTemplate reads a template as far as that is possible without its values. If a key occurs once per branch of
// an action, only the last one counts.
func decodeTemplate(name string, data []byte) (containerdFile, *accel.Problem) {
	masked := mask(data)
	if bytes.Equal(masked, data) {
		return decodeContainerd(name, data)
	}
	f := containerdFile{name: name, data: data, masked: masked, version: 1, tree: map[string]any{}}
	d, err := parseDocument(masked)
	if err != nil {
		return f, broken(name, err)
	}
	for _, it := range d.items {
		if it.header {
			continue
		}
		var v map[string]any
		if toml.Unmarshal([]byte("v = "+string(masked[it.value:it.end])), &v) == nil {
			put(f.tree, v["v"], it.path)
		}
	}
	if v, ok := f.tree["version"].(int64); ok {
		f.version = int(v)
	}
	delete(f.tree, "imports") // they may be in an action; a complete template rarely has any
	return f, nil
}

// put sets the value at the path, and creates the tables above it.
func put(t map[string]any, v any, at []string) {
	for _, k := range at[:len(at)-1] {
		next, ok := t[k].(map[string]any)
		if !ok {
			next = map[string]any{}
			t[k] = next
		}
		t = next
	}
	t[at[len(at)-1]] = v
}
