package driver

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/klauspost/compress/zstd"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/source"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/driver/trust"
	"github.com/acceld/acceld/test/ko"
)

// shop is a registry on loopback whose answers a test can spoil.
type shop struct {
	*httptest.Server
	mu       sync.Mutex
	spoil    func(w http.ResponseWriter, r *http.Request, next http.Handler)
	requests []string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{}
	inner := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0)),
		registry.WithReferrersSupport(true))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		spoil := s.spoil
		s.mu.Unlock()
		if spoil != nil {
			spoil(w, r, inner)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *shop) host() string { return strings.TrimPrefix(s.URL, "http://") }

func (s *shop) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// answering makes requests for paths that contain part fail with a status.
func answering(status int, part string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.Contains(r.URL.Path, part) && r.URL.Path != "/v2/" {
			w.WriteHeader(status)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// altering changes the body of each response to a GET of a path that contains part.
func altering(part string, change func([]byte) []byte) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, part) {
			next.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		body := rec.Body.Bytes()
		if changed := change(bytes.Clone(body)); !bytes.Equal(changed, body) {
			w.Header().Del("Content-Length")
			body = changed
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(body)
	}
}

func quick() artifact.Options {
	return artifact.Options{Backoff: time.Millisecond, Stall: 200 * time.Millisecond, Timeout: 5 * time.Second}
}

// fromShop is the definition with the shop as its source.
func fromShop(s *shop) *accel.Definition {
	def := ko.Definition()
	def.Driver.Sources = []accel.Source{{
		Type:  accel.SourceOCI,
		Image: s.host() + "/edu:v{{.DriverVersion}}-{{.KernelVersion}}",
	}}
	return def
}

// stock pushes a driver from another machine.
func (s *shop) stock(t *testing.T, def *accel.Definition, x ko.Module, change func(*accel.Facts, *store.Entry),
	key *trust.Key,
) artifact.Pushed {
	t.Helper()
	other := newMachine(t)
	d := other.driver(Options{Artifact: quick()})
	e, facts := other.enter(d, x, 1), other.Facts()
	if change != nil {
		change(&facts, &e)
	}
	pushed, problem := d.sources.Push(t.Context(), def, facts, e, key)
	if problem != nil {
		t.Fatal(problem)
	}
	return pushed[0]
}

// tree lists everything below the state directory with its size, except the locks.
func (m *testMachine) tree(d *Driver) []string {
	var out []string
	_ = filepath.WalkDir(m.Path(d.o.StateDir), func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !strings.Contains(name, "/kmod/lock/") {
			out = append(out, strings.TrimPrefix(name, m.Root))
		}
		return nil
	})
	return out
}

func newKey(t *testing.T, m *testMachine, name string) *trust.Key {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := x509.MarshalPKCS8PrivateKey(private)
	public, _ := x509.MarshalPKIXPublicKey(&private.PublicKey)
	m.Write("/etc/"+name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	m.Write("/etc/"+name+".pub", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})))
	key, problem := trust.ReadKey(m.Host, "/etc/"+name+".key")
	if problem != nil {
		t.Fatal(problem)
	}
	return key
}

