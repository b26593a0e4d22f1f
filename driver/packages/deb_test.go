package packages

import (
	"bytes"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/unpack"
	"github.com/acceld/acceld/test/deb"
)

// TestDeb: the packages of a signed repository are unpacked together, with their licences, and what was downloaded is
// not fetched again.
func TestDeb(t *testing.T) {
	for name, hash := range map[string]bool{"by name": false, "by hash": true} {
		b := newBench(t)
		a := b.archive()
		a.byHash = hash
		a.add("libx1", "1.0-1")
		a.add("libx1", "1.2-1")
		a.add("tool", "1.2-3")
		a.until = time.Now().Add(time.Hour)
		a.publish()
		got, problem := b.fetch(b.request("libx1", "tool"))
		if problem != nil {
			t.Fatalf("%s: %v", name, problem)
		}
		want := map[string]string{
			"usr/lib/libx1.so.1.2-1": "libx1 1.2-1", "usr/lib/libx1.so": "-> libx1.so.1.2-1",
			"usr/share/doc/libx1/copyright": "a licence", "usr/share/doc/libx1/changelog.gz": "changes",
			"usr/lib/tool.so.1.2-3": "tool 1.2-3", "usr/lib/tool.so": "-> tool.so.1.2-3",
			"usr/share/doc/tool/copyright": "a licence", "usr/share/doc/tool/changelog.gz": "changes",
		}
		if diff := cmp.Diff(want, b.there()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		text := b.files["pool/libx1_1.2-1_amd64.deb"]
		p := got.Packages[0]
		if p.Name != "libx1" || p.Version != "1.2-1" || p.SHA256 != digest(text) || p.Bytes != int64(len(text)) ||
			len(p.Key) != 40 || p.From != b.server.URL+"/debian/pool/libx1_1.2-1_amd64.deb" {
			t.Errorf("%s: %+v", name, p)
		}
		if len(got.Packages) != 2 || len(got.Tree.Files) != 8 || time.Since(got.Date) > 2*time.Hour ||
			got.Received == 0 {
			t.Errorf("%s: %+v", name, got)
		}
		b.must(os.RemoveAll(filepath.Join(b.root, "out")))
		b.must(os.Mkdir(filepath.Join(b.root, "out"), 0o755))
		b.asked = nil
		if again, problem := b.fetch(b.request("libx1", "tool")); problem != nil || again.Received != 0 {
			t.Errorf("%s: %v, %d bytes were fetched again", name, problem, again.Received)
		}
		if len(b.asked) != 1 {
			t.Errorf("%s: asked again for %v", name, b.asked)
		}
	}
}

// TestDebForms: a repository may have a separate signature, and no suites.
func TestDebForms(t *testing.T) {
	b := newBench(t)
	a := b.archive()
	a.add("libx1", "1.0-1")
	a.publish()
	text, _, err := keyring{}.clear(b.files["dists/stable/InRelease"])
	if err == nil {
		t.Error("an empty key ring trusts somebody")
	}
	text = append(text, '\n')
	delete(b.files, "dists/stable/InRelease")
	b.files["dists/stable/Release"], b.files["dists/stable/Release.gpg"] = text, detached(t, b.key, text)
	if _, problem := b.fetch(b.request("libx1")); problem != nil {
		t.Error(problem)
	}
	packed := b.files["dists/stable/main/binary-amd64/Packages.gz"]
	b.files["Packages.gz"] = packed
	flat := bytes.ReplaceAll(text, []byte("main/binary-amd64/"), nil)
	b.files["InRelease"] = cleared(t, b.key, flat)
	r := b.request("libx1")
	r.Repository.Suite, r.Repository.Components = "./", nil
	b.must(os.RemoveAll(filepath.Join(b.root, "out")))
	b.must(os.Mkdir(filepath.Join(b.root, "out"), 0o755))
	if _, problem := b.fetch(r); problem != nil {
		t.Error(problem)
	}
	delete(b.files, "dists/stable/Release.gpg")
	b.must(os.RemoveAll(filepath.Join(b.root, "out")))
	b.must(os.Mkdir(filepath.Join(b.root, "out"), 0o755))
	b.refused("no signature", b.request("libx1"), accel.SignatureInvalid, "is not signed")
}

// TestVersions: a version is pinned, or is the newest that all packages of the branch have; what is there is named.
func TestVersions(t *testing.T) {
	b := newBench(t)
	a := b.archive()
	for _, v := range []string{"535.54.03-1", "535.261.03-1", "535.309.01-1~deb12u1", "550.1-1"} {
		a.add("libx1", v)
	}
	for _, v := range []string{"535.54.03-1", "535.261.03-1", "535.261.03-2", "560.1-1"} {
		a.add("tool", v)
	}
	a.publish()
	known := func(want *[]Package) func([]Package) bool {
		return func(p []Package) bool { *want = p; return true }
	}
	for asked, want := range map[string]string{
		"libx1":                       "550.1-1",
		"libx1=535":                   "535.309.01-1~deb12u1",
		"libx1=535.261.03":            "535.261.03-1",
		"libx1=535.261.03-1":          "535.261.03-1",
		"libx1=535 tool=535":          "535.261.03-1 535.261.03-2",
		"libx1=535.54.03-1 tool=560":  "535.54.03-1 560.1-1",
		"libx1=53":                    "",
		"libx1=535.26":                "",
		"libx1=550 tool=550":          "",
		"libx1=535.309.01 tool=535.3": "",
	} {
		var got []Package
		b.o.Known = known(&got)
		_, problem := b.fetch(b.request(strings.Fields(asked)...))
		var versions []string
		for _, p := range got {
			versions = append(versions, p.Version)
		}
		if strings.Join(versions, " ") != want || (problem == nil) != (want != "") {
			t.Errorf("%s: %v, %v", asked, versions, problem)
		}
		if problem != nil && problem.Reason != accel.ArtifactNotFound {
			t.Errorf("%s: %v", asked, problem)
		}
	}
	for asked, want := range map[string]string{
		"libx1":      "550.1 535.309.01 535.261.03 535.54.03",
		"tool":       "560.1 535.261.03 535.54.03",
		"libx1 tool": "535.261.03 535.54.03",
		"tool libx1": "535.261.03 535.54.03",
		"absent":     "",
		"tool none":  "",
	} {
		got, problem := New(b.h, b.o).Versions(t.Context(), b.request(strings.Fields(asked)...))
		if problem != nil || strings.Join(got, " ") != want {
			t.Errorf("versions of %s: %v, %v", asked, got, problem)
		}
	}
	if slices.ContainsFunc(b.asked, func(s string) bool { return strings.Contains(s, "/pool/") }) {
		t.Error("what is known was fetched")
	}
	b.o.Known = nil
	b.refused("no version", b.request("libx1=580"), accel.ArtifactNotFound, `"libx1"`, "550.1-1", "535.54.03-1")
	b.refused("no package", b.request("liby1"), accel.ArtifactNotFound, `"liby1"`)
	a.index = ""
	a.add("libx1", "1.1-1")
	a.add("libx1", "1.2-1")
	a.add("tool", "1.3-1")
	a.publish()
	b.refused("no common version", b.request("libx1=1", "tool=1"), accel.ArtifactNotFound, "1.2-1, 1.1-1", "1.3-1")
}

// TestDebAttacks: nothing is unpacked of a repository that somebody tampered with.
func TestDebAttacks(t *testing.T) {
	index, pool := "dists/stable/main/binary-amd64/Packages.gz", "pool/libx1_1.0-1_amd64.deb"
	evil := deb.Package("libx1", "1.0-1", "amd64", map[string]string{"usr/lib/evil": "evil"})
	for name, c := range map[string]struct {
		change func(*archive)
		want   accel.Reason
		words  string
	}{
		"another key": {func(a *archive) {
			a.key = a.b.newKey("archive", 0)
			a.publish()
		}, accel.SignatureInvalid, "wanted keys"},
		"an expired key": {func(a *archive) {
			a.key = a.b.newKey("archive", 47*time.Hour+30*time.Minute)
			a.b.write("etc/keys.gpg", public(a.b.T, a.key))
			a.publish()
		}, accel.SignatureInvalid, "expired"},
		"changed text": {func(a *archive) {
			a.b.files["dists/stable/InRelease"] = bytes.Replace(a.b.files["dists/stable/InRelease"], []byte("Origin: test"),
				[]byte("Origin: Test"), 1)
		}, accel.SignatureInvalid, "not valid"},
		"text before": {func(a *archive) {
			a.b.files["dists/stable/InRelease"] = append([]byte("SHA256:\n x\n"), a.b.files["dists/stable/InRelease"]...)
		}, accel.SignatureInvalid, "no signed message"},
		"text after": {func(a *archive) {
			a.b.files["dists/stable/InRelease"] = append(a.b.files["dists/stable/InRelease"], "SHA256:\n x\n"...)
		}, accel.SignatureInvalid, "no signed message"},
		"no message": {func(a *archive) {
			a.b.files["dists/stable/InRelease"] = []byte("<html>Please log in</html>")
		}, accel.SignatureInvalid, "no signed message"},
		"expired": {func(a *archive) {
			a.until = time.Now().Add(-time.Minute)
			a.publish()
		}, accel.SignatureInvalid, "was valid until"},
		"of the future": {func(a *archive) {
			a.date = time.Now().Add(48 * time.Hour)
			a.publish()
		}, accel.SignatureInvalid, "clock"},
		"another suite": {func(a *archive) {
			a.suite = "unstable"
			a.publish()
		}, accel.SignatureInvalid, "unstable"},
		"another index": {func(a *archive) {
			a.b.files[index] = deb.Gzip([]byte(a.index + "\n"))
		}, accel.DigestMismatch, "Packages.gz"},
		"an index of the same size": {func(a *archive) {
			text := bytes.Clone(a.b.files[index])
			text[len(text)/2] ^= 1
			a.b.files[index] = text
		}, accel.DigestMismatch, "SHA-256"},
		"an index without end": {
			func(a *archive) { a.b.serve = endless(index) }, accel.DigestMismatch,
			"more than",
		},
		"another package": {func(a *archive) { a.b.files[pool] = evil }, accel.DigestMismatch, "libx1"},
		"a package without end": {
			func(a *archive) { a.b.serve = endless(pool) }, accel.DigestMismatch,
			"more than",
		},
		"an InRelease without end": {
			func(a *archive) { a.b.serve = endless("InRelease") },
			accel.ArtifactInvalid, "longer",
		},
		"a shorter package": {
			func(a *archive) { a.b.files[pool] = a.b.files[pool][:100] },
			accel.DigestMismatch, "100 bytes",
		},
		"a missing package": {func(a *archive) { delete(a.b.files, pool) }, accel.ArtifactNotFound, "404"},
		"a denied package": {func(a *archive) {
			a.b.serve = func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(http.StatusForbidden)
				return true
			}
		}, accel.RegistryDenied, "403"},
		"no repository": {func(a *archive) { clear(a.b.files) }, accel.ArtifactNotFound, "404"},
		"no server":     {func(a *archive) { a.b.server.Close() }, accel.RegistryUnreachable, "InRelease"},
		"traversal in the index": {func(a *archive) {
			a.index = strings.ReplaceAll(a.index, "pool/", "../pool/")
			a.publish()
		}, accel.ArtifactInvalid, "libx1"},
		"traversal in the package": {func(a *archive) {
			a.index = ""
			a.addFiles("libx1", "1.0-1", map[string]string{"../../etc/evil": "evil"})
			a.publish()
		}, accel.ArtifactInvalid, "libx1"},
		"a bomb": {func(a *archive) {
			a.index = ""
			a.addFiles("libx1", "1.0-1", map[string]string{"usr/x": strings.Repeat("\x00", 2<<20)})
			a.publish()
		}, accel.ArtifactInvalid, "more than"},
		"an index that is none": {func(a *archive) {
			a.index = "no fields\n"
			a.publish()
		}, accel.ArtifactInvalid, "Packages.gz"},
	} {
		b := newBench(t)
		a := b.archive()
		a.add("libx1", "1.0-1")
		a.publish()
		c.change(a)
		r := b.request("libx1")
		r.Bounds = unpack.Bounds{Bytes: 1 << 20, Files: 100}
		b.refused(name, r, c.want, c.words)
		if _, err := os.Stat(filepath.Join(b.root, "etc/evil")); err == nil {
			t.Errorf("%s: it left its directory", name)
		}
	}
}

