package toolchain

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/artifact"
	"github.com/acceld/acceld/driver/lock"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/host"
)

// yard is a host in a directory, with a registry.
type yard struct {
	t      *testing.T
	h      *host.Host
	root   string
	o      Options
	server *httptest.Server
	pulls  []accel.Progress
}

func newYard(t *testing.T) *yard {
	t.Helper()
	y := &yard{t: t, root: t.TempDir()}
	y.server = httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0))))
	t.Cleanup(y.server.Close)
	h, err := host.New(y.root)
	if err != nil {
		t.Fatal(err)
	}
	y.h = h
	for _, dir := range []string{"lib/modules/6.1.0", "lib/modules/6.2.0", "state"} {
		if err := os.MkdirAll(filepath.Join(y.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tell := func(p accel.Progress) { y.pulls = append(y.pulls, p) }
	log := slog.New(slog.DiscardHandler)
	s := store.New(h, store.Options{
		StateDir: "/state", Log: log, Locks: lock.Locks{Host: h, Tell: tell, Timeout: time.Second}, Now: time.Now,
		Wait: time.Second, Point: func(string) {},
	})
	y.o = Options{
		Log: log, Store: s, Tell: tell, StateDir: "/state", Spare: true,
		Artifact: artifact.Options{Backoff: time.Millisecond, Timeout: 5 * time.Second},
	}
	return y
}

func (y *yard) images() *Images { return New(y.h, y.o) }

// push puts an image under a tag, whose only file has this text.
func (y *yard) push(tag, text string) v1.Hash {
	y.t.Helper()
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/make", Mode: 0o755, Size: int64(len(text))})
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err == nil {
		err = w.Close()
	}
	var layer v1.Layer
	if err == nil {
		layer, err = tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(content.Bytes())), nil
		})
	}
	var img v1.Image
	if err == nil {
		img, err = mutate.ConfigFile(empty.Image, &v1.ConfigFile{Architecture: "amd64", OS: "linux"})
	}
	if err == nil {
		img, err = mutate.AppendLayers(img, layer)
	}
	var ref name.Reference
	if err == nil {
		ref, err = name.ParseReference(y.name(tag), name.Insecure)
	}
	if err == nil {
		err = remote.Write(ref, img)
	}
	if err != nil {
		y.t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		y.t.Fatal(err)
	}
	return digest
}

func (y *yard) name(tag string) string {
	return strings.TrimPrefix(y.server.URL, "http://") + "/builder:" + tag
}

// named is a definition of a kind whose builds have these images.
func named(kind string, images ...string) *accel.Definition {
	def := &accel.Definition{Kind: kind}
	for _, i := range images {
		def.Driver.Sources = append(def.Driver.Sources, accel.Source{Type: accel.SourceBuild, Path: "/src", Image: i})
	}
	return def
}

func facts(release string) accel.Facts {
	return accel.Facts{Kernel: accel.Kernel{Release: release, Arch: "x86_64"}}
}

// use finds and opens the image of a definition's only source, in a workspace that lasts until done.
func (y *yard) use(def *accel.Definition, release string) (i Image, done func(), problem *accel.Problem) {
	y.t.Helper()
	x, s := y.images(), def.Driver.Sources[0]
	i, problem = x.Find(y.t.Context(), def, facts(release), s)
	if problem != nil {
		return i, nil, problem
	}
	w, done, problem := y.o.Store.Workspace("")
	if problem != nil {
		y.t.Fatal(problem)
	}
	dir, problem := x.Open(y.t.Context(), def, facts(release), s, i, w)
	if problem == nil {
		if st, err := y.h.Stat(dir + "/usr/bin/make"); err != nil || st.Mode().Perm() != 0o755 {
			y.t.Errorf("%s has no make: %v", dir, err)
		}
	}
	return i, done, problem
}