// TestSources has a row for each way in which a registry fails. The failure leads to the next source or to one
// reason, and leaves nothing behind.
func TestSources(t *testing.T) {
	type shelf struct {
		t   *testing.T
		s   *shop
		m   *testMachine
		def *accel.Definition
	}
	good := func(f shelf) { f.s.stock(f.t, f.def, ko.Edu(), nil, nil) }
	for _, c := range []struct {
		name    string
		prepare func(shelf)
		want    accel.Reason // of the source; empty when it satisfies
		falls   bool         // to the next source
	}{
		{"good", good, "", false},
		{"404", func(shelf) {}, accel.ArtifactNotFound, true},
		{"401", func(f shelf) { f.s.spoil = answering(401, "") }, accel.RegistryDenied, true},
		{"403", func(f shelf) { f.s.spoil = answering(403, "/manifests/") }, accel.RegistryDenied, true},
		{"500s", func(f shelf) { good(f); f.s.spoil = answering(500, "/manifests/") }, accel.RegistryUnreachable, true},
		{"429s", func(f shelf) { good(f); f.s.spoil = answering(429, "/blobs/") }, accel.RegistryUnreachable, true},
		{"500 once", func(f shelf) {
			good(f)
			var once sync.Once
			f.s.spoil = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				failed := false
				if strings.Contains(r.URL.Path, "/blobs/") {
					once.Do(func() { failed = true })
				}
				if failed {
					w.WriteHeader(500)
					return
				}
				next.ServeHTTP(w, r)
			}
		}, "", false},
		{"nobody there", func(f shelf) { f.s.Close() }, accel.RegistryUnreachable, true},
		{"stands still", func(f shelf) {
			good(f)
			f.s.spoil = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if strings.Contains(r.URL.Path, "/blobs/") {
					w.Header().Set("Content-Length", "1000000")
					w.WriteHeader(200)
					_ = http.NewResponseController(w).Flush()
					select {
					case <-r.Context().Done():
					case <-time.After(3 * time.Second):
					}
					return
				}
				next.ServeHTTP(w, r)
			}
		}, accel.RegistryUnreachable, true},
		{"drops in the middle", func(f shelf) {
			good(f)
			f.s.spoil = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if strings.Contains(r.URL.Path, "/blobs/") {
					w.Header().Set("Content-Length", "1000")
					_, _ = w.Write([]byte("half"))
					panic(http.ErrAbortHandler)
				}
				next.ServeHTTP(w, r)
			}
		}, accel.RegistryUnreachable, true},
		{"wrong digest of a blob", func(f shelf) {
			good(f)
			f.s.spoil = altering("/blobs/", func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
		}, accel.DigestMismatch, false},
		{"truncated blob", func(f shelf) {
			good(f)
			f.s.spoil = altering("/blobs/", func(b []byte) []byte { return b[:len(b)/2] })
		}, accel.DigestMismatch, false},
		{"wrong manifest under its digest", func(f shelf) {
			good(f)
			f.s.spoil = altering("/manifests/sha256:", func(b []byte) []byte { return append(b, ' ') })
		}, accel.DigestMismatch, false},
		{"pinned to what is not there", func(f shelf) {
			good(f)
			f.def.Driver.Sources[0].Digest = "sha256:" + strings.Repeat("a", 64)
		}, accel.ArtifactNotFound, true},
		{"pinned", func(f shelf) {
			f.def.Driver.Sources[0].Digest = f.s.stock(f.t, f.def, ko.Edu(), nil, nil).Digest
		}, "", false},
		{"pinned for another kernel", func(f shelf) {
			f.def.Driver.Sources[0].Digest = f.s.stock(f.t, f.def, ko.Edu(), func(facts *accel.Facts, e *store.Entry) {
				facts.Kernel.BuildID, e.KernelID = "ffffffffffffffff", "ffffffffffffffff"
			}, nil).Digest
		}, accel.KernelMismatch, true},
		{"tag of another build of the kernel", func(f shelf) {
			f.s.stock(f.t, f.def, ko.Edu(), func(facts *accel.Facts, e *store.Entry) {
				facts.Kernel.BuildID, e.KernelID = "ffffffffffffffff", "ffffffffffffffff"
			}, nil)
		}, accel.ArtifactNotFound, true},
		{"tag of another release", func(f shelf) {
			f.s.stock(f.t, f.def, ko.Edu(), func(_ *accel.Facts, e *store.Entry) { e.KernelRelease = "5.0" }, nil)
		}, accel.ArtifactNotFound, true},
		{"another architecture", func(f shelf) {
			f.s.stock(f.t, f.def, ko.Edu(), func(_ *accel.Facts, e *store.Entry) { e.Arch = "aarch64" }, nil)
		}, accel.ArtifactNotFound, true},
		{"another kind", func(f shelf) {
			f.s.stock(f.t, f.def, ko.Edu(), func(_ *accel.Facts, e *store.Entry) { e.Kind = "a-b" }, nil)
		}, accel.ArtifactNotFound, true},
		{"vermagic of another kernel", func(f shelf) {
			x := ko.Edu()
			x.Vermagic = "5.0 SMP"
			f.s.stock(f.t, f.def, x, nil, nil)
		}, accel.ArtifactInvalid, false},
		{"missing symbol", func(f shelf) {
			f.m.Write("/proc/kallsyms", "0000000000000000 T printk\n")
			x := ko.Edu()
			x.Undefined = []string{"not_there"}
			f.s.stock(f.t, f.def, x, nil, nil)
		}, accel.SymbolMissing, false},
		{"module of another name", func(f shelf) {
			x := ko.Edu()
			x.Name = "other"
			f.s.stock(f.t, f.def, x, nil, nil)
		}, accel.ArtifactInvalid, false},
		{"unsigned module under enforcement", good, accel.Unsigned, false},
		{"not signed", func(f shelf) {
			newKey(f.t, f.m, "a")
			good(f)
			f.def.Driver.Sources[0].Keys = []string{"/etc/a.pub"}
		}, accel.SignatureInvalid, false},
		{"signed by somebody else", func(f shelf) {
			newKey(f.t, f.m, "a")
			f.s.stock(f.t, f.def, ko.Edu(), nil, newKey(f.t, f.m, "b"))
			f.def.Driver.Sources[0].Keys = []string{"/etc/a.pub"}
		}, accel.SignatureInvalid, false},
		{"signed", func(f shelf) {
			newKey(f.t, f.m, "a")
			f.s.stock(f.t, f.def, ko.Edu(), nil, newKey(f.t, f.m, "b"))
			f.def.Driver.Sources[0].Keys = []string{"/etc/a.pub", "/etc/b.pub"}
		}, "", false},
		{"signature of something else", func(f shelf) {
			key := newKey(f.t, f.m, "a")
			signed := f.s.stock(f.t, f.def, ko.Edu(), nil, key)
			x := ko.Edu()
			x.BuildID = "0000"
			plain := f.s.stock(f.t, f.def, x, nil, nil)
			f.s.copyTag(f.t, sigTag(signed.Digest), sigTag(plain.Digest))
			f.def.Driver.Sources[0].Keys = []string{"/etc/a.pub"}
		}, accel.SignatureInvalid, false},
		{"no key to compare with", func(f shelf) {
			good(f)
			f.def.Driver.Sources[0].Keys = []string{"/etc/not-there.pub"}
		}, accel.ConfigInvalid, false},
		{"no credentials file", func(f shelf) {
			good(f)
			f.def.Driver.Sources[0].Credentials = "/etc/not-there.json"
		}, accel.RegistryDenied, true},
		{"an archive with a link", func(f shelf) {
			f.s.forge(f.t, f.m, tar.Header{Typeflag: tar.TypeSymlink, Name: "edu.ko", Linkname: "/etc/shadow"})
		}, accel.ArtifactInvalid, false},
		{"an archive with a device", func(f shelf) {
			f.s.forge(f.t, f.m, tar.Header{Typeflag: tar.TypeChar, Name: "edu.ko"})
		}, accel.ArtifactInvalid, false},
		{"an archive that leaves its place", func(f shelf) {
			f.s.forge(f.t, f.m, tar.Header{Typeflag: tar.TypeReg, Name: "../../../edu.ko", Size: 4})
		}, accel.ArtifactInvalid, false},
		{"an archive with absolute names", func(f shelf) {
			f.s.forge(f.t, f.m, tar.Header{Typeflag: tar.TypeReg, Name: "/edu.ko", Size: 4})
		}, accel.ArtifactInvalid, false},
		{"an archive with more than is named", func(f shelf) {
			f.s.forge(f.t, f.m, tar.Header{Typeflag: tar.TypeReg, Name: "manifest.json", Size: 4})
		}, accel.ArtifactInvalid, false},
		{"a bomb", func(f shelf) {
			f.s.forge(f.t, f.m, tar.Header{Typeflag: tar.TypeReg, Name: "edu.ko", Size: 64 << 20})
		}, accel.ArtifactInvalid, false},
		{"another file than is named", func(f shelf) {
			f.s.forge(f.t, f.m, tar.Header{Typeflag: tar.TypeReg, Name: "edu.ko", Size: 4})
		}, accel.DigestMismatch, false},
		{"an empty archive", func(f shelf) { f.s.forge(f.t, f.m) }, accel.ArtifactInvalid, false},
		{"a template that cannot be filled", func(f shelf) {
			f.def.Driver.Sources[0].Image = f.s.host() + "/edu:{{.Nonsense}}"
		}, accel.DefinitionInvalid, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, s := newMachine(t), newShop(t)
			o := quick()
			o.Limits = artifact.Limits{Manifest: 1 << 20, Packed: 1 << 20, Unpacked: 32 << 20, Files: 10, Layers: 4}
			d := m.driver(Options{Artifact: o})
			def := fromShop(s)
			def.Driver.Version = "1.0.0"
			c.prepare(shelf{t, s, m, def})
			facts := m.Facts()
			facts.Kernel.SigEnforce = c.want == accel.Unsigned
			before := m.tree(d)
			have, problem := d.Ensure(t.Context(), def, facts, m.accs())
			if c.want == "" {
				if problem != nil || !have.Serves || have.Source != "oci" || have.Version != "1.0.0" {
					t.Fatalf("%+v %v", have, problem)
				}
				return
			}
			if problem == nil || problem.Reason != c.want {
				t.Fatalf("got %v, want %s", problem, c.want)
			}
			if len(m.loads) > 0 {
				t.Errorf("the kernel was asked to load %v", m.loads)
			}
			if diff := cmp.Diff(before, m.tree(d)); diff != "" {
				t.Errorf("left behind:\n%s", diff)
			}
			// And with another source after it.
			m.bundle(t, "/media/b.tar")
			def.Driver.Sources = append(def.Driver.Sources, accel.Source{
				Type: accel.SourceBundle,
				Path: "/media/b.tar",
			})
			have, problem = d.Ensure(t.Context(), def, facts, m.accs())
			if fell := problem == nil && have.Source == "bundle"; fell != c.falls {
				t.Errorf("falls through: %t, want %t (%+v %v)", fell, c.falls, have, problem)
			}
		})
	}
}