// endless serves a file that never ends, from its proper content on.
func endless(name string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, name) {
			return false
		}
		for n := 0; n < 1<<28; {
			m, err := w.Write(bytes.Repeat([]byte("endless "), 8<<10))
			if n += m; err != nil {
				break
			}
		}
		return true
	}
}

// TestReplay: an older release than the last one that was seen is refused, the same one is not.
func TestReplay(t *testing.T) {
	b := newBench(t)
	a := b.archive()
	a.add("libx1", "1.0-1")
	a.publish()
	b.o.Known = func([]Package) bool { return true }
	got, problem := b.fetch(b.request("libx1"))
	if problem != nil {
		t.Fatal(problem)
	}
	r := b.request("libx1")
	r.Seen = got.Date
	if _, problem := b.fetch(r); problem != nil {
		t.Error(problem)
	}
	r.Seen = got.Date.Add(time.Second)
	b.refused("replay", r, accel.SignatureInvalid, "serves an old one")
}

// TestInterrupted: a download that breaks off goes on where it was, in the same process and in the next.
func TestInterrupted(t *testing.T) {
	b := newBench(t)
	a := b.archive()
	noise := make([]byte, 300<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	a.addFiles("libx1", "1.0-1", map[string]string{"usr/lib/x": string(noise)})
	a.publish()
	text := b.files["pool/libx1_1.0-1_amd64.deb"]
	part := len(text) / 3
	var ranges []string
	broken := 10
	b.serve = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, ".deb") {
			return false
		}
		b.mu.Lock()
		ranges = append(ranges, r.Header.Get("Range"))
		broken--
		whole := broken < 0
		b.mu.Unlock()
		if whole {
			return false
		}
		if r.Header.Get("Range") == "" {
			w.Header().Set("Content-Length", strconv.Itoa(len(text)))
			_, _ = w.Write(text[:part])
		}
		panic(http.ErrAbortHandler)
	}
	b.refused("it breaks off", b.request("libx1"), accel.RegistryUnreachable, "libx1")
	b.mu.Lock()
	broken = 1
	b.mu.Unlock()
	got, problem := b.fetch(b.request("libx1"))
	if problem != nil || len(b.there()) != 1 {
		t.Fatal(problem)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if got.Received == 0 || !strings.HasPrefix(ranges[len(ranges)-1], "bytes=") {
		t.Errorf("%d bytes, ranges %q", got.Received, ranges)
	}
}

