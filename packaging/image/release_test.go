package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// foreign creates programs for another processor.
func foreign(t *testing.T) string {
	t.Helper()
	src, dir := t.TempDir(), t.TempDir()
	main := filepath.Join(src, "main.go")
	if err := os.WriteFile(main, []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range append(programs(Options{}), programs(Options{Controller: true})...) {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o",
			filepath.Join(dir, p), main)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=arm64", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return dir
}

// A registry and a layout hold an index with an image for each processor, and the list of each image. Building twice
// gives the same bytes.
func TestSeveralProcessors(t *testing.T) {
	amd, arm := compiled(t), foreign(t)
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true)))
	t.Cleanup(server.Close)
	ref := strings.TrimPrefix(server.URL, "http://") + "/acceld:v1"
	var printed bytes.Buffer
	if err := run([]string{"-bin", amd, "-bin", arm, "-sbom", "-version", "v1", "-push", ref, "-insecure"},
		&printed); err != nil {
		t.Fatal(err)
	}
	tag, err := name.ParseReference(ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	digest, err := index.Digest()
	if err != nil || !strings.Contains(printed.String(), digest.String()) {
		t.Errorf("printed %q, %v", printed.String(), err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		referrers, err := remote.Referrers(tag.Context().Digest(m.Digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		lists, err := referrers.IndexManifest()
		if err != nil || len(lists.Manifests) != 1 || lists.Manifests[0].ArtifactType != string(listType) {
			t.Fatalf("%s has lists %+v, %v", m.Platform, lists, err)
		}
		list, err := remote.Image(tag.Context().Digest(lists.Manifests[0].Digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		holds(t, list, m.Digest)
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, platforms); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
	out := filepath.Join(t.TempDir(), "layout")
	for range 2 {
		if err := run([]string{"-bin", amd, "-bin", arm, "-sbom", "-version", "v1", "-out", out},
			io.Discard); err != nil {
			t.Fatal(err)
		}
		l, err := layout.ImageIndexFromPath(out)
		if err != nil {
			t.Fatal(err)
		}
		top, err := l.IndexManifest()
		if err != nil || len(top.Manifests) != 3 || top.Manifests[0].Digest != digest {
			t.Errorf("the layout has %+v, want %s and two lists; %v", top, digest, err)
		}
	}
}

// A machine without a C compiler builds no program that loads a library. The image and its list then lack it.
func TestListWithoutLibrary(t *testing.T) {
	bin := compiled(t)
	if err := os.Remove(filepath.Join(bin, library)); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "layout")
	if err := run([]string{"-bin", bin, "-sbom", "-version", "v1", "-out", out}, io.Discard); err != nil {
		t.Fatal(err)
	}
	l, err := layout.ImageIndexFromPath(out)
	if err != nil {
		t.Fatal(err)
	}
	if top, err := l.IndexManifest(); err != nil || len(top.Manifests) != 2 {
		t.Errorf("the layout has %+v, want an image and its list; %v", top, err)
	}
}

// holds checks a list: it names its image and what is in it.
func holds(t *testing.T, list v1.Image, of v1.Hash) {
	t.Helper()
	m, err := list.Manifest()
	if err != nil || m.Subject == nil || m.Subject.Digest != of {
		t.Fatalf("subject %+v, %v; want %s", m.Subject, err, of)
	}
	layers, err := list.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var d document
	if err := json.NewDecoder(r).Decode(&d); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range d.Packages {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff([]string{library, "stdlib", prover, "acceld-hook", "acceld"}, names); diff != "" {
		t.Errorf("it lists (-want +got):\n%s", diff)
	}
	if !strings.Contains(d.Namespace, of.Hex) || len(d.Relationships) != 8 {
		t.Errorf("%+v", d)
	}
}

// The list of a real program has every module that the Go tool reports, each once, with its package URL.
func TestBillOfARealProgram(t *testing.T) {
	self, err := os.Executable() // this test, which is linked with modules
	if err != nil {
		t.Fatal(err)
	}
	text, err := Bill([]string{self, self}, "sha256:0", Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", self).Output()
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, p := range d.Packages {
		if p.Purpose == "LIBRARY" && ids[p.ID] {
			t.Errorf("%s is there twice", p.ID)
		}
		ids[p.ID] = true
	}
	modules := 0
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "dep" {
			continue
		}
		modules++
		if !slices.ContainsFunc(d.Packages, func(c component) bool {
			return c.Name == f[1] && c.Version == f[2] && strings.HasPrefix(c.Refs[0].Locator,
				"pkg:golang/"+strings.ToLower(f[1])+"@")
		}) {
			t.Errorf("it lacks %s %s", f[1], f[2])
		}
	}
	if modules < 3 {
		t.Errorf("the test has %d modules, which shows nothing", modules)
	}
	again, err := Bill([]string{self, self}, "sha256:0", Options{Name: "test"})
	if err != nil || !bytes.Equal(text, again) {
		t.Errorf("another time it is another one, %v", err)
	}
}

func TestSameProcessorTwice(t *testing.T) {
	a, b := compiled(t), compiled(t)
	err := run([]string{"-bin", a, "-bin", b, "-out", filepath.Join(t.TempDir(), "x")}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "are for amd64 too") {
		t.Error(err)
	}
}
