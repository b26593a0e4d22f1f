package main

import (
	"bytes"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/google/go-containerregistry/pkg/name"
)

// programsIn creates a directory with tiny static programs in place of the agent's.
func compiled(t *testing.T) string {
	t.Helper()
	src, dir := t.TempDir(), t.TempDir()
	main := filepath.Join(src, "main.go")
	if err := os.WriteFile(main, []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range append(programs(Options{}), programs(Options{Controller: true})...) {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, p), main)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return dir
}

func TestLayout(t *testing.T) {
	bin, out := compiled(t), filepath.Join(t.TempDir(), "dist", "image")
	var stdout bytes.Buffer
	for range 2 { // the second time replaces the first
		stdout.Reset()
		if err := run([]string{"-bin", bin, "-out", out, "-version", "v1", "-revision", "abc"}, &stdout); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("the layout is not valid: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("index %+v, %v", manifest, err)
	}
	d := manifest.Manifests[0]
	if p := d.Platform.String(); p != "linux/amd64" || d.Annotations["org.opencontainers.image.ref.name"] != "dev" {
		t.Errorf("descriptor %+v", d)
	}
	img, err := index.Image(d.Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/acceld", "run", "--host-root", "/host"}, config.Config.Entrypoint); diff != "" {
		t.Error(diff)
	}
	if config.Config.Labels["org.opencontainers.image.version"] != "v1" || len(config.History) != 4 ||
		config.RootFS.DiffIDs == nil {
		t.Errorf("config %+v", config)
	}
	if !strings.Contains(stdout.String(), d.Digest.String()) {
		t.Errorf("printed %q", stdout.String())
	}
}

// The program that loads a library of the host runs among the host's files, so it need not be static. The image may
// lack it.
func TestLibraryProgram(t *testing.T) {
	bin := compiled(t)
	for want, change := range map[int]func() error{
		4: func() error {
			data, err := os.ReadFile("/bin/sh")
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(bin, library), data, 0o755)
		},
		3: func() error { return os.Remove(filepath.Join(bin, library)) },
	} {
		if err := change(); err != nil && want != 3 {
			t.Fatal(err)
		}
		img, err := New(bin, Options{Name: "acceld:dev"})
		if err != nil {
			t.Fatal(err)
		}
		if layers, err := img.Layers(); err != nil || len(layers) != want {
			t.Errorf("%d layers, want %d (%v)", len(layers), want, err)
		}
	}
}

// The controller's image has only its program, and starts it.
func TestController(t *testing.T) {
	img, err := New(compiled(t), Options{Name: "acceld-controller:dev", Controller: true})
	if err != nil {
		t.Fatal(err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if len(file.RootFS.DiffIDs) != 1 || len(file.Config.Entrypoint) != 1 ||
		file.Config.Entrypoint[0] != "/acceld-controller" {
		t.Errorf("%+v", file)
	}
}

// The same programs give the same archive, byte for byte.
func TestReproducible(t *testing.T) {
	bin := compiled(t)
	var before []byte
	for _, file := range []string{"a.tar", "b.tar"} {
		file = filepath.Join(t.TempDir(), file)
		if err := run([]string{"-bin", bin, "-out", file}, &bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if before != nil && !bytes.Equal(before, got) {
			t.Error("the archives differ")
		}
		before = got
	}
}

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New())
	t.Cleanup(server.Close)
	ref := strings.TrimPrefix(server.URL, "http://") + "/acceld:v1"
	if err := run([]string{"-bin", compiled(t), "-push", ref, "-insecure"}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	tag, err := name.ParseReference(ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	bin := compiled(t)
	spoilt := func(do func(dir string) error) string {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(bin)); err != nil {
			t.Fatal(err)
		}
		if err := do(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "precious"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "image")
	for want, args := range map[string][]string{
		"either -out or -push":      {"-bin", bin},
		"-compression 10":           {"-bin", bin, "-out", "x", "-compression", "10"},
		"not on a loopback address": {"-bin", bin, "-push", "registry.example.com/acceld:v1", "-insecure"},
		"it is not an OCI layout":   {"-bin", bin, "-out", full},
		"cannot read program": {"-bin", spoilt(func(dir string) error {
			return os.Remove(filepath.Join(dir, "acceld"))
		}), "-out", out},
		"bad magic number": {"-bin", spoilt(func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "acceld"), []byte("#!/bin/sh\nexit 0\n"), 0o755)
		}), "-out", out},
		"it is not static":               {"-bin", spoilt(dynamic), "-out", out},
		"its budget is":                  {"-bin", spoilt(huge), "-out", out},
		"could not parse reference":      {"-bin", bin, "-push", "a b"},
		"cannot use name \"no/tag:a b\"": {"-bin", bin, "-out", out, "-name", "no/tag:a b"},
	} {
		if err := run(args, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("image %q: %v; want %q", args, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(full, "precious")); err != nil {
		t.Error(err)
	}
}

// dynamic replaces the agent by the shell of this machine.
func dynamic(dir string) error {
	data, err := os.ReadFile("/bin/sh")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "acceld"), data, 0o755)
}

// huge appends incompressible data to the agent.
func huge(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "acceld"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	noise := make([]byte, 1<<20)
	state := uint32(1)
	for range maxSize/len(noise) + 1 {
		for i := range noise {
			state ^= state << 13
			state ^= state >> 17
			state ^= state << 5
			noise[i] = byte(state)
		}
		if _, err := f.Write(noise); err != nil {
			return err
		}
	}
	return f.Close()
}
