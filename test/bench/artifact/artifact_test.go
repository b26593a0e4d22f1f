// Package bench measures what a prebuilt driver costs beside a plain download of the same bytes: the same registry, the
// same disk, and no check but one digest.
package bench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/trust"
	"github.com/acceld/acceld/host"
)

// size is that of the largest known driver, stripped.
const size = 25 << 20

// rounds is how often each contender runs; they take turns.
const rounds = 11

func TestPullAgainstDownload(t *testing.T) {
	if os.Getenv("ACCELD_BENCH") != "1" {
		t.Skip("ACCELD_BENCH=1 is not set")
	}
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0))))
	defer server.Close()
	root := t.TempDir()
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(root, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	module := make([]byte, size) // half of it does not compress, as code
	_, _ = rand.Read(module[:size/2])
	write("big.ko", module)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := x509.MarshalPKCS8PrivateKey(private)
	public, _ := x509.MarshalPKIXPublicKey(private.Public())
	write("key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	write("key.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	key, problem := trust.ReadKey(h, "/key")
	if problem != nil {
		t.Fatal(problem)
	}
	digest := sha256.Sum256(module)
	c := artifact.New(h, artifact.Options{})
	s := accel.Source{Type: accel.SourceOCI, Image: strings.TrimPrefix(server.URL, "http://") + "/big:1"}
	w := artifact.Wanted{Kind: "a-b", Arch: "x86_64", KernelRelease: "6.1.0"}
	content := artifact.Content{
		Config: artifact.Config{
			Profile: "a-b", Arch: "x86_64", KernelRelease: "6.1.0",
			Modules: []artifact.Module{{Name: "big", File: "big.ko", SHA256: hex.EncodeToString(digest[:])}},
		},
		Paths: map[string]string{"big.ko": "/big.ko"},
	}
	if _, problem := c.Push(t.Context(), s, w, content, "/", artifact.PushOptions{Key: key}); problem != nil {
		t.Fatal(problem)
	}
	s.Keys = []string{"/key.pub"}
	blob := layer(t, server.URL)
	var pulls, downloads []time.Duration
	for range rounds {
		dir, err := h.MakeTemp("/", "x")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, problem := c.Pull(t.Context(), s, w, dir); problem != nil {
			t.Fatal(problem)
		}
		pulls = append(pulls, time.Since(began))
		began = time.Now()
		download(t, server.URL+"/v2/big/blobs/"+blob, filepath.Join(root, dir, "plain"), blob)
		downloads = append(downloads, time.Since(began))
		if err := h.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(pulls)
	slices.Sort(downloads)
	pull, plain := pulls[rounds/2], downloads[rounds/2]
	t.Logf(
		"a driver of %d MiB, median of %d: pulled, verified, unpacked %v; downloaded packed, with one digest %v; ratio %.2f",
		size>>20, rounds, pull, plain, float64(pull)/float64(plain))
}

// layer returns the digest of the artifact's layer.
func layer(t *testing.T, server string) string {
	t.Helper()
	answer, err := http.Get(server + "/v2/big/manifests/1")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var m struct{ Layers []struct{ Digest string } }
	if err := json.NewDecoder(answer.Body).Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m.Layers[0].Digest
}

// download fetches to a file and compares its digest, as curl and sha256sum do.
func download(t *testing.T, from, to, digest string) {
	t.Helper()
	answer, err := http.Get(from)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	f, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, sum), answer.Body); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != digest {
		t.Fatalf("got %s, want %s", got, digest)
	}
}