// TestForeignRest: if what an earlier process left is of another file, the download starts over.
func TestForeignRest(t *testing.T) {
	b := newBench(t)
	a := b.archive()
	a.add("libx1", "1.0-1")
	a.publish()
	b.must(os.Mkdir(filepath.Join(b.root, "cache"), 0o700))
	name := "cache/sha256-" + digest(b.files["pool/libx1_1.0-1_amd64.deb"])
	b.write(name+".part", []byte("of another file"))
	b.write(name, []byte("damaged"))
	if _, problem := b.fetch(b.request("libx1")); problem != nil {
		t.Error(problem)
	}
	entries, err := os.ReadDir(filepath.Join(b.root, "cache"))
	if err != nil || len(entries) != 2 {
		t.Errorf("the cache has %v: %v", entries, err)
	}
}

// TestRedirect: a server may send to another place of its own, but not to another host without TLS, and not for ever.
func TestRedirect(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "what another host has")
	}))
	defer other.Close()
	for to, want := range map[string]string{"/debian/moved/": "", other.URL + "/": "without TLS", "/debian/": "times"} {
		b := newBench(t)
		a := b.archive()
		a.add("libx1", "1.0-1")
		a.publish()
		for name, text := range maps.Clone(b.files) {
			b.files["moved/"+name] = text
		}
		b.serve = func(w http.ResponseWriter, r *http.Request) bool {
			rest := strings.TrimPrefix(r.URL.Path, "/debian/")
			if strings.HasPrefix(rest, "moved/") {
				return false
			}
			http.Redirect(w, r, to+rest, http.StatusFound)
			return true
		}
		if want != "" {
			b.refused(to, b.request("libx1"), accel.RegistryUnreachable, want)
		} else if _, problem := b.fetch(b.request("libx1")); problem != nil {
			t.Error(problem)
		}
	}
}

