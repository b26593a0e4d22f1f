package house

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// rooms lists every top-level directory of the product and the ones it may import. A new room is a decision about
// the house: it gets its row here and its line in ARCHITECTURE.md.
func rooms() map[string][]string {
	organ := []string{"accel", "host", "pace", "guard"}
	return map[string][]string{
		"accel":        {},
		"host":         {"accel", "guard"},
		"page":         {},
		"pace":         {},
		"guard":        {"pace"},
		"yamlfile":     {"accel"},
		"vendors":      {"accel", "yamlfile"},
		"detect":       organ,
		"driver":       organ,
		"runtime":      organ,
		"deviceplugin": organ,
		"health":       organ,
		"history":      {"accel", "host"},
		"handover":     organ,
		"repair":       {"accel", "pace"},
		"settings":     organ,
		"usage":        {"accel", "host", "pace"},
		"probe":        organ,
		"dra":          {"accel", "host", "pace", "guard", "kube"}, // its objects are at the API server
		"exporter":     {"accel", "host", "pace", "guard", "page"},
		"kube":         organ,
		"systemd":      organ,
		"agent": {
			"accel", "host", "pace", "guard", "detect", "driver", "runtime", "deviceplugin", "dra", "exporter", "handover",
			"health", "history", "kube", "probe", "repair", "settings", "systemd", "usage", "yamlfile",
		},
		"controller": {"accel", "kube", "pace", "page", "guard", "yamlfile"},
		"cmd": {
			"accel", "host", "pace", "guard", "vendors", "detect", "driver", "runtime", "deviceplugin", "dra", "exporter",
			"handover", "health", "history", "kube", "probe", "repair", "settings", "systemd", "usage", "agent", "controller",
			"yamlfile",
		},
	}
}

// Rooms returns the rooms and what each may import, for the picture of them.
func Rooms() map[string][]string { return rooms() }

// inside lists the packages of a room that has floors, and what each may import of the same room: those below it, and
// never the room itself. Rooms that are not named have no floors.
func inside() map[string]map[string][]string {
	return map[string]map[string][]string{
		"driver": {
			"artifact":  {"transfer", "trust", "unpack"},
			"companion": {"deadline", "devices"},
			"deadline":  {},
			"packages":  {"transfer", "unpack"},
			"progress":  {},
			"proof":     {"deadline"},
			"signing":   {},
			"template":  {},
			"transfer":  {},
			"trust":     {},
			"unpack":    {},
			"lock":      {"progress"},
			"kmod":      {"artifact", "signing", "template"},
			"steps":     {"deadline", "template"},
			"devices":   {"kmod"},
			"store":     {"artifact", "kmod", "lock", "template", "trust"},
			"firmware":  {"artifact", "kmod", "store"},
			"toolchain": {"artifact", "kmod", "packages", "progress", "store", "template", "trust"},
			"build":     {"artifact", "kmod", "progress", "signing", "store", "template", "toolchain", "trust"},
			"userspace": {"kmod", "packages", "store", "trust", "unpack"},
			"source": {
				"artifact", "build", "firmware", "kmod", "packages", "progress", "store", "template", "transfer", "trust",
				"unpack", "userspace",
			},
			".": {
				"artifact", "build", "companion", "deadline", "devices", "firmware", "kmod", "lock", "progress", "proof", "source",
				"steps", "store", "toolchain", "userspace",
			},
		},
	}
}

// below reports whether a source may import a package of its own room.
func below(s Source, p string) bool {
	floors, ok := inside()[s.Top()]
	if !ok || s.Test() {
		return true
	}
	from, to := path.Clean(strings.TrimPrefix(strings.TrimPrefix(s.Dir(), s.Top()), "/")), strings.TrimPrefix(p,
		s.Top()+"/")
	return slices.Contains(floors[from], to)
}

// outside are the directories that are not part of the product.
func outside() []string { return []string{"test", "tools", "packaging"} }

func imports(t *Tree) []Finding {
	var out []Finding
	for _, s := range t.Sources {
		allowed, ok := rooms()[s.Top()]
		if !ok {
			continue
		}
		for _, spec := range s.AST.Imports {
			p, ours := strings.CutPrefix(importPath(spec), t.Module+"/")
			if !ours || top(p) == s.Top() && below(s, p) || slices.Contains(allowed, top(p)) {
				continue
			}
			if s.Test() && top(p) == "test" {
				continue // fixtures that several packages' tests share
			}
			if s.Test() && s.Top() == "agent" && p == "vendors" {
				continue // the agent is tested with the definitions that cmd gives it
			}
			if s.Test() && s.Dir() == "host/hosttest" && p == "detect" {
				continue // the fake machine is right when its reader understands it
			}
			from := s.Top()
			if top(p) == from {
				from = s.Dir()
			}
			out = append(out, t.find(s, spec, "%s imports %s", from, p))
		}
	}
	return out
}

