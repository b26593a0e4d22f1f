package artifact

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/transfer"
)

// lying is a registry that answers requests for some manifests with arbitrary content.
type lying struct {
	http.Handler
	answers map[string]answer
}

type answer struct {
	raw    []byte
	kind   types.MediaType
	digest string // the digest that it claims
}

func (l *lying) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, ref, _ := strings.Cut(r.URL.Path, "/manifests/")
	a, ok := l.answers[ref]
	if !ok {
		l.Handler.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", string(a.kind))
	w.Header().Set("Docker-Content-Digest", a.digest)
	w.Header().Set("Content-Length", fmt.Sprint(len(a.raw)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(a.raw)
	}
}

// kernelModules makes an image in a foreign layout with one module, and that many bytes of annotations.
func kernelModules(t *testing.T, text string, annotations int) assembled {
	t.Helper()
	layer, err := io.ReadAll(packed(t, entry{"opt/lib/modules/6.1.0-9-amd64/edu.ko", text}))
	if err != nil {
		t.Fatal(err)
	}
	m := v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Annotations: map[string]string{"x": strings.Repeat("x", annotations)},
	}
	a, err := assemble(m, memoryBlob(types.OCIConfigJSON, []byte("{}")), memoryBlob(types.OCIUncompressedLayer, layer))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestPinned: a digest pins the content, whatever the registry says about it; an invalid digest is refused.
func TestPinned(t *testing.T) {
	wanted, other := kernelModules(t, "the module", 0), kernelModules(t, "of a stranger", 0)
	sha256, sha512 := wanted.manifest.digest.String(), "sha512:"+strings.Repeat("0", 128)
	stranger := func(kind types.MediaType, says string) answer { return answer{other.manifest.raw, kind, says} }
	index := func(digest string) answer {
		raw, _ := json.Marshal(map[string]any{
			"schemaVersion": 2,
			"manifests":     []any{map[string]any{"mediaType": types.OCIManifestSchema1, "digest": digest, "size": 1}},
		})
		return answer{raw, types.OCIImageIndex, newManifest(raw, "").digest.String()}
	}
	good, bad := index(sha256), index(sha512)
	for name, c := range map[string]struct {
		pin     string
		answers map[string]answer
		want    accel.Reason
	}{
		"as it is":    {pin: sha256},
		"by an index": {pin: good.digest, answers: map[string]answer{good.digest: good}},
		"another manifest": {
			sha256,
			map[string]answer{sha256: stranger(types.OCIManifestSchema1, sha256)},
			accel.DigestMismatch,
		},
		"an old manifest": {
			sha256,
			map[string]answer{sha256: stranger(types.DockerManifestSchema1Signed, sha256)},
			accel.DigestMismatch,
		},
		"another in index": {good.digest, map[string]answer{
			good.digest: good,
			sha256:      stranger(types.OCIManifestSchema1, sha256),
		}, accel.DigestMismatch},
		"an unchecked hash": {sha512, map[string]answer{sha512: stranger(types.OCIManifestSchema1,
			other.manifest.digest.String())}, accel.ConfigInvalid},
		"an unchecked hash in the index": {
			bad.digest, map[string]answer{bad.digest: bad, sha512: stranger(types.OCIManifestSchema1,
				other.manifest.digest.String())}, accel.ArtifactInvalid,
		},
		"half a hash": {sha256[:40], map[string]answer{sha256[:40]: stranger(types.OCIManifestSchema1,
			other.manifest.digest.String())}, accel.ConfigInvalid},
		"no hash": {"latest", map[string]answer{"latest": stranger(types.OCIManifestSchema1,
			other.manifest.digest.String())}, accel.ConfigInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			b := newWorkbench(t)
			s := accel.Source{Image: serve(t, &lying{newRegistry(), c.answers}) + "/edu"}
			b.upload(s, wanted, "wanted")
			b.upload(s, other, "other")
			s.Digest = c.pin
			dir := b.empty()
			_, problem := b.c.Pull(t.Context(), s, this(), dir)
			if c.want == "" && (problem != nil || b.read(dir+"/edu.ko") != "the module") {
				t.Error(problem)
			}
			if c.want != "" && (problem == nil || problem.Reason != c.want) {
				t.Errorf("%v, want %s", problem, c.want)
			}
		})
	}
}

// TestLargeManifest: a manifest above the limit is not parsed.
func TestLargeManifest(t *testing.T) {
	for size, want := range map[int]accel.Reason{100: "", 5000: accel.ArtifactInvalid} {
		b := newWorkbench(t)
		b.c.o.Limits.Manifest = 2000
		s := accel.Source{Image: serve(t, newRegistry()) + "/edu:x"}
		b.upload(accel.Source{Image: strings.TrimSuffix(s.Image, ":x")}, kernelModules(t, "the module", size), "x")
		_, problem := b.c.Pull(t.Context(), s, this(), b.empty())
		if want == "" && problem != nil || want != "" && (problem == nil || problem.Reason != want) {
			t.Errorf("with %d bytes of annotations: %v", size, problem)
		}
	}
}

// halting sends some bytes of a response and then stalls without ending it.
type halting struct {
	http.ResponseWriter
	left int
	gone <-chan struct{} // closed when the client is gone
}

func (h *halting) Write(p []byte) (int, error) {
	n, err := h.ResponseWriter.Write(p[:min(len(p), h.left)])
	h.ResponseWriter.(http.Flusher).Flush()
	if h.left -= n; h.left == 0 {
		<-h.gone
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// TestStandstill: a stalled transfer is aborted long before the overall timeout, wherever it stalled.
func TestStandstill(t *testing.T) {
	for bytes, want := range map[int]string{0: "nothing came for 50ms", 10: "only 10 bytes came in 50ms"} {
		b := newWorkbench(t)
		b.c.o.Stall, b.c.o.Timeout = 50*time.Millisecond, 3*time.Second
		m := &meddling{Handler: newRegistry()}
		s := accel.Source{Image: serve(t, m) + "/edu"}
		b.push(s, PushOptions{})
		halt := func(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
			return &halting{ResponseWriter: w, left: bytes, gone: r.Context().Done()}
		}
		m.with.Store(&halt)
		_, problem := b.c.Pull(t.Context(), s, this(), b.empty())
		if problem == nil || problem.Reason != accel.RegistryUnreachable ||
			!strings.Contains(problem.Message, want) {
			t.Errorf("after %d bytes: %v", bytes, problem)
		}
	}
}

// TestAskedAgain: a registry is retried if that may help, but not if its answer will stay the same.
func TestAskedAgain(t *testing.T) {
	for status, want := range map[int]int32{
		http.StatusBadRequest:          1,
		http.StatusForbidden:           1,
		http.StatusNotFound:            1,
		http.StatusRequestTimeout:      transfer.Attempts,
		http.StatusTooManyRequests:     transfer.Attempts,
		http.StatusInternalServerError: transfer.Attempts,
		http.StatusServiceUnavailable:  transfer.Attempts,
	} {
		b := newWorkbench(t)
		var asked atomic.Int32
		s := accel.Source{Image: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/manifests/") {
				asked.Add(1)
				w.WriteHeader(status)
			}
		})) + "/edu:x"}
		if _, problem := b.c.Pull(t.Context(), s, this(), b.empty()); problem == nil || asked.Load() != want {
			t.Errorf("%d: asked %d times, want %d (%v)", status, asked.Load(), want, problem)
		}
	}
}
