package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io/fs"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	fake "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/trust"
	"github.com/acceld/acceld/host"
)

// workbench is a host in a directory, with one driver.
type workbench struct {
	t    *testing.T
	h    *host.Host
	c    *Client
	root string
}

func newWorkbench(t *testing.T) *workbench {
	t.Helper()
	b := &workbench{t: t, root: t.TempDir()}
	h, err := host.New(b.root)
	if err != nil {
		t.Fatal(err)
	}
	b.h, b.c = h, New(h, Options{Backoff: time.Millisecond, Timeout: 10 * time.Second})
	b.write("/store/edu.ko", "the module")
	b.write("/store/firmware/a/edu.bin", "the firmware")
	b.write("/tmp/.keep", "")
	return b
}

func (b *workbench) write(name, text string) {
	b.t.Helper()
	p := filepath.Join(b.root, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *workbench) read(name string) string {
	text, err := os.ReadFile(filepath.Join(b.root, name))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// empty creates an empty directory to unpack into.
func (b *workbench) empty() string {
	b.t.Helper()
	dir, err := os.MkdirTemp(filepath.Join(b.root, "tmp"), "")
	if err != nil {
		b.t.Fatal(err)
	}
	return "/tmp/" + filepath.Base(dir)
}

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

func content() Content {
	return Content{
		Config: Config{
			Schema: Schema, Profile: "qemu-edu", DriverVersion: "1.0.0", Arch: "x86_64", KernelRelease: "6.1.0-9-amd64",
			KernelBuildID: "0123456789abcdef0123",
			Modules:       []Module{{Name: "edu", File: "edu.ko", SHA256: sum("the module")}},
			Firmware:      []File{{Path: "a/edu.bin", SHA256: sum("the firmware")}},
		},
		Paths: map[string]string{"edu.ko": "/store/edu.ko", "firmware/a/edu.bin": "/store/firmware/a/edu.bin"},
	}
}

func this() Wanted {
	return Wanted{
		Kind: "qemu-edu", Version: "1.0.0", Arch: "x86_64", KernelRelease: "6.1.0-9-amd64",
		KernelVersion: "#1 SMP", KernelBuildID: "0123456789abcdef0123",
	}
}

func newRegistry(options ...fake.Option) http.Handler {
	return fake.New(append(options, fake.Logger(slog.NewLogLogger(slog.DiscardHandler, 0)))...)
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func (b *workbench) push(s accel.Source, o PushOptions) Pushed {
	b.t.Helper()
	p, problem := b.c.Push(b.t.Context(), s, this(), content(), b.empty(), o)
	if problem != nil {
		b.t.Fatal(problem)
	}
	return p
}

func TestThereAndBack(t *testing.T) {
	b := newWorkbench(t)
	s := accel.Source{Type: accel.SourceOCI, Image: serve(t, newRegistry()) + "/drivers/edu"}
	first := b.push(s, PushOptions{})
	if want := s.Image + ":1.0.0-0123456789abcdef-x86_64@sha256:"; !strings.HasPrefix(first.Reference, want) {
		t.Errorf("reference %q, want %q…", first.Reference, want)
	}
	if again := b.push(s, PushOptions{}); again != first {
		t.Errorf("the same files are %+v, then %+v", first, again)
	}
	dir := b.empty()
	got, problem := b.c.Pull(t.Context(), s, this(), dir)
	if problem != nil {
		t.Fatal(problem)
	}
	if diff := cmp.Diff(content().Config, got.Config); diff != "" || got.Digest != first.Digest ||
		got.Reference != s.Image+"@"+first.Digest {
		t.Errorf("%+v\n%s", got, diff)
	}
	if b.read(dir+"/edu.ko") != "the module" || b.read(dir+"/firmware/a/edu.bin") != "the firmware" {
		t.Error("other files came back")
	}
	// A kernel without a build-id is found by its release. The artifact does not state its `uname -v`.
	w := this()
	w.KernelBuildID = ""
	if _, problem := b.c.Pull(t.Context(), s, w, b.empty()); problem != nil {
		t.Error(problem)
	}
	// An existing artifact stays, because somebody else was first.
	if kept := b.push(s, PushOptions{Keep: true}); !kept.Kept || kept.Digest != first.Digest {
		t.Errorf("%+v", kept)
	}
}

// TestPrivateAuthority: a registry with an unknown certificate is rejected; with its authority configured it is
// accepted.
func TestPrivateAuthority(t *testing.T) {
	b := newWorkbench(t)
	server := httptest.NewTLSServer(newRegistry())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	t.Cleanup(server.Close)
	s := accel.Source{Image: strings.TrimPrefix(server.URL, "https://") + "/edu"}
	_, problem := b.c.Pull(t.Context(), s, this(), b.empty())
	if problem == nil || problem.Reason != accel.RegistryUnreachable || !strings.Contains(problem.Message,
		"certificate") {
		t.Fatal(problem)
	}
	for file, want := range map[string]string{
		"/etc/none.pem": "cannot read the certificate authority",
		"/store/edu.ko": "has no certificate",
	} {
		s.CA = file
		if _, problem := b.c.Pull(t.Context(), s, this(), b.empty()); problem == nil ||
			!strings.Contains(problem.Message, want) {
			t.Errorf("%s: %v", file, problem)
		}
	}
	b.write("/etc/ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	s.CA = "/etc/ca.pem"
	b.push(s, PushOptions{})
	if _, problem := b.c.Pull(t.Context(), s, this(), b.empty()); problem != nil {
		t.Error(problem)
	}
	// In a container, the machine's own bundle is used too.
	s.CA = ""
	b.write("/etc/pki/tls/certs/ca-bundle.crt", b.read("/etc/ca.pem"))
	if _, problem := b.c.Pull(t.Context(), s, this(), b.empty()); problem != nil {
		t.Error(problem)
	}
}

// TestPlainHTTP: only loopback and explicitly allowed registries are used without TLS, not private addresses.
func TestPlainHTTP(t *testing.T) {
	for repository, want := range map[string]bool{
		"127.0.0.1:5000/x": true, "localhost/x": true, "[::1]:5000/x": true,
		"10.0.0.1/x": false, "registry.local/x": false, "localhost.example/x": false,
	} {
		if loopback(repository) != want {
			t.Errorf("%s is loopback: %t", repository, !want)
		}
	}
}

func TestProxy(t *testing.T) {
	b := newWorkbench(t)
	inner := newRegistry()
	var proxied atomic.Int32
	proxy := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Host == "registry.test" && r.Header.Get("Proxy-Authorization") != "" {
			proxied.Add(1)
		}
		if r.Method == http.MethodConnect { // TLS is tried first
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		r.RequestURI = r.URL.RequestURI()
		inner.ServeHTTP(w, r)
	}))
	s := accel.Source{Image: "registry.test/edu", PlainHTTP: true, Proxy: "http://user:secret@" + proxy}
	b.push(s, PushOptions{})
	if _, problem := b.c.Pull(t.Context(), s, this(), b.empty()); problem != nil || proxied.Load() == 0 {
		t.Error(problem, proxied.Load())
	}
	s.Proxy = "http://user:secret@127.0.0.1:1"
	_, problem := b.c.Pull(t.Context(), s, this(), b.empty())
	if problem == nil || problem.Reason != accel.RegistryUnreachable || strings.Contains(problem.Message, "secret") {
		t.Error(problem)
	}
}

// TestCredentials: the most specific entry of the file applies, no message contains any of it, and it is sent only to
// its registry.
func TestCredentials(t *testing.T) {
	b := newWorkbench(t)
	inner := newRegistry()
	protected := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	open := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("another registry was told the password")
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	entry := func(user, password string) map[string]string {
		return map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(user + ":" + password))}
	}
	s := accel.Source{Image: protected + "/team/edu", Credentials: "/etc/config.json", Mirrors: []string{open}}
	for name, row := range map[string]struct {
		auths map[string]any
		good  bool
	}{
		"host": {map[string]any{protected: entry("me", "secret")}, true},
		"URL":  {map[string]any{"http://" + protected + "/v1/": entry("me", "secret")}, true},
		"most specific": {
			map[string]any{protected: entry("x", "wrong"), protected + "/team": entry("me", "secret")},
			true,
		},
		"other path": {map[string]any{protected + "/tea": entry("me", "secret")}, false},
		"wrong":      {map[string]any{protected: entry("me", "wrong-secret")}, false},
		"nothing":    {map[string]any{}, false},
		"broken":     {map[string]any{protected: map[string]string{"auth": "secret"}}, false},
	} {
		text, _ := json.Marshal(map[string]any{"auths": row.auths})
		b.write("/etc/config.json", string(text))
		_, problem := b.c.Push(t.Context(), s, this(), content(), b.empty(), PushOptions{})
		if row.good {
			if problem == nil {
				_, problem = b.c.Pull(t.Context(), s, this(), b.empty())
			}
			if problem != nil {
				t.Errorf("%s: %v", name, problem)
			}
			continue
		}
		if problem == nil || problem.Reason != accel.RegistryDenied || strings.Contains(problem.Message, "secret") {
			t.Errorf("%s: %v", name, problem)
		}
	}
	b.write("/etc/config.json", "secret")
	if _, problem := b.c.Pull(t.Context(), s, this(), b.empty()); problem == nil ||
		problem.Reason != accel.RegistryDenied || strings.Contains(problem.Message, "secret\"") {
		t.Error(problem)
	}
}