// bundle writes a bundle with a good driver.
func (m *testMachine) bundle(t *testing.T, file string) {
	t.Helper()
	other := newMachine(t)
	d := other.driver(Options{})
	e := other.enter(d, ko.Edu(), 1)
	if err := os.MkdirAll(filepath.Dir(other.Path(file)), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, problem := d.sources.Export(other.Facts(), []store.Entry{e}, file, nil); problem != nil {
		t.Fatal(problem)
	}
	m.Write(file, other.Read(file))
}

func sigTag(digest string) string { return strings.Replace(digest, ":", "-", 1) + ".sig" }

// copyTag gives a manifest of the shop another tag.
func (s *shop) copyTag(t *testing.T, from, to string) {
	t.Helper()
	get, err := http.Get(s.URL + "/v2/edu/manifests/" + from)
	if err != nil {
		t.Fatal(err)
	}
	defer get.Body.Close()
	s.put(t, "/v2/edu/manifests/"+to, get.Header.Get("Content-Type"), get.Body)
}

func (s *shop) put(t *testing.T, path, kind string, body io.Reader) {
	t.Helper()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+path, body)
	r.Header.Set("Content-Type", kind)
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode != http.StatusCreated {
		t.Fatal(err, answer)
	}
	answer.Body.Close()
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// forge puts an artifact into the shop whose layer has the given, malicious headers.
func (s *shop) forge(t *testing.T, m *testMachine, headers ...tar.Header) {
	t.Helper()
	var layer bytes.Buffer
	z, _ := zstd.NewWriter(&layer)
	w := tar.NewWriter(z)
	for _, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	z.Close()
	k := m.Facts().Kernel
	config, _ := json.Marshal(artifact.Config{
		Schema: artifact.Schema, Profile: "qemu-edu", DriverVersion: "1.0.0", Arch: k.Arch, KernelRelease: k.Release,
		KernelBuildID: k.BuildID,
		Modules:       []artifact.Module{{Name: "edu", File: "edu.ko", SHA256: sumOf(ko.Edu().Bytes())}},
	})
	descriptor := func(kind string, b []byte) map[string]any {
		s.upload(t, b)
		return map[string]any{"mediaType": kind, "digest": "sha256:" + sumOf(b), "size": len(b)}
	}
	text, _ := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"artifactType": artifact.ArtifactType,
		"config":       descriptor(artifact.ConfigType, config),
		"layers":       []any{descriptor(artifact.LayerType, layer.Bytes())},
	})
	s.put(t, "/v2/edu/manifests/v1.0.0-"+k.Release, "application/vnd.oci.image.manifest.v1+json", bytes.NewReader(text))
}