// TestMirrors: the first place that has the packages serves; one that is damaged is not trusted, and outranks one that
// has nothing.
func TestMirrors(t *testing.T) {
	b := newBench(t)
	a := b.archive()
	a.add("libx1", "1.0-1")
	a.publish()
	damaged := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "damaged")
	}))
	defer damaged.Close()
	r := b.request("libx1")
	r.Repository.Mirrors = []string{b.server.URL + "/nothing", damaged.URL}
	if _, problem := b.fetch(r); problem != nil {
		t.Fatal(problem)
	}
	r.Repository.URL = b.server.URL + "/nothing"
	b.must(os.RemoveAll(filepath.Join(b.root, "out")))
	b.must(os.Mkdir(filepath.Join(b.root, "out"), 0o755))
	b.refused("no place", r, accel.SignatureInvalid, "404", "no signed message")
}

// TestKeysOfOthers: keys that somebody else could have written are not used.
func TestKeysOfOthers(t *testing.T) {
	b := newBench(t)
	a := b.archive()
	a.add("libx1", "1.0-1")
	a.publish()
	b.must(os.Chown(filepath.Join(b.root, "etc/keys.gpg"), 1000, 1000))
	b.refused("of another user", b.request("libx1"), accel.ConfigInvalid, "belongs to user 1000")
	b.write("etc/none.gpg", []byte("no keys"))
	r := b.request("libx1")
	r.Repository.Keys = []string{"/etc/none.gpg"}
	b.refused("no keys", r, accel.ConfigInvalid, "none.gpg")
	r.Repository.Keys = nil
	b.refused("no files", r, accel.ConfigInvalid, "keys")
}