// TestKeys signs and verifies with each type of key, and shows that a signature is valid for one artifact and one key
// only.
func TestKeys(t *testing.T) {
	p256, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	rsa2048, _ := rsa.GenerateKey(rand.Reader, 2048)
	_, edwards, _ := ed25519.GenerateKey(rand.Reader)
	stranger, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	for name, key := range map[string]crypto.Signer{"p256": p256, "p384": p384, "rsa": rsa2048, "ed25519": edwards} {
		b := newWorkbench(t)
		secret, _ := x509.MarshalPKCS8PrivateKey(key)
		b.write("/etc/k", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
		b.public("/etc/k.pub", key.Public())
		b.public("/etc/other.pub", stranger.Public())
		signer, problem := trust.ReadKey(b.h, "/etc/k")
		if problem != nil {
			t.Fatal(name, problem)
		}
		s := accel.Source{Image: serve(t, newRegistry()) + "/edu"}
		b.push(s, PushOptions{Key: signer})
		s.Keys = []string{"/etc/other.pub", "/etc/k.pub"}
		if _, problem := b.c.Pull(t.Context(), s, this(), b.empty()); problem != nil {
			t.Error(name, problem)
		}
		s.Keys = []string{"/etc/other.pub"}
		if _, problem := b.c.Pull(t.Context(), s, this(), b.empty()); problem == nil ||
			problem.Reason != accel.SignatureInvalid {
			t.Error(name, problem)
		}
	}
	b := newWorkbench(t)
	short, _ := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: new(big.Int).Rsh(rsa2048.N, 1100), E: 65537})
	b.write("/etc/short.pub", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: short})))
	b.write("/etc/encrypted.key", string(pem.EncodeToMemory(&pem.Block{
		Type:  "ENCRYPTED SIGSTORE PRIVATE KEY",
		Bytes: []byte("x"),
	})))
	if _, problem := trust.Read(b.h, accel.Trust{Keys: []string{"/etc/short.pub"}}); problem == nil {
		t.Error("a short key was taken")
	}
	if _, problem := trust.Read(b.h, accel.Trust{Keys: []string{"/store/edu.ko"}}); problem == nil {
		t.Error("no key was taken")
	}
	if _, problem := trust.ReadKey(b.h, "/etc/encrypted.key"); problem == nil || !strings.Contains(problem.Message,
		"encrypted") {
		t.Error(problem)
	}
}

