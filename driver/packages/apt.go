package packages

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
)

// hostsOwn reports whether the URL of a repository stands for the mirror that the host's own package manager uses: the
// name of its server ends in ".invalid", which no server has (RFC 6761).
func hostsOwn(text string) bool {
	u, err := url.Parse(text)
	return err == nil && strings.HasSuffix(u.Hostname(), ".invalid")
}

// distributed is the component that a distribution has; repositories of others have suites of the same names.
const distributed = "main"

// aptLimit bounds each of apt's files of sources, in bytes.
const aptLimit = 1 << 20

// located returns r with the places of the host's own mirror, if its URL stands for that.
func (c *Client) located(r Repository) (Repository, *accel.Problem) {
	if !hostsOwn(r.URL) {
		return r, nil
	}
	if r.Format == RPM {
		return c.yumLocated(r, strings.ToLower(path.Base(r.URL)))
	}
	var places []string
	for _, file := range append([]string{"/etc/apt/sources.list"}, c.h.Glob("/etc/apt/sources.list.d", "*")...) {
		text, err := c.h.ReadFile(file)
		switch {
		case err != nil || len(text) > aptLimit: // most hosts have only one of them
		case strings.HasSuffix(file, ".list"):
			places = append(places, listed(string(text), r.Suite)...)
		case strings.HasSuffix(file, ".sources"):
			places = append(places, described(string(text), r.Suite)...)
		}
	}
	places = slices.Compact(places)
	if len(places) == 0 {
		return r, accel.Problemf(accel.RegistryUnreachable,
			"%q stands for the host's own mirror, and apt's files name none with the suite %q over HTTP: set `mirrors`",
			r.URL, r.Suite)
	}
	r.URL, r.Mirrors = places[len(places)-1], places[:len(places)-1]
	return r, nil
}

// listed returns the URLs that have a suite according to a file in apt's one-line style (sources.list(5)).
func listed(text, suite string) (out []string) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb")
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '\t' {
			continue
		}
		if rest = strings.TrimSpace(rest); strings.HasPrefix(rest, "[") {
			if _, rest, ok = strings.Cut(rest, "]"); !ok {
				continue
			}
		}
		f := strings.Fields(rest)
		if len(f) > 2 && f[1] == suite && slices.Contains(f[2:], distributed) && usable(f[0]) {
			out = append(out, f[0])
		}
	}
	return out
}

// described returns the URLs that have a suite according to a file in apt's deb822 style; none if it is not one.
func described(text, suite string) (out []string) {
	err := stanzas(strings.NewReader(text), func(s stanza) error {
		if strings.EqualFold(s["enabled"], "no") || !slices.Contains(strings.Fields(s["types"]), "deb") ||
			!slices.Contains(strings.Fields(s["suites"]), suite) ||
			!slices.Contains(strings.Fields(s["components"]), distributed) {
			return nil
		}
		for _, u := range strings.Fields(s["uris"]) {
			if usable(u) {
				out = append(out, u)
			}
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return out
}

// usable reports whether a URL of apt's is one that this package reads: no CD, no list of mirrors, no credentials.
func usable(text string) bool {
	_, err := base(text)
	return err == nil
}