func dependencies(t *Tree) []Finding {
	extra := map[string][]string{
		"accel":    {},
		"vendors":  {"sigs.k8s.io/yaml", "go.yaml.in/yaml/v3", "gopkg.in/yaml.v3"},
		"yamlfile": {"go.yaml.in/yaml/v3"},
	}
	var out []Finding
	for _, s := range t.Sources {
		allowed, ok := extra[s.Top()]
		if !ok || s.Test() {
			continue
		}
		for _, spec := range s.AST.Imports {
			p := importPath(spec)
			standard := !strings.Contains(top(p), ".")
			ours := strings.HasPrefix(p, t.Module+"/")
			if !standard && !ours && !slices.Contains(allowed, p) {
				out = append(out, t.find(s, spec, "%s imports %s", s.Top(), p))
			}
		}
	}
	return out
}

// clientset looks for the generated client of every API group there is: the types of all of them are megabytes.
// gentype, the generic client under it, brings the fake API server and the OpenAPI models, 2.5 MB (measured: client-go
// v0.37.1, Go 1.26.8, stripped). The controller is not on every node, and the election of client-go needs the
// clientset.
func clientset(t *Tree) []Finding {
	var out []Finding
	for _, s := range t.Sources {
		if !s.Product() || s.Top() == "controller" || strings.HasPrefix(s.Path, "cmd/acceld-controller/") {
			continue
		}
		for _, spec := range s.AST.Imports {
			p := importPath(spec)
			for _, forbidden := range []string{
				"k8s.io/client-go/kubernetes", "k8s.io/client-go/informers",
				"k8s.io/client-go/gentype",
			} {
				// What is below it, such as the scheme, holds the types of every group too.
				if p == forbidden || strings.HasPrefix(p, forbidden+"/") {
					out = append(out, t.find(s, spec, "imports %s", p))
				}
			}
		}
	}
	return out
}

// templates looks for template packages: their execution makes the linker keep every method of every type. Package
// accel parses those of definitions and refuses what repeats or grows. Pages are values of package page, whose text is
// always escaped and can nowhere be markup.
func templates(t *Tree) []Finding {
	var out []Finding
	for _, s := range t.Sources {
		if !s.Product() {
			continue
		}
		for _, spec := range s.AST.Imports {
			switch p := importPath(spec); {
			case p == "html/template", p == "text/template", p == "text/template/parse" && s.Top() != "accel":
				out = append(out, t.find(s, spec, "imports %s", p))
			}
		}
	}
	return out
}

func places(t *Tree) []Finding {
	var out []Finding
	seen := map[string]bool{}
	for _, s := range t.Sources {
		if seen[s.Dir()] {
			continue
		}
		seen[s.Dir()] = true
		if _, ok := rooms()[s.Top()]; !ok && !slices.Contains(outside(), s.Top()) {
			out = append(out, Finding{s.Dir(), 0, "no such room in the house: see rooms in test/house/imports.go"})
		}
		for _, name := range []string{path.Base(s.Dir()), s.AST.Name.Name} {
			if slices.Contains([]string{"util", "utils", "helper", "helpers", "common", "misc", "shared", "lib", "pkg"},
				name) {
				out = append(out, Finding{s.Dir(), 0, fmt.Sprintf("%q says nothing about what is inside", name)})
				break
			}
		}
	}
	return out
}

func doc(t *Tree) []Finding {
	files := map[string][]Source{} // by directory; tests only where there is nothing else
	for _, s := range t.Sources {
		files[s.Dir()] = append(files[s.Dir()], s)
	}
	var out []Finding
	for dir, sources := range files {
		if slices.ContainsFunc(sources, func(s Source) bool { return !s.Test() }) {
			sources = slices.DeleteFunc(sources, Source.Test)
		}
		var documented []string
		for _, s := range sources {
			if s.AST.Doc == nil {
				continue
			}
			documented = append(documented, path.Base(s.Path))
			if want := opening(s.AST); !strings.HasPrefix(s.AST.Doc.Text(), want) {
				out = append(out, t.find(s, s.AST.Doc, "the package comment does not start with %q", want))
			}
		}
		if len(documented) != 1 {
			out = append(out, Finding{dir, 0, fmt.Sprintf("%d package comments %v, want 1", len(documented),
				documented)})
		}
	}
	return out
}

// opening is how the comment of a package starts, as go doc expects it.
func opening(f *ast.File) string {
	if f.Name.Name == "main" {
		return "Command "
	}
	return "Package " + strings.TrimSuffix(f.Name.Name, "_test") + " "
}