func (s *shop) upload(t *testing.T, b []byte) {
	t.Helper()
	answer, err := http.Post(s.URL+"/v2/edu/blobs/uploads/?digest=sha256:"+sumOf(b), "application/octet-stream",
		bytes.NewReader(b))
	if err != nil || answer.StatusCode != http.StatusCreated {
		t.Fatal(err, answer)
	}
	answer.Body.Close()
}

// TestNoNetwork: a store that has the driver needs no network, and neither does what runs at boot.
func TestNoNetwork(t *testing.T) {
	m, s := newMachine(t), newShop(t)
	def := fromShop(s)
	s.stock(t, def, ko.Edu(), nil, nil)
	before := s.asked()
	d := m.driver(Options{Artifact: quick()})
	stored := source.Options{NoBuild: true}
	if _, problem := d.EnsureWith(t.Context(), def, m.Facts(), m.accs(), stored); problem == nil ||
		problem.Reason != accel.NoDriverSource {
		t.Errorf("without a network: %v", problem)
	}
	if s.asked() != before {
		t.Error("a registry was asked at boot")
	}
	if _, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil {
		t.Fatal(problem)
	}
	if s.asked() == before {
		t.Error("nobody was asked")
	}
	before = s.asked()
	m.reboot("boot-2")
	_, _ = os.ReadDir(m.Root)
	for _, id := range m.Devices {
		_ = os.Remove(m.Path("/sys/bus/pci/devices/" + id + "/driver"))
	}
	have, problem := m.driver(Options{Artifact: quick()}).Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem != nil || have.Source != "store" || s.asked() != before {
		t.Errorf("%+v %v, %d requests", have, problem, s.asked()-before)
	}
}