// must is use of what is there.
func (y *yard) must(def *accel.Definition, release string) (Image, func()) {
	y.t.Helper()
	i, done, problem := y.use(def, release)
	if problem != nil {
		y.t.Fatal(problem)
	}
	return i, done
}

// here lists the images that are on the host, by digest.
func (y *yard) here() []string {
	var out []string
	for _, dir := range y.h.Glob("/state/builders", "*") {
		if base := filepath.Base(dir); len(base) == 64 {
			out = append(out, "sha256:"+base)
		}
	}
	return out
}

// lose removes something of the host.
func (y *yard) lose(name string) {
	if err := os.RemoveAll(filepath.Join(y.root, name)); err != nil {
		y.t.Fatal(err)
	}
}

// TestTagMoves: a tag is what the registry says now, and what it meant last when there is none. Another image does not
// replace the one of a build that runs.
func TestTagMoves(t *testing.T) {
	y := newYard(t)
	first := y.push("gcc12", "one").String()
	def := named("a-b", y.name("gcc12"))
	i, done := y.must(def, "6.1.0")
	if i.Digest != first || i.Note != "" || !slices.Equal(y.here(), []string{first}) {
		t.Errorf("%+v, here are %v", i, y.here())
	}
	last := y.pulls[len(y.pulls)-1]
	if last.Stage != accel.StagePull || last.Kind != "a-b" || !last.Ended || last.Done != last.Total || last.Total == 0 {
		t.Errorf("progress ended with %+v", last)
	}
	pulled := len(y.pulls)
	if _, again := y.must(def, "6.1.0"); len(y.pulls) != pulled {
		t.Errorf("it was pulled again: %+v", y.pulls[pulled:])
	} else {
		again()
	}
	second := y.push("gcc12", "two").String()
	i, done2 := y.must(def, "6.1.0")
	if i.Digest != second || len(y.here()) != 2 {
		t.Errorf("%+v, here are %v", i, y.here())
	}
	y.o.Spare = false
	y.images().Collect(t.Context(), def, facts("6.1.0"))
	if len(y.here()) != 2 {
		t.Errorf("here are %v: an image was removed under a build", y.here())
	}
	done()
	done2()
	y.images().Collect(t.Context(), def, facts("6.1.0"))
	if diff := cmp.Diff([]string{second}, y.here()); diff != "" {
		t.Error(diff)
	}
	y.server.Close()
	i, done = y.must(def, "6.1.0")
	done()
	if i.Digest != second || !strings.Contains(i.Note, "is the one that was used before, "+second) ||
		!strings.Contains(i.Note, "cannot ask the registry") {
		t.Errorf("without a registry: %+v", i)
	}
	if _, _, problem := y.use(named("a-b", y.name("gcc13")), "6.1.0"); problem == nil ||
		problem.Reason != accel.RegistryUnreachable || !strings.Contains(problem.Message, "builder image") {
		t.Errorf("what was never here: %v", problem)
	}
}

// TestPinned: an image that is here by its digest, or by that of an index, needs no registry. Nothing else is taken for
// it.
func TestPinned(t *testing.T) {
	y := newYard(t)
	digest := y.push("gcc12", "one").String()
	y.push("other", "two")
	def := named("a-b", y.name("any")+"@"+digest)
	i, done := y.must(def, "6.1.0")
	done()
	apart := named("a-b", y.name("any"))
	apart.Driver.Sources[0].Digest = digest
	y.server.Close()
	for _, def := range []*accel.Definition{def, apart} {
		again, done := y.must(def, "6.1.0")
		done()
		if again.Digest != i.Digest || again.Note != "" || again.Name != i.Name {
			t.Errorf("%+v, then %+v", i, again)
		}
	}
	other := named("a-b", y.name("any")+"@sha256:"+strings.Repeat("0", 64))
	if _, _, problem := y.use(other, "6.1.0"); problem == nil || problem.Reason != accel.RegistryUnreachable {
		t.Error(problem)
	}
}