func (b *workbench) public(name string, key crypto.PublicKey) {
	b.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		b.t.Fatal(err)
	}
	b.write(name, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
}

// TestReferredSignature accepts a Sigstore bundle that names the artifact as its subject, as newer versions of cosign
// write it. The registry may lack the referrers API, so that the bundle is kept under a tag.
func TestReferredSignature(t *testing.T) {
	private, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	for _, row := range []struct {
		name      string
		referrers bool
		predicate string
		subject   string // when empty, the artifact
		good      bool
	}{
		{"referrers", true, signPredicate, "", true},
		{"fallback tag", false, signPredicate, "", true},
		{"a statement about something else", true, "https://spdx.dev/Document", "", false},
		{"a statement about another artifact", true, signPredicate, sum("another artifact"), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newWorkbench(t)
			b.public("/etc/k.pub", private.Public())
			s := accel.Source{Image: serve(t, newRegistry(fake.WithReferrersSupport(row.referrers))) + "/edu"}
			pushed := b.push(s, PushOptions{})
			about := row.subject
			if about == "" {
				about = strings.TrimPrefix(pushed.Digest, "sha256:")
			}
			statement, _ := json.Marshal(map[string]any{
				"_type": "https://in-toto.io/Statement/v1", "predicateType": row.predicate,
				"subject": []any{map[string]any{"digest": map[string]string{"sha256": about}}},
			})
			signed, _ := trust.NewKey(private).Sign(encoded(statement))
			text, _ := json.Marshal(map[string]any{"mediaType": bundleType, "dsseEnvelope": map[string]any{
				"payload": statement, "payloadType": statementType,
				"signatures": []any{map[string]string{"sig": base64.StdEncoding.EncodeToString(signed)}},
			}})
			subject, _ := v1.NewHash(pushed.Digest)
			a, err := assemble(v1.Manifest{
				SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: bundleType,
				Subject: &v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: subject, Size: 1},
			}, memoryBlob("application/vnd.oci.empty.v1+json", []byte("{}")), memoryBlob(bundleType, text))
			if err != nil {
				t.Fatal(err)
			}
			b.upload(s, a, "x")
			s.Keys = []string{"/etc/k.pub"}
			if _, problem := b.c.Pull(t.Context(), s, this(), b.empty()); (problem == nil) != row.good {
				t.Error(problem)
			}
		})
	}
}