// TestOrderOfPrebuilt: prebuilt drivers come before builds, in whatever order they are listed, and bundles come last.
func TestOrderOfPrebuilt(t *testing.T) {
	m := newMachine(t)
	def := ko.Definition()
	def.Driver.Sources = []accel.Source{
		{Type: accel.SourceBundle, Path: "/b"},
		{Type: accel.SourceBuild, Path: "/src"},
		{Type: accel.SourceOCI, Image: "a/x"},
		{Type: accel.SourceOCI, Image: "b/x"},
	}
	var got []string
	for _, s := range m.driver(Options{}).sources.For(def, m.Facts(), source.Options{}) {
		got = append(got, s.Name)
	}
	if diff := cmp.Diff([]string{"store", "installed", "oci a/x", "oci b/x", "build from /src", "bundle /b"},
		got); diff != "" {
		t.Error(diff)
	}
}

func TestMirrors(t *testing.T) {
	m, own, broken, good := newMachine(t), newShop(t), newShop(t), newShop(t)
	def := fromShop(own)
	broken.spoil = answering(503, "")
	def.Driver.Sources[0].Mirrors = []string{broken.host(), good.host()}
	d := m.driver(Options{Artifact: quick()})
	_, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.RegistryUnreachable {
		t.Fatal(problem)
	}
	for _, s := range []*shop{own, broken, good} {
		if !strings.Contains(problem.Message, s.host()) {
			t.Errorf("the message does not name %s: %s", s.host(), problem.Message)
		}
	}
	good.stock(t, fromShop(good), ko.Edu(), nil, nil)
	if have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs()); problem != nil || have.Source != "oci" {
		t.Fatal(have, problem)
	}
	if all, _ := d.store.List(); len(all) != 1 || !strings.HasPrefix(all[0].Origin, good.host()+"/edu@sha256:") {
		t.Errorf("%+v", all)
	}
}

