package accel

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Mirrors of registries and package repositories. A key is the name of a registry, such as "docker.io", or the URL of a
// repository. Mirrors are tried in order: those of a registry before the registry, those of a repository instead of it,
// because a mirror that lacks a package says enough.
type Mirrors map[string][]string

// Problems returns the errors in m, each as "<key>: <sentence>".
func (m Mirrors) Problems() (out []string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if len(m[key]) == 0 {
			out = append(out, fmt.Sprintf("%q: at least one mirror is needed", key))
		}
		for _, text := range m[key] {
			switch {
			case strings.Contains(key, "://") && !isWeb(text):
				out = append(out, fmt.Sprintf("%q: %q is not a URL, such as https://mirror.example/debian", key, text))
			case !strings.Contains(key, "://"):
				if problem := registryProblem(text); problem != "" {
					out = append(out, fmt.Sprintf("%q: %s", key, problem))
				}
			}
		}
	}
	return out
}

// isWeb tells whether text is a URL of http or https.
func isWeb(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

// registryProblem says that text is not a registry; empty if it is one.
func registryProblem(text string) string {
	if text == "" || strings.Contains(text, "://") || strings.Contains(text, "@") {
		return fmt.Sprintf("%q is not a registry, such as mirror.example or mirror.example/path", text)
	}
	return ""
}

// Of returns def with mirrors added to its sources; a source's own mirrors come first. Def is not changed.
func (m Mirrors) Of(def *Definition) *Definition {
	if len(m) == 0 {
		return def
	}
	out := *def
	out.Driver.Sources = m.all(def.Driver.Sources)
	if u := def.Driver.UserSpace; u != nil {
		out.Driver.UserSpace = u.from(m.all(u.Sources))
	}
	return &out
}

func (m Mirrors) all(list []Source) []Source {
	list = slices.Clone(list)
	for i, s := range list {
		server, _, _ := strings.Cut(s.Image, "/")
		list[i].Mirrors = slices.Concat(s.Mirrors, m[server])
		m.replace(&list[i].URL, &list[i].Mirrors)
		list[i].Also = m.pockets(s.Also)
		list[i].Needs = slices.Clone(s.Needs)
		for j := range list[i].Needs {
			n := &list[i].Needs[j]
			m.replace(&n.URL, &n.Mirrors)
			n.Also = m.pockets(n.Also)
		}
	}
	return list
}

func (m Mirrors) pockets(list []Pocket) []Pocket {
	list = slices.Clone(list)
	for i := range list {
		m.replace(&list[i].URL, &list[i].Mirrors)
	}
	return list
}

// replace puts the mirrors of a repository in its place.
func (m Mirrors) replace(url *string, mirrors *[]string) {
	if here := m[*url]; len(here) > 0 {
		last := len(here) - 1
		*mirrors, *url = slices.Concat(*mirrors, here[:last]), here[last]
	}
}