// image pushes an image in a foreign layout, with one layer, under a tag, and returns its descriptor.
func (b *workbench) image(s accel.Source, tag string, files map[string]string) v1.Descriptor {
	b.t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(files[name])), Mode: 0o644})
		if err == nil {
			_, err = w.Write([]byte(files[name]))
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.t.Fatal(err)
	}
	config := memoryBlob(types.OCIConfigJSON,
		[]byte(`{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}`))
	a, err := assemble(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}, config,
		memoryBlob(types.OCIUncompressedLayer, layer.Bytes()))
	if err != nil {
		b.t.Fatal(err)
	}
	b.upload(s, a, tag)
	return v1.Descriptor{
		MediaType: types.OCIManifestSchema1, Digest: a.manifest.digest, Size: int64(len(a.manifest.raw)),
		Platform: &v1.Platform{OS: "linux", Architecture: "amd64"},
	}
}

// upload sends a to the repository of s, under a tag.
func (b *workbench) upload(s accel.Source, a assembled, tag string) {
	b.t.Helper()
	to, err := dial(b.t.Context(), b.h, s, s.Image, time.Minute, defaultLimits())
	if err != nil {
		b.t.Fatal(err)
	}
	defer to.close()
	if err := b.c.upload(b.t.Context(), b.c.begin(accel.StagePush, ""), to, a, tag); err != nil {
		b.t.Fatal(err)
	}
}