// TestLastIsTrusted: an image that is here is not used without the signature that is demanded now.
func TestLastIsTrusted(t *testing.T) {
	y := newYard(t)
	y.push("gcc12", "one")
	def := named("a-b", y.name("gcc12"))
	_, done := y.must(def, "6.1.0")
	done()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err == nil {
		err = os.WriteFile(filepath.Join(y.root, "key.pub"), pem.EncodeToMemory(&pem.Block{
			Type: "PUBLIC KEY", Bytes: der,
		}), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	signed := named("a-b", y.name("gcc12"))
	signed.Driver.Sources[0].Keys = []string{"/key.pub"}
	if _, _, problem := y.use(signed, "6.1.0"); problem == nil || problem.Reason != accel.SignatureInvalid {
		t.Errorf("with a key: %v", problem)
	}
	y.server.Close()
	if _, _, problem := y.use(signed, "6.1.0"); problem == nil || problem.Reason != accel.RegistryUnreachable {
		t.Errorf("with a key, without a registry: %v", problem)
	}
	y.o.Trust = accel.Trust{Keys: []string{"/key.pub"}, Require: true}
	if _, _, problem := y.use(def, "6.1.0"); problem == nil || problem.Reason != accel.RegistryUnreachable {
		t.Errorf("where signatures are required, without a registry: %v", problem)
	}
}

// TestCollect: what some kind builds with stays, also for another kernel that is installed, and one more.
func TestCollect(t *testing.T) {
	for title, c := range map[string]struct {
		change func(*yard)
		want   []string // tags
	}{
		"all are named":          {func(*yard) {}, []string{"a", "b", "c"}},
		"nothing is spared":      {func(y *yard) { y.o.Spare = false }, []string{"a", "b", "c"}},
		"another kernel is gone": {func(y *yard) { y.lose("lib/modules/6.2.0"); y.o.Spare = false }, []string{"a", "b"}},
		"its image is the spare": {func(y *yard) { y.lose("lib/modules/6.2.0") }, []string{"a", "b", "c"}},
		"the spare is too large": {func(y *yard) { y.lose("lib/modules/6.2.0"); y.o.MiB = 1 }, []string{"a", "b"}},
		"the record is lost":     {func(y *yard) { y.lose("state/builders/uses.json"); y.o.Spare = false }, nil},
	} {
		t.Run(title, func(t *testing.T) {
			y := newYard(t)
			digests := map[string]string{}
			for tag, text := range map[string]string{"a": "a", "b": "b", "c": strings.Repeat("c", 2<<20)} {
				digests[y.push(tag, text).String()] = tag
			}
			for i, def := range []*accel.Definition{named("a-a", y.name("a")), named("b-b", y.name("b")), named("a-a", y.name("c"))} {
				_, done := y.must(def, []string{"6.1.0", "6.1.0", "6.2.0"}[i])
				done()
			}
			c.change(y)
			y.images().Collect(t.Context(), named("a-a", y.name("a")), facts("6.1.0"))
			var got []string
			for _, d := range y.here() {
				got = append(got, digests[d])
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if left, err := os.ReadDir(y.root + "/state/build"); err != nil || len(left) > 0 {
				t.Errorf("left are %v (%v)", left, err)
			}
		})
	}
}

// TestForgets: a source that names another image, and no image at all.
func TestForgets(t *testing.T) {
	y := newYard(t)
	y.o.Spare = false
	y.push("a", "a")
	_, done := y.must(named("a-a", y.name("a")), "6.1.0")
	done()
	y.images().Collect(t.Context(), named("b-b"), facts("6.1.0"))
	if len(y.here()) != 1 {
		t.Error("another kind removed the image")
	}
	y.images().Collect(t.Context(), named("a-a"), facts("6.1.0"))
	if len(y.here()) != 0 || len(y.images().uses()) != 0 {
		t.Errorf("here are %v, in use %v", y.here(), y.images().uses())
	}
}