// TestFetchOnce: two agents that need the same driver fetch it once.
func TestFetchOnce(t *testing.T) {
	m, s := newMachine(t), newShop(t)
	def := fromShop(s)
	s.stock(t, def, ko.Edu(), nil, nil)
	s.requests = nil
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, problem := m.driver(Options{Artifact: quick()}).Ensure(t.Context(), def, m.Facts(),
				m.accs()); problem != nil {
				t.Error(problem)
			}
		})
	}
	all.Wait()
	if n := len(slices.DeleteFunc(s.requests, func(r string) bool { return !strings.Contains(r, "/blobs/") })); n != 2 {
		t.Errorf("%d blobs were asked for: %v", n, s.requests)
	}
	if entries, _ := m.driver(Options{}).store.List(); len(entries) != 1 {
		t.Errorf("%+v", entries)
	}
}

// TestFetchAfterACrash: the remains of a fetch that died are removed and block nothing.
func TestFetchAfterACrash(t *testing.T) {
	m, s := newMachine(t), newShop(t)
	def := fromShop(s)
	s.stock(t, def, ko.Edu(), nil, nil)
	d := m.driver(Options{})
	m.Write(d.store.BuildDir()+"/123/work/0/edu.ko", "half")
	m.Write(d.store.BuildDir()+"/123.lock", "")
	if _, problem := m.driver(Options{Artifact: quick()}).Ensure(t.Context(), def, m.Facts(),
		m.accs()); problem != nil {
		t.Fatal(problem)
	}
	if left := m.Host.Glob(d.store.BuildDir(), "*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestDenied: if nothing else works either, the problem says that a registry denied access, in a preflight too.
func TestDenied(t *testing.T) {
	m, s := newMachine(t), newShop(t)
	s.spoil = answering(403, "/manifests/")
	def := fromShop(s)
	def.Driver.Sources = append(def.Driver.Sources, accel.Source{Type: accel.SourceBuild, Path: "/src"})
	_, problem := m.driver(Options{Artifact: quick()}).Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem == nil || problem.Reason != accel.RegistryDenied || len(problem.Tried) != 5 {
		t.Fatal(problem)
	}
	if !strings.Contains(problem.Tried[4], "the source of") {
		t.Error(problem.Tried)
	}
	facts := m.Facts()
	facts.Kernel.NotRunning = true
	r := m.driver(Options{Artifact: quick()}).Preflight(t.Context(), def, facts, PreflightOptions{})
	if r.Ready || r.Problem.Reason != accel.RegistryDenied || r.Problem.Message != problem.Message {
		t.Errorf("the preflight names another reason than the boot: %+v", r.Problem)
	}
}

// TestForeignImage reads an image in the layout of the kernel module management operator.
func TestForeignImage(t *testing.T) {
	m, s := newMachine(t), newShop(t)
	m.Write("/etc/hostname", "x")
	def := fromShop(s)
	var one, two bytes.Buffer
	layer := func(to *bytes.Buffer, files map[string]string) {
		w := tar.NewWriter(to)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			h := tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(files[name])), Mode: 0o644}
			if name == "bin/sh" {
				h.Typeflag, h.Size, h.Linkname = tar.TypeSymlink, 0, "busybox"
			}
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if h.Size > 0 {
				_, _ = w.Write([]byte(files[name]))
			}
		}
		w.Close()
	}
	var packed bytes.Buffer
	z, _ := zstd.NewWriter(&packed)
	_, _ = z.Write(ko.Edu().Bytes())
	z.Close()
	modules := "opt/lib/modules/" + ko.Release + "/"
	layer(&one, map[string]string{
		"bin/sh": "", modules + "edu.ko": "old", modules + "gone.ko": "x",
		"opt/lib/modules/5.0/edu.ko": "other",
	})
	layer(&two, map[string]string{
		modules + "extra/edu.ko.zst": packed.String(), modules + ".wh.edu.ko": "",
		modules + ".wh.gone.ko": "", "firmware/edu.bin": "firmware",
	})
	config := []byte(`{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}`)
	descriptor := func(kind string, b []byte) map[string]any {
		s.upload(t, b)
		return map[string]any{"mediaType": kind, "digest": "sha256:" + sumOf(b), "size": len(b)}
	}
	text, _ := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": descriptor("application/vnd.oci.image.config.v1+json", config),
		"layers": []any{
			descriptor("application/vnd.oci.image.layer.v1.tar", one.Bytes()),
			descriptor("application/vnd.oci.image.layer.v1.tar", two.Bytes()),
		},
	})
	s.put(t, "/v2/edu/manifests/v1.0.0-"+ko.Release, "application/vnd.oci.image.manifest.v1+json",
		bytes.NewReader(text))
	def.Driver.Version = "1.0.0"
	d := m.driver(Options{Artifact: quick()})
	have, problem := d.Ensure(t.Context(), def, m.Facts(), m.accs())
	if problem != nil || have.Source != "oci" {
		t.Fatal(have, problem)
	}
	entries, _ := d.store.List()
	if got := m.Read(entries[0].Path + "/firmware/edu.bin"); len(entries) != 1 || got != "firmware" {
		t.Errorf("%+v %q", entries, got)
	}
	if got := m.Read(entries[0].Path + "/edu.ko"); got != string(ko.Edu().Bytes()) {
		t.Error("another module")
	}
	if left, _ := os.ReadDir(m.Path(entries[0].Path)); len(left) != 3 {
		t.Errorf("entry has %v", left)
	}
}