// TestForeignImageStaysInItsPlace: the paths of a foreign image are relative and stay below the directory.
func TestForeignImageStaysInItsPlace(t *testing.T) {
	const modules = "opt/lib/modules/6.1.0-9-amd64/"
	for _, name := range []string{
		"firmware/../../../../etc/cron.d/x", // the root of the machine
		"firmware/../../../x",               // next to the directory it is unpacked into
		"firmware/../other.ko",              // a module outside the modules directory
		"/firmware/absolute",
	} {
		b := newWorkbench(t)
		s := accel.Source{Image: serve(t, newRegistry()) + "/edu"}
		b.image(s, "good", map[string]string{modules + "edu.ko": "the module", "firmware/a/edu.bin": "the firmware"})
		b.image(s, "evil", map[string]string{modules + "edu.ko": "the module", name: "written by a stranger"})
		good, evil := s, s
		good.Image, evil.Image = s.Image+":good", s.Image+":evil"
		dir := b.empty()
		if _, problem := b.c.Pull(t.Context(), good, this(), dir); problem != nil ||
			b.read(dir+"/firmware/a/edu.bin") != "the firmware" {
			t.Fatal(problem)
		}
		_, problem := b.c.Pull(t.Context(), evil, this(), b.empty())
		if problem == nil || problem.Reason != accel.ArtifactInvalid {
			t.Errorf("%q: %v", name, problem)
		}
		_ = filepath.WalkDir(b.root, func(file string, e fs.DirEntry, err error) error {
			if err != nil {
				t.Error(err)
			} else if text, _ := os.ReadFile(file); !e.IsDir() && string(text) == "written by a stranger" {
				t.Errorf("%q was written to %s", name, strings.TrimPrefix(file, b.root))
			}
			return nil
		})
	}
}

// TestIndex: for a multi-architecture image, a signature of either the selected image or the index is enough.
func TestIndex(t *testing.T) {
	private, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	stranger, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	for _, row := range []struct {
		name         string
		image, index *trust.Key
		good         bool
	}{
		{"the index", nil, trust.NewKey(private), true},
		{"the image", trust.NewKey(private), nil, true},
		{"both", trust.NewKey(private), trust.NewKey(private), true},
		{"neither", nil, nil, false},
		{"the index, by somebody else", nil, trust.NewKey(stranger), false},
		{"the image by somebody else, the index by us", trust.NewKey(stranger), trust.NewKey(private), true},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newWorkbench(t)
			b.public("/etc/k.pub", private.Public())
			s := accel.Source{Image: serve(t, newRegistry()) + "/edu"}
			other := b.image(s, "other",
				map[string]string{"opt/lib/modules/6.1.0-9-arm64/edu.ko": "the module of another machine"})
			other.Platform.Architecture = "arm64"
			ours := b.image(s, "ours", map[string]string{"opt/lib/modules/6.1.0-9-amd64/edu.ko": "the module"})
			raw, err := json.Marshal(v1.IndexManifest{
				SchemaVersion: 2, MediaType: types.OCIImageIndex,
				Manifests: []v1.Descriptor{other, ours},
			})
			if err != nil {
				t.Fatal(err)
			}
			index := newManifest(raw, types.OCIImageIndex)
			b.upload(s, assembled{manifest: index}, "all")
			for digest, key := range map[v1.Hash]*trust.Key{ours.Digest: row.image, index.digest: row.index} {
				if key == nil {
					continue
				}
				signed, err := signature(key, s.Image, digest)
				if err != nil {
					t.Fatal(err)
				}
				b.upload(s, signed, signatureTag(digest))
			}
			s.Image += ":all"
			s.Keys = []string{"/etc/k.pub"}
			dir := b.empty()
			got, problem := b.c.Pull(t.Context(), s, this(), dir)
			if !row.good {
				if problem == nil || problem.Reason != accel.SignatureInvalid {
					t.Error(problem)
				}
				return
			}
			if problem != nil || got.Digest != ours.Digest.String() || b.read(dir+"/edu.ko") != "the module" {
				t.Errorf("%+v %v", got, problem)
			}
		})
	}
}

// TestCalledOff: a pull ends with its context, whatever the registry does.
func TestCalledOff(t *testing.T) {
	b := newWorkbench(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, problem := b.c.Pull(ctx, accel.Source{Image: listener.Addr().String() + "/edu"}, this(), b.empty())
	if problem == nil || problem.Reason != accel.RegistryUnreachable || time.Since(began) > 5*time.Second {
		t.Error(problem, time.Since(began))
	}
}