// TestDirectoryOfDebs: a directory that root alone can write to is trusted unless the host demands signatures.
func TestDirectoryOfDebs(t *testing.T) {
	b := newBench(t)
	for _, v := range []string{"1.0-1", "1.1-1"} {
		b.write("media/libx1_"+v+".deb", deb.Package("libx1", v, "amd64", map[string]string{"usr/lib/x": v}))
	}
	b.write("media/other.deb", deb.Package("libx1", "9-1", "arm64", nil))
	b.write("media/README", []byte("no package"))
	r := b.request("libx1")
	r.Repository = Repository{Format: Deb, Path: "/media", Architecture: "amd64"}
	got, problem := b.fetch(r)
	if problem != nil || b.there()["usr/lib/x"] != "1.1-1" || got.Packages[0].From != "/media/libx1_1.1-1.deb" ||
		got.Packages[0].SHA256 == "" || got.Packages[0].Key != "" {
		t.Errorf("%+v, %v", got, problem)
	}
	empty := func() {
		b.must(os.RemoveAll(filepath.Join(b.root, "out")))
		b.must(os.Mkdir(filepath.Join(b.root, "out"), 0o755))
	}
	empty()
	file := r
	file.Repository.Path = "/media/libx1_1.0-1.deb"
	if _, problem := b.fetch(file); problem != nil || b.there()["usr/lib/x"] != "1.0-1" {
		t.Error(problem)
	}
	empty()
	b.o.Trust.Require = true
	b.refused("signatures", r, accel.SignatureInvalid, "trust.require")
	b.o.Trust.Require = false
	missing := r
	missing.Packages = []Wanted{{Name: "libx1", Version: "2"}}
	b.refused("another version", missing, accel.ArtifactNotFound, "1.1-1, 1.0-1")
	missing.Repository.Path = "/none"
	b.refused("no directory", missing, accel.ArtifactNotFound, "/none")
	b.must(os.Chown(filepath.Join(b.root, "media/libx1_1.0-1.deb"), 1000, 1000))
	b.refused("of another user", r, accel.SignatureInvalid, "belongs to user 1000")
}