// TestFreshAnswer: when a registry is asked again, a new driver under an old tag is fetched, and a known one is not.
func TestFreshAnswer(t *testing.T) {
	m, s := newMachine(t), newShop(t)
	def := fromShop(s)
	def.Driver.Version = ""
	def.Driver.Sources[0].Image = s.host() + "/edu:latest-{{.KernelVersion}}"
	d := m.driver(Options{Artifact: quick()})
	answer := func() (key string, blobs int) {
		t.Helper()
		s.requests = nil
		p, tried, problem := d.sources.Acquire(t.Context(), def, m.Facts(), source.Options{Fresh: true})
		if problem != nil {
			t.Fatal(problem, tried)
		}
		defer p.Close()
		for _, r := range s.requests {
			if strings.Contains(r, "/blobs/") {
				blobs++
			}
		}
		return p.Key, blobs
	}
	s.stock(t, def, version("1.0.0"), nil, nil)
	first, _ := answer()
	if again, blobs := answer(); again != first || blobs != 1 { // its configuration, and no layer
		t.Errorf("asked again it is %q, was %q, with %d blobs", again, first, blobs)
	}
	s.stock(t, def, version("1.0.1"), func(_ *accel.Facts, e *store.Entry) { e.Identity.SourceDigest = "other" }, nil)
	if second, blobs := answer(); second == first || blobs != 2 {
		t.Errorf("the new one is %q, with %d blobs", second, blobs)
	}
}
