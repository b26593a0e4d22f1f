// Package site builds the pages of the repository as a site with Hugo, and tests it. It has no code of its own: layouts
// are below layouts, and hugo.yaml says which files become pages.
package site

import (
	"encoding/json"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

const (
	root   = "../.."
	source = "https://github.com/acceld/acceld/blob/HEAD/"
)

// page is what the test looks at in a page of the site.
type page struct {
	size     int
	language string
	titles   []string
	headings int
	ids      map[string]bool
	links    []string
	// navigation are the links among them that lead to the pages of the site, in order.
	navigation []string
	resources  []string
	// inline are elements and attributes that the page's policy forbids.
	inline []string
	// noText are pictures without a text for those who cannot see them.
	noText []string
}

// build builds the site into a folder of its own.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "hugo", "build", "--destination", dir, "--panicOnWarning",
		"--noBuildLock", "--cacheDir", t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// TestSite builds the site and follows everything in it.
func TestSite(t *testing.T) {
	dir := build(t)
	pages := read(t, dir)
	t.Run("pages", func(t *testing.T) { testPages(t, dir, pages) })
	t.Run("navigation", func(t *testing.T) { testNavigation(t, pages) })
	t.Run("search", func(t *testing.T) { testSearch(t, dir, pages) })
}

// testPages holds each page to what a page needs: a language, a title and one first heading; nothing from elsewhere,
// nothing that its own policy forbids; links that lead somewhere.
func testPages(t *testing.T, dir string, pages map[string]page) {
	if len(pages) < 45 {
		t.Errorf("the site has %d pages", len(pages))
	}
	for name, p := range pages {
		if p.language != "en" || len(p.titles) != 1 || p.titles[0] == "" || p.headings != 1 {
			t.Errorf("%s: language %q, titles %q, %d first headings", name, p.language, p.titles, p.headings)
		}
		for _, what := range append(p.inline, p.noText...) {
			t.Errorf("%s: %s", name, what)
		}
		weight := p.size
		for _, r := range p.resources {
			if strings.HasPrefix(r, "data:") {
				continue
			}
			info, err := os.Stat(filepath.Join(dir, path.Join(path.Dir(name), r)))
			if err != nil {
				t.Errorf("%s loads %q: %v", name, r, err)
				continue
			}
			weight += int(info.Size())
		}
		t.Logf("%4d kB %s", weight/1000, name)
		for _, l := range p.links {
			if err := follow(dir, pages, name, l); err != "" {
				t.Errorf("%s links %q: %s", name, l, err)
			}
		}
	}
}

// follow says what is wrong with a link of a page; empty for nothing. Links to other servers are not followed.
func follow(dir string, pages map[string]page, name, link string) string {
	if file, ok := strings.CutPrefix(link, source); ok {
		file, _, _ = strings.Cut(file, "#")
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			return err.Error()
		}
		return ""
	}
	u, err := url.Parse(link)
	switch {
	case err != nil:
		return err.Error()
	case u.Scheme == "https" || u.Scheme == "http" || u.Scheme == "mailto":
		return ""
	case u.IsAbs() || u.Host != "" || strings.HasPrefix(u.Path, "/"):
		return "it is not relative"
	}
	to := name
	if u.Path != "" {
		to = path.Join(path.Dir(name), u.Path)
	}
	target, isPage := pages[to]
	if !isPage {
		if info, err := os.Stat(filepath.Join(dir, to)); err != nil || info.IsDir() {
			return "it leads to no file"
		}
	}
	if u.Fragment != "" && !target.ids[u.Fragment] {
		return "the page has no such place"
	}
	return ""
}

// testNavigation holds the site to the folder: each file of docs is a page that the navigation leads to, and quick
// starts are its first ones.
func testNavigation(t *testing.T, pages map[string]page) {
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	navigation := pages["index.html"].navigation
	for _, f := range files {
		name := "docs/" + strings.TrimSuffix(filepath.Base(f), ".md") + ".html"
		if filepath.Base(f) == "README.md" {
			continue
		}
		if _, ok := pages[name]; !ok || !slices.Contains(navigation, "./"+name) {
			t.Errorf("%s is not in the navigation: give it a row in docs/README.md", name)
		}
	}
	if len(navigation) == 0 || !strings.HasPrefix(navigation[0], "./docs/quickstart-") {
		t.Errorf("the first page of the navigation is no quick start: %q", navigation)
	}
}

