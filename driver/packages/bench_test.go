package packages

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/test/deb"
)

// bench is a host with keys, a cache and an empty directory, and a server with a repository.
type bench struct {
	*testing.T
	h    *host.Host
	root string
	key  *openpgp.Entity
	o    Options

	mu     sync.Mutex
	files  map[string][]byte // of the server, by path
	asked  []string
	serve  func(http.ResponseWriter, *http.Request) bool // instead, if it says true
	server *httptest.Server
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can own the files that the host trusts")
	}
	b := &bench{T: t, root: t.TempDir(), files: map[string][]byte{}, o: Options{Backoff: time.Millisecond}}
	for _, dir := range []string{"out", "etc", "media"} {
		b.must(os.Mkdir(filepath.Join(b.root, dir), 0o755))
	}
	var err error
	b.h, err = host.New(b.root)
	b.must(err)
	b.key = b.newKey("archive", 0)
	b.write("etc/keys.gpg", public(t, b.key))
	b.server = httptest.NewServer(http.HandlerFunc(b.answer))
	t.Cleanup(b.server.Close)
	return b
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) write(name string, text []byte) {
	b.Helper()
	b.must(os.WriteFile(filepath.Join(b.root, name), text, 0o644))
}

// answer serves the files with ranges.
func (b *bench) answer(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	b.asked = append(b.asked, r.URL.Path)
	text, ok := b.files[strings.TrimPrefix(r.URL.Path, "/debian/")]
	serve := b.serve
	b.mu.Unlock()
	switch {
	case serve != nil && serve(w, r):
	case !ok:
		http.NotFound(w, r)
	default:
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
	}
}

// newKey makes a key that expires after some time; 0 is never.
func (b *bench) newKey(name string, after time.Duration) *openpgp.Entity {
	b.Helper()
	e, err := deb.NewKey(name, after)
	b.must(err)
	return e
}

func public(t *testing.T, e *openpgp.Entity) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := e.Serialize(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// dated is a time for a signature; keys of the tests are two days old.
func dated(when time.Time) *packet.Config {
	return &packet.Config{Time: func() time.Time { return when }}
}

func detached(t *testing.T, e *openpgp.Entity, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	err := openpgp.DetachSign(&out, []*openpgp.Entity{e}, bytes.NewReader(text), dated(time.Now().Add(-time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func cleared(t *testing.T, e *openpgp.Entity, text []byte) []byte {
	t.Helper()
	out, err := deb.Sign(e, text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// there is the text of each file below /out, and of links.
func (b *bench) there() map[string]string {
	b.Helper()
	out := map[string]string{}
	top := filepath.Join(b.root, "out")
	b.must(filepath.WalkDir(top, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(top, name)
		if e.Type()&fs.ModeSymlink != 0 {
			text, err := os.Readlink(name)
			out[rel] = "-> " + text
			return err
		}
		text, err := os.ReadFile(name)
		out[rel] = string(text)
		return err
	}))
	return out
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// archive is a deb repository in the making.
type archive struct {
	b      *bench
	index  string
	date   time.Time
	until  time.Time
	suite  string
	byHash bool
	key    *openpgp.Entity
}

func (b *bench) archive() *archive {
	return &archive{b: b, date: time.Now().Add(-time.Hour), suite: "stable", key: b.key}
}

// add adds a package with one file that says what it is.
func (a *archive) add(name, version string) {
	a.addFiles(name, version, map[string]string{
		"usr/lib/" + name + ".so." + version:      name + " " + version,
		"usr/lib/" + name + ".so":                 "-> " + name + ".so." + version,
		"usr/share/doc/" + name + "/copyright":    "a licence",
		"usr/share/doc/" + name + "/changelog.gz": "changes",
	})
}

func (a *archive) addFiles(name, version string, files map[string]string) {
	text := deb.Package(name, version, "amd64", files)
	file := "pool/" + name + "_" + version + "_amd64.deb"
	a.b.files[file] = text
	a.index += fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: amd64\nFilename: %s\nSize: %d\nSHA256: %s\n\n",
		name, version, file, len(text), digest(text))
}

// publish signs the repository as it is.
func (a *archive) publish() {
	packed := deb.Gzip([]byte(a.index))
	release := "Origin: test\nSuite: " + a.suite + "\nCodename: " + a.suite + "x\nArchitectures: amd64\nDate: " +
		a.date.UTC().Format(time.RFC1123) + "\n"
	if !a.until.IsZero() {
		release += "Valid-Until: " + a.until.UTC().Format(time.RFC1123) + "\n"
	}
	name := "main/binary-amd64/Packages.gz"
	if a.byHash {
		release += "Acquire-By-Hash: yes\n"
		a.b.files["dists/stable/main/binary-amd64/by-hash/SHA256/"+digest(packed)] = packed
	} else {
		a.b.files["dists/stable/"+name] = packed
	}
	release += fmt.Sprintf("SHA256:\n %s %d %s\n", digest(packed), len(packed), name)
	a.b.files["dists/stable/InRelease"] = cleared(a.b.T, a.key, []byte(release))
}

// request asks for packages, "name" or "name=version".
func (b *bench) request(packages ...string) Request {
	r := Request{
		Repository: Repository{
			Format: Deb, URL: b.server.URL + "/debian/", Suite: "stable", Components: []string{"main"},
			Architecture: "amd64", Keys: []string{"/etc/keys.gpg"},
		},
		Dir: "/out", Cache: "/cache",
	}
	for _, p := range packages {
		name, version, _ := strings.Cut(p, "=")
		r.Packages = append(r.Packages, Wanted{Name: name, Version: version})
	}
	return r
}

func (b *bench) fetch(r Request) (Fetched, *accel.Problem) {
	b.Helper()
	return New(b.h, b.o).Fetch(b.Context(), r)
}

// refused fetches and expects a reason, words of the message, and that nothing was unpacked.
func (b *bench) refused(what string, r Request, want accel.Reason, words ...string) {
	b.Helper()
	_, problem := b.fetch(r)
	if problem == nil || problem.Reason != want {
		b.Errorf("%s: %v, want %s", what, problem, want)
		return
	}
	for _, w := range words {
		if !strings.Contains(problem.Message, w) {
			b.Errorf("%s: %q lacks %q", what, problem.Message, w)
		}
	}
	if have := b.there(); len(have) > 0 {
		b.Errorf("%s: it left %v", what, have)
	}
}
