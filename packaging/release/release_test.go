package main

import (
	"archive/zip"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	helmregistry "helm.sh/helm/v3/pkg/registry"
	"sigs.k8s.io/yaml"
)

const version = "0.0.0-20260304050607-abcdef012345"

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// save writes a file, with its directory, and returns its path.
func save(t *testing.T, path, text string) string {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o755))
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

// newKey writes a key in PEM and returns its path.
func newKey(t *testing.T) (path string, key *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return save(t, filepath.Join(t.TempDir(), "key.pem"), string(text)), key
}

// made makes a release with a package that was there before, and returns its directory.
func made(t *testing.T, more ...string) string {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", "1772600767")
	dir := t.TempDir()
	tree, out := filepath.Join(dir, runtime.GOARCH), filepath.Join(dir, "out")
	save(t, filepath.Join(tree, "usr/bin/acceld"), "#!/bin/sh\necho a program\n")
	save(t, filepath.Join(tree, "usr/lib/systemd/system/acceld.service"), "[Unit]\n")
	save(t, filepath.Join(out, "acceld_"+version+"_"+runtime.GOARCH+".deb"), "a package")
	plugin := filepath.Join(dir, "darwin-arm64")
	save(t, filepath.Join(plugin, pluginName), "a plugin")
	args := append([]string{"-tree", tree, "-plugin", plugin, "-out", out, "-version", version, "-revision", "abcdef"}, more...)
	var said bytes.Buffer
	if err := run(args, &said); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "SHA256SUMS") {
		t.Errorf("it said %q", said.String())
	}
	return out
}

// TestRelease: everything that is there is in the checksums and in the provenance, the chart has the version, and the
// signature is of the checksums.
func TestRelease(t *testing.T) {
	path, key := newKey(t)
	out := made(t, "-key", path, "-url", "https://example.com/v1/")
	sums := string(read(t, filepath.Join(out, sumsFile)))
	var listed []string
	for line := range strings.Lines(sums) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if got, err := sumOf(filepath.Join(out, name)); err != nil || got != sum {
			t.Errorf("%s: %s, %v; want %s", name, got, err, sum)
		}
		listed = append(listed, name)
	}
	want := []string{
		"acceld-" + version + "-linux-" + runtime.GOARCH + ".tar.gz", "acceld-chart-" + version + ".tgz",
		"acceld_" + version + "_" + runtime.GOARCH + ".deb", scriptFile,
		pluginName + "-" + version + "-darwin-arm64.tar.gz", krewFile, provenanceFile,
	}
	if !slices.Equal(listed, want) {
		t.Errorf("checksums of %q, want %q", listed, want)
	}
	text := strings.TrimSpace(string(read(t, filepath.Join(out, signatureFile))))
	signature, err := base64.StdEncoding.DecodeString(text)
	digest := sha256.Sum256([]byte(sums))
	if err != nil || !ecdsa.VerifyASN1(&key.PublicKey, digest[:], signature) {
		t.Errorf("signature: %v", err)
	}
	var statement struct {
		Subject   []artifact
		Predicate struct {
			BuildDefinition struct{ ResolvedDependencies []artifact }
		}
	}
	must(t, json.Unmarshal(read(t, filepath.Join(out, provenanceFile)), &statement))
	if n := len(statement.Subject); n != len(want)-1 {
		t.Errorf("provenance of %d files, want %d", n, len(want)-1)
	}
	if d := statement.Predicate.BuildDefinition.ResolvedDependencies; len(d) != 1 || d[0].Digest["gitCommit"] != "abcdef" {
		t.Errorf("made from %+v", d)
	}
	script := string(read(t, filepath.Join(out, scriptFile)))
	for _, part := range []string{"version='" + version + "'", "url='https://example.com/v1'", "BEGIN PUBLIC KEY"} {
		if !strings.Contains(script, part) {
			t.Errorf("the script lacks %q", part)
		}
	}
}

// TestChart: the packed chart renders as it is, and its images have the version of the release.
func TestChart(t *testing.T) {
	out := made(t)
	c, err := loader.LoadFile(filepath.Join(out, "acceld-chart-"+version+".tgz"))
	must(t, err)
	if c.Metadata.Version != version || c.Metadata.AppVersion != version || c.Metadata.KubeVersion == "" {
		t.Errorf("%+v", c.Metadata)
	}
	rendered := render(t, c)
	for _, image := range []string{"acceld:" + version, "acceld-controller:" + version} {
		if !strings.Contains(rendered, "registry.example.com/"+image) {
			t.Errorf("no object has the image %s", image)
		}
	}
}

