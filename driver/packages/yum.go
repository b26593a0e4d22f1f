package packages

import (
	"bytes"
	"context"
	"encoding/xml"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/transfer"
	"github.com/acceld/acceld/host"
)

// The directories in which dnf and zypper keep the repositories that they use (dnf.conf(5), zypper(8)).
const (
	yumDir  = "/etc/yum.repos.d"
	zyppDir = "/etc/zypp/repos.d"
)

// The bounds of lists of mirrors.
const (
	mirrorListLimit = 1 << 20 // bytes
	mirrorsLimit    = 8       // mirrors that are tried
)

// yumRepository is a repository in a file of dnf or zypper.
type yumRepository struct {
	id string
	// urls are the repository's; lists are URLs of lists of mirrors.
	urls, lists []string
	off         bool
	// certified means that its server wants a certificate of the client, as Red Hat's does.
	certified bool
}

// yumLocated returns r with the places of the repositories that the host's dnf or zypper uses and whose id has the last
// element of r's URL as one of its words: that of "http://rhel.invalid/appstream" is "appstream", which is in
// "rhel-9-for-x86_64-appstream-rpms" and in Rocky's "appstream".
func (c *Client) yumLocated(r Repository, word string) (Repository, *accel.Problem) {
	var urls []string
	certified := ""
	for _, dir := range []string{yumDir, zyppDir} {
		vars := yumVars(c.h, dir, r.Architecture)
		for _, file := range c.h.Glob(dir, "*.repo") {
			text, err := c.h.ReadFile(file)
			if err != nil || len(text) > aptLimit {
				continue
			}
			for _, y := range yumRepositories(string(text), vars) {
				switch {
				case y.off || !y.has(word):
				case y.certified:
					certified = y.id
				default:
					urls, r.lists = append(urls, y.urls...), append(r.lists, y.lists...)
				}
			}
		}
	}
	urls = slices.Compact(urls)
	switch {
	case len(urls) > 0:
		r.URL, r.Mirrors = urls[len(urls)-1], urls[:len(urls)-1]
	case len(r.lists) > 0:
		r.URL, r.Mirrors = "", nil
	case certified != "":
		return r, accel.Problemf(accel.RegistryDenied,
			"%q stands for the host's own mirror, and the server of %q wants a certificate of the client: set `mirrors`", r.URL,
			certified)
	default:
		return r, accel.Problemf(accel.RegistryUnreachable,
			"%q stands for the host's own mirror, and no repository of dnf or zypper that is on has %q in its id: set `mirrors`",
			r.URL, word)
	}
	return r, nil
}

// has reports whether a word is in a repository's id, and that it is not one of source code or of debugging symbols.
func (y yumRepository) has(word string) bool {
	words := strings.FieldsFunc(strings.ToLower(y.id), func(c rune) bool { return !letterOrDigit(c) })
	other := slices.ContainsFunc(words, func(w string) bool {
		return slices.Contains([]string{"source", "src", "debug", "debuginfo", "debugsource"}, w)
	})
	return slices.Contains(words, word) && !other
}

func letterOrDigit(c rune) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' }

// yumRepositories reads a file of repositories. Places with a variable that is not in vars, and those that this
// package does not read, are left out.
func yumRepositories(text string, vars map[string]string) (out []yumRepository) {
	var key string
	for line := range strings.Lines(text) {
		rest := strings.TrimSpace(line)
		continued := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		switch {
		case rest == "" || rest[0] == '#' || rest[0] == ';':
			continue
		case rest[0] == '[' && !continued:
			id, _, _ := strings.Cut(rest[1:], "]")
			out, key = append(out, yumRepository{id: id}), ""
			continue
		case len(out) == 0:
			continue
		}
		value := rest
		if !continued {
			key, value, _ = strings.Cut(rest, "=")
			key = strings.TrimSpace(key)
		}
		out[len(out)-1].set(key, strings.TrimSpace(value), vars)
	}
	return out
}

// set takes over a value of a repository.
func (y *yumRepository) set(key, value string, vars map[string]string) {
	switch key {
	case "enabled":
		y.off = !slices.Contains([]string{"1", "yes", "true", "on"}, strings.ToLower(value))
	case "sslclientcert":
		y.certified = value != ""
	case "baseurl", "mirrorlist", "metalink":
		for _, place := range strings.Fields(strings.ReplaceAll(value, ",", " ")) {
			place, ok := filled(place, vars)
			switch {
			case !ok:
			case key == "baseurl" && usable(place):
				y.urls = append(y.urls, place)
			case key != "baseurl" && listable(place):
				y.lists = append(y.lists, place)
			}
		}
	}
}

// yumVariable is a variable in a URL.
var yumVariable = regexp.MustCompile(`\$(\{[A-Za-z0-9_]+\}|[A-Za-z0-9_]+)`)

// filled returns a text with its variables replaced; false if one is unknown.
func filled(text string, vars map[string]string) (string, bool) {
	ok := true
	text = yumVariable.ReplaceAllStringFunc(text, func(name string) string {
		value, there := vars[strings.Trim(name, "${}")]
		ok = ok && there
		return value
	})
	return text, ok
}

// yumVars are the variables in the files of dir: what dnf and zypper set themselves, and dnf's own files of variables.
func yumVars(h *host.Host, dir, arch string) map[string]string {
	vars := map[string]string{"basearch": arch, "arch": arch}
	text, _ := h.ReadAttribute("/etc/os-release")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_ID="); ok {
			vars["releasever"] = strings.Trim(value, `"'`)
		}
	}
	if dir == zyppDir {
		return vars
	}
	vars["releasever"], _, _ = strings.Cut(vars["releasever"], ".")
	for _, dir := range []string{"/etc/yum/vars", "/etc/dnf/vars"} {
		for _, file := range h.Glob(dir, "*") {
			if value, err := h.ReadAttribute(file); err == nil && suiteForm.MatchString(value) {
				vars[path.Base(file)] = value
			}
		}
	}
	return vars
}

// listable reports whether a URL can be that of a list of mirrors.
func listable(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && u.User == nil && u.Fragment == ""
}

// listed returns the mirrors that a list names, at most mirrorsLimit.
func (f *fetch) listed(ctx context.Context, list string) ([]string, *accel.Problem) {
	text, err := f.http.Get(ctx, list, mirrorListLimit)
	if err != nil {
		p := transfer.Explain(err)
		return nil, accel.Problemf(p.Reason, "the list of mirrors: %s", p.Message)
	}
	mirrors := mirrorsIn(text)
	if len(mirrors) == 0 {
		return nil, accel.Problemf(accel.ArtifactInvalid, "the list of mirrors names none that can be used")
	}
	return mirrors, nil
}

// mirrorsIn reads a list of mirrors: a URL in each line, or a metalink (RFC 5854 and the version before it).
func mirrorsIn(text []byte) (out []string) {
	add := func(place string) {
		if len(out) < mirrorsLimit && usable(place) && !slices.Contains(out, place) {
			out = append(out, place)
		}
	}
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("<")) {
		for line := range strings.Lines(string(text)) {
			add(strings.TrimSpace(line))
		}
		return out
	}
	d := xml.NewDecoder(bytes.NewReader(text))
	inURL := false
	for {
		token, err := d.Token()
		if err != nil {
			return out
		}
		switch t := token.(type) {
		case xml.StartElement:
			inURL = t.Name.Local == "url"
		case xml.EndElement:
			inURL = false
		case xml.CharData:
			if place, ok := strings.CutSuffix(strings.TrimSpace(string(t)), "/repodata/repomd.xml"); inURL && ok {
				add(place)
			}
		}
	}
}
