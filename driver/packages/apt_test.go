package packages

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
)

// TestApt reads apt's two styles of sources as sources.list(5) describes them.
func TestApt(t *testing.T) {
	list := `# deb http://comment.example/debian bookworm main
deb http://one.example/debian bookworm main contrib
deb [ arch=amd64 signed-by=/usr/share/keyrings/x.gpg ] https://two.example/debian/ bookworm main # why
deb-src http://source.example/debian bookworm main
deb http://other.example/debian bookworm-updates main
deb cdrom:[Debian]/ bookworm main
deb mirror+file:/etc/mirrors bookworm main
deb http://user:secret@three.example/debian bookworm main
deb [ never ends http://four.example/debian bookworm main
debian http://five.example bookworm main
deb http://somebody.example/linux/debian bookworm stable
`
	if got := listed(list, "bookworm"); !slices.Equal(got, []string{
		"http://one.example/debian", "https://two.example/debian/",
	}) {
		t.Error(got)
	}
	sources := `Types: deb deb-src
URIs: http://one.example/debian http://two.example/debian
Suites: bookworm
  bookworm-updates
Components: main

Enabled: no
Types: deb
URIs: http://three.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: http://four.example/debian
Suites: bookworm

Types: deb
URIs: http://five.example/debian-security
Suites: bookworm-security
Components: main non-free

Types: deb
URIs: http://somebody.example/linux/debian
Suites: bookworm
Components: stable
`
	for suite, want := range map[string][]string{
		"bookworm":          {"http://one.example/debian", "http://two.example/debian"},
		"bookworm-updates":  {"http://one.example/debian", "http://two.example/debian"},
		"bookworm-security": {"http://five.example/debian-security"},
		"trixie":            nil,
	} {
		if got := described(sources, suite); !slices.Equal(got, want) {
			t.Errorf("%s: %q", suite, got)
		}
	}
	if got := described("no field\n"+sources, "bookworm"); got != nil {
		t.Errorf("a file that is none: %q", got)
	}
}

// TestHostsOwnMirror: a repository that stands for the host's own is read where apt would read it.
func TestHostsOwnMirror(t *testing.T) {
	b := newBench(t)
	a := b.archive()
	a.add("libx1", "1.0-1")
	a.publish()
	r := b.request("libx1")
	there := r.Repository.URL
	r.Repository.URL = "http://debian.invalid/debian"
	if _, problem := b.fetch(r); problem == nil || problem.Reason != accel.RegistryUnreachable ||
		!strings.Contains(problem.Message, "set `mirrors`") {
		t.Errorf("without apt: %v", problem)
	}
	dir := filepath.Join(b.root, "etc/apt/sources.list.d")
	b.must(os.MkdirAll(dir, 0o755))
	b.must(os.WriteFile(filepath.Join(dir, "debian.sources"),
		[]byte("Types: deb\nURIs: "+there+"\nSuites: "+r.Repository.Suite+"\nComponents: main\n"), 0o600))
	got, problem := b.fetch(r)
	if problem != nil || len(got.Packages) != 1 || !strings.HasPrefix(got.Packages[0].From, there) {
		t.Errorf("%+v %v", got, problem)
	}
}

// FuzzApt: whatever apt's files contain, only URLs that this package reads come out of them.
func FuzzApt(f *testing.F) {
	f.Add("deb [a=b] http://x.example/debian bookworm main\n", "bookworm")
	f.Add("Types: deb\nURIs: http://x.example/\nSuites: bookworm\n", "bookworm")
	f.Fuzz(func(t *testing.T, text, suite string) {
		for _, u := range append(listed(text, suite), described(text, suite)...) {
			if !usable(u) {
				t.Errorf("%q", u)
			}
		}
	})
}