// TestPlugin: kubectl's plugin is packed for each system in a form that the system unpacks, and Krew's manifest says
// where the packages are and what they must be.
func TestPlugin(t *testing.T) {
	windows := filepath.Join(t.TempDir(), "windows-amd64")
	save(t, filepath.Join(windows, pluginName+".exe"), "a plugin for Windows")
	out := made(t, "-plugin", windows, "-url", "https://example.com/v1/")
	z, err := zip.OpenReader(filepath.Join(out, pluginName+"-"+version+"-windows-amd64.zip"))
	must(t, err)
	defer z.Close()
	text, err := fs.ReadFile(z, pluginName+".exe")
	if err != nil || string(text) != "a plugin for Windows" {
		t.Errorf("%q, %v", text, err)
	}
	var krew struct {
		Spec struct {
			Version   string
			Platforms []platform
		}
	}
	must(t, yaml.Unmarshal(read(t, filepath.Join(out, krewFile)), &krew))
	if krew.Spec.Version != "v"+version || len(krew.Spec.Platforms) != 2 {
		t.Fatalf("%+v", krew)
	}
	for i, want := range []struct{ system, arch, file, bin string }{
		{"darwin", "arm64", pluginName + "-" + version + "-darwin-arm64.tar.gz", pluginName},
		{"windows", "amd64", pluginName + "-" + version + "-windows-amd64.zip", pluginName + ".exe"},
	} {
		p := krew.Spec.Platforms[i]
		sum, err := sumOf(filepath.Join(out, want.file))
		must(t, err)
		if p.Selector.MatchLabels["os"] != want.system || p.Selector.MatchLabels["arch"] != want.arch || p.Bin != want.bin ||
			p.SHA256 != sum || p.URI != "https://example.com/v1/"+want.file {
			t.Errorf("%+v, want %+v with %s", p, want, sum)
		}
	}
}

func render(t *testing.T, c *chart.Chart) string {
	t.Helper()
	values, err := chartutil.ToRenderValues(c, map[string]any{"registry": "registry.example.com"},
		chartutil.ReleaseOptions{Name: "acceld", Namespace: "acceld-system", IsInstall: true}, chartutil.DefaultCapabilities)
	must(t, err)
	files, err := engine.Render(c, values)
	must(t, err)
	var all strings.Builder
	for _, text := range files {
		all.WriteString(text)
	}
	return all.String()
}

// TestReproducible: the same programs give the same bytes; the signature is left out.
func TestReproducible(t *testing.T) {
	a, b := read(t, filepath.Join(made(t), sumsFile)), read(t, filepath.Join(made(t), sumsFile))
	if !bytes.Equal(a, b) {
		t.Errorf("%s\n%s", a, b)
	}
}

// TestAgain: a release that is made once more has the checksums of now.
func TestAgain(t *testing.T) {
	out := made(t)
	before := read(t, filepath.Join(out, sumsFile))
	o := Options{Out: out, Version: version, Revision: "abcdef", Source: "https://github.com/acceld/acceld"}
	must(t, o.seal(nil))
	if after := read(t, filepath.Join(out, sumsFile)); !bytes.Equal(before, after) {
		t.Errorf("%s\n%s", before, after)
	}
}