// TestRequest: a request that cannot be one is refused before anything is asked.
func TestRequest(t *testing.T) {
	b := newBench(t)
	for name, change := range map[string]func(*Request){
		"no packages":      func(r *Request) { r.Packages = nil },
		"a flag":           func(r *Request) { r.Packages[0].Name = "-x" },
		"a path":           func(r *Request) { r.Packages[0].Name = "../x" },
		"a blank":          func(r *Request) { r.Packages[0].Version = "1 2" },
		"twice":            func(r *Request) { r.Packages = append(r.Packages, r.Packages[0]) },
		"no directory":     func(r *Request) { r.Dir = "out" },
		"no cache":         func(r *Request) { r.Cache = "" },
		"no format":        func(r *Request) { r.Repository.Format = "apk" },
		"no architecture":  func(r *Request) { r.Repository.Architecture = "" },
		"two places":       func(r *Request) { r.Repository.Path = "/media" },
		"a file":           func(r *Request) { r.Repository.URL = "file:///etc" },
		"credentials":      func(r *Request) { r.Repository.URL = "http://a:b@example.org/" },
		"a query":          func(r *Request) { r.Repository.URL += "?x=y" },
		"a bad mirror":     func(r *Request) { r.Repository.Mirrors = []string{"ftp://example.org"} },
		"up":               func(r *Request) { r.Repository.Suite = "../x" },
		"absolute":         func(r *Request) { r.Repository.Suite = "/x" },
		"no suite":         func(r *Request) { r.Repository.Suite = "" },
		"no components":    func(r *Request) { r.Repository.Components = nil },
		"flat with them":   func(r *Request) { r.Repository.Suite = "./" },
		"a component that": func(r *Request) { r.Repository.Components = []string{"../main"} },
		"a bad proxy":      func(r *Request) { r.Repository.Proxy = "no proxy" },
	} {
		r := b.request("libx1")
		change(&r)
		b.refused(name, r, accel.ConfigInvalid)
	}
	if len(b.asked) > 0 {
		t.Errorf("asked for %v", b.asked)
	}
}

// TestProgress: the bytes of packages are reported, and the end.
func TestProgress(t *testing.T) {
	b := newBench(t)
	a := b.archive()
	a.add("libx1", "1.0-1")
	a.publish()
	var last accel.Progress
	b.o.Progress = func(p accel.Progress) { last = p }
	if _, problem := b.fetch(b.request("libx1")); problem != nil {
		t.Fatal(problem)
	}
	if want := int64(len(b.files["pool/libx1_1.0-1_amd64.deb"])); !last.Ended || last.Problem != "" ||
		last.Done != want || last.Total != want || last.Stage != accel.StagePull {
		t.Errorf("%+v", last)
	}
}