// testSearch looks for words in the index of the search, and follows its links.
func testSearch(t *testing.T, dir string, pages map[string]page) {
	text, err := os.ReadFile(filepath.Join(dir, "search-index.js"))
	if err != nil {
		t.Fatal(err)
	}
	data, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "window.acceldPages = ")
	var sections []struct{ Page, Heading, To, Text string }
	if err := json.Unmarshal([]byte(strings.TrimSuffix(data, ";")), &sections); err != nil || !ok {
		t.Fatalf("the index is not what the search reads: %v: %.200s", err, text)
	}
	t.Logf("%d kB, %d sections", len(text)/1000, len(sections))
	for word, where := range map[string]string{
		"BuildFailed":                     "docs/reasons.html",
		"accelerator_temperature_celsius": "docs/metrics.html",
		"takeover: true":                  "docs/quickstart-nvidia.html",
	} {
		found := false
		for _, s := range sections {
			found = found || strings.HasPrefix(s.To, where) && strings.Contains(s.Text, word)
		}
		if !found {
			t.Errorf("%q is not in the index as a word of %s", word, where)
		}
	}
	markup := regexp.MustCompile(`</?(td|th|tr|p|span|a|li)\b`)
	for _, s := range sections {
		if wrong := follow(dir, pages, "index.html", s.To); wrong != "" || s.Heading == "" || s.Page == "" {
			t.Errorf("%q leads to %q: %s", s.Heading, s.To, wrong)
		}
		if markup.MatchString(s.Text) || markup.MatchString(s.Heading) {
			t.Errorf("%q has markup in its text", s.To)
		}
	}
}

// read reads all pages below a folder, by their path.
func read(t *testing.T, dir string) map[string]page {
	t.Helper()
	pages := map[string]page{}
	outside := regexp.MustCompile(`url\(["']?(https?:)?//|@import`)
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		switch path.Ext(name) {
		case ".html":
			pages[name] = parse(t, string(text))
		case ".css", ".svg":
			if outside.Match(text) {
				t.Errorf("%s loads something", name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

func parse(t *testing.T, text string) page {
	t.Helper()
	document, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	p := page{size: len(text), ids: map[string]bool{}}
	for n := range document.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		p.element(n)
	}
	return p
}

func (p *page) element(n *html.Node) {
	attributes := map[string]string{}
	for _, a := range n.Attr {
		attributes[a.Key] = a.Val
		if a.Key == "style" || strings.HasPrefix(a.Key, "on") {
			p.inline = append(p.inline, n.Data+" has "+a.Key)
		}
	}
	if id := attributes["id"]; id != "" {
		if p.ids[id] {
			p.inline = append(p.inline, "there are two "+id)
		}
		p.ids[id] = true
	}
	switch n.Data {
	case "html":
		p.language = attributes["lang"]
	case "title":
		p.titles = append(p.titles, n.FirstChild.Data)
	case "h1":
		p.headings++
	case "a":
		p.links = append(p.links, attributes["href"])
		for up := n.Parent; up != nil; up = up.Parent {
			if up.Data == "nav" && slices.Contains(up.Attr, html.Attribute{Key: "id", Val: "pages"}) {
				p.navigation = append(p.navigation, attributes["href"])
			}
		}
	case "form":
		p.links = append(p.links, attributes["action"])
	case "img":
		if attributes["alt"] == "" {
			p.noText = append(p.noText, attributes["src"]+" has no text")
		}
	case "style", "iframe", "object", "embed":
		p.inline = append(p.inline, "it has "+n.Data)
	case "script":
		if attributes["src"] == "" {
			p.inline = append(p.inline, "it has a script inside")
		}
	}
	for _, key := range []string{"src", "srcset", "data", "poster"} {
		if attributes[key] != "" {
			p.resources = append(p.resources, attributes[key])
		}
	}
	if n.Data == "link" {
		p.resources = append(p.resources, attributes["href"])
	}
}