// TestPushedChart: Helm finds the chart where it was pushed.
func TestPushedChart(t *testing.T) {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	t.Setenv("HELM_REGISTRY_CONFIG", filepath.Join(t.TempDir(), "config.json"))
	repository := strings.TrimPrefix(s.URL, "http://") + "/charts"
	made(t, "-push", repository, "-insecure")
	client, err := helmregistry.NewClient(helmregistry.ClientOptPlainHTTP())
	must(t, err)
	pulled, err := client.Pull(repository + "/acceld:" + version)
	must(t, err)
	c, err := loader.LoadArchive(bytes.NewReader(pulled.Chart.Data))
	if err != nil || c.Metadata.Version != version {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestRefusals: what cannot be published is refused, with what is wrong.
func TestRefusals(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "amd64")
	save(t, filepath.Join(tree, "usr/bin/acceld"), "a program")
	big, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(big)
	must(t, err)
	foreign := save(t, filepath.Join(t.TempDir(), "rsa.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	stray := t.TempDir()
	must(t, os.Mkdir(filepath.Join(stray, "old"), 0o755))
	for _, c := range []struct {
		says string
		args []string
	}{
		{"no semantic version", []string{"-version", "v1"}},
		{"no semantic version", []string{"-version", "1.2"}},
		{"has a +", []string{"-version", "1.2.3+dirty"}},
		{`CHANGELOG.md has no section "## 97.0.0"`, []string{"-version", "97.0.0"}},
		{"say -tree", []string{"-version", version, "-tree", ""}},
		{"cannot tell the system of the plugin", []string{"-version", version, "-plugin", "/amd64"}},
		{"cannot pack kubectl's plugin", []string{"-version", version, "-plugin", "/linux-amd64"}},
		{"say -revision", []string{"-version", version, "-revision", ""}},
		{"no ECDSA key", []string{"-version", version, "-key", foreign}},
		{"cannot read the key", []string{"-version", version, "-key", "/nonexistent"}},
		{"no file of a release", []string{"-version", version, "-out", stray}},
		{"the place of the release", []string{"-version", version, "-url", "https://example.com/';reboot;'"}},
		{"the place of the release", []string{"-version", version, "-url", "file:///etc"}},
		{"not on a loopback address", []string{"-version", version, "-push", "example.com/charts", "-insecure"}},
		{"unexpected argument", []string{"-version", version, "more"}},
	} {
		args := []string{"-tree", tree, "-revision", "abcdef", "-out", filepath.Join(t.TempDir(), "out")}
		if slices.Contains(c.args, "-tree") {
			args, c.args = args[2:], c.args[:2]
		}
		if err := run(append(args, c.args...), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %q", c.args, err, c.says)
		}
	}
	if err := run([]string{"-version-of", "/bin/sh"}, &bytes.Buffer{}); err == nil {
		t.Error("a program without a version has one")
	}
}

// served serves a release that the test may spoil.
func served(t *testing.T, out string) (url string) {
	t.Helper()
	s := httptest.NewServer(http.FileServer(http.Dir(out)))
	t.Cleanup(s.Close)
	return s.URL
}

// install runs the script of a release.
func install(t *testing.T, script string, args ...string) (said string, err error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", append([]string{script}, args...)...).CombinedOutput()
	return string(out), err
}

// TestScript: the script installs what it verified, from a server and from a directory.
func TestScript(t *testing.T) {
	path, _ := newKey(t)
	out := made(t, "-key", path)
	script := filepath.Join(out, scriptFile)
	for _, from := range [][]string{{"--url", served(t, out)}, {"--from", out}} {
		root := t.TempDir()
		said, err := install(t, script, append(from, "--root", root)...)
		if err != nil || !strings.Contains(said, "signature verified") || !strings.Contains(said, "is installed below") {
			t.Errorf("%q: %v: %s", from, err, said)
		}
		if info, err := os.Stat(filepath.Join(root, "usr/bin/acceld")); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%q: %v, %v", from, info, err)
		}
		into := filepath.Join(t.TempDir(), "new")
		if said, err := install(t, script, append(from, "--format", "deb", "--download", into)...); err != nil {
			t.Errorf("%q: %v: %s", from, err, said)
		}
		if text := read(t, filepath.Join(into, "acceld_"+version+"_"+runtime.GOARCH+".deb")); string(text) != "a package" {
			t.Errorf("%q: %q", from, text)
		}
	}
}

// TestScriptRefuses: nothing is installed from a release that somebody has changed, or by a script that did not arrive
// as a whole.
func TestScriptRefuses(t *testing.T) {
	path, _ := newKey(t)
	archive := "acceld-" + version + "-linux-" + runtime.GOARCH + ".tar.gz"
	for _, c := range []struct {
		what, says string
		spoil      func(out string)
		args       []string
	}{
		{"an archive", "the checksum of " + archive + " is wrong", func(out string) { save(t, filepath.Join(out, archive), "bad") }, nil},
		{"checksums", "the signature of the release is wrong", func(out string) {
			save(t, filepath.Join(out, archive), "bad")
			o := Options{Out: out, Version: version, Revision: "abcdef"}
			signature := read(t, filepath.Join(out, signatureFile))
			must(t, o.seal(nil)) // the attacker has no key
			save(t, filepath.Join(out, signatureFile), string(signature))
		}, nil},
		{"the signature", "the signature of the release is wrong", func(out string) {
			_, other := newKey(t)
			o := Options{Out: out, Version: version, Revision: "abcdef"}
			must(t, o.seal(other))
		}, nil},
		{"no signature", "cannot download", func(out string) { must(t, os.Remove(filepath.Join(out, signatureFile))) }, nil},
		{"a signature of garbage", "signature", func(out string) { save(t, filepath.Join(out, signatureFile), "%%%") }, nil},
		{"another format", "the release has no rpm", func(string) {}, []string{"--format", "rpm", "--download", "/nonexistent"}},
		{"an option", "unknown option --force", func(string) {}, []string{"--force"}},
		{"a half script", "", func(out string) {
			script := read(t, filepath.Join(out, scriptFile))
			save(t, filepath.Join(out, scriptFile), string(script[:len(script)-len("main \"$@\"\n")]))
		}, nil},
	} {
		out := made(t, "-key", path)
		c.spoil(out)
		root := filepath.Join(t.TempDir(), "root")
		args := []string{"--url", served(t, out)}
		if c.args == nil {
			args = append(args, "--root", root)
		}
		said, err := install(t, filepath.Join(out, scriptFile), append(args, c.args...)...)
		if (err == nil) != (c.says == "") || !strings.Contains(said, c.says) {
			t.Errorf("%s: %v: %q, want %q", c.what, err, said, c.says)
		}
		if _, err := os.Stat(root); err == nil {
			t.Errorf("%s: something was installed", c.what)
		}
	}
}
