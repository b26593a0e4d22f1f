package toolchain

import (
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/deb"
)

// archive serves a repository with the headers of a kernel and returns the definition whose build needs them.
func (y *yard) archive(kernels ...string) (*accel.Definition, *httptest.Server) {
	y.t.Helper()
	if os.Geteuid() != 0 {
		y.t.Skip("only root can own the files that the host trusts")
	}
	r, err := deb.NewRepository()
	if err != nil {
		y.t.Fatal(err)
	}
	for _, k := range kernels {
		r.Add("linux-headers-"+k, "1-1", "amd64", deb.Package("linux-headers-"+k, "1-1", "amd64", map[string]string{
			"usr/src/linux-headers-" + k + "/Makefile": "all:\n",
			"lib/modules/" + k + "/build":              "-> /usr/src/linux-headers-" + k,
		}))
	}
	key, err := r.Key()
	if err == nil {
		err = r.Publish()
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(y.root, "keys.gpg"), key, 0o644)
	}
	if err != nil {
		y.t.Fatal(err)
	}
	server := httptest.NewServer(r)
	y.t.Cleanup(server.Close)
	def := named("qemu-edu", y.name("b"))
	def.Driver.Sources[0].Needs = []accel.PackageSet{{
		Format: "deb", URL: server.URL + "/debian", Suite: "stable", Components: []string{"main"},
		Packages: []string{"linux-headers-{{.KernelVersion}}"}, Keys: []string{"/keys.gpg"},
	}}
	return def, server
}

// TestNeeds: packages are unpacked once for a kernel, are there without a network, and go with their kernel.
func TestNeeds(t *testing.T) {
	y := newYard(t)
	def, server := y.archive("6.1.0", "6.2.0")
	x, source := y.images(), def.Driver.Sources[0]
	get := func(kernel string) string {
		t.Helper()
		dirs, _, problem := x.Needs(t.Context(), def, facts(kernel), source)
		if problem != nil || len(dirs) != 1 {
			t.Fatalf("%s: %v, %v", kernel, dirs, problem)
		}
		text, err := y.h.ReadFile(dirs[0] + "/usr/src/linux-headers-" + kernel + "/Makefile")
		if err != nil || string(text) != "all:\n" || !y.h.Exists(dirs[0]+"/lib/modules/"+kernel+"/build") {
			t.Errorf("%s: %q, %v", kernel, text, err)
		}
		return dirs[0]
	}
	one, other := get("6.1.0"), get("6.2.0")
	server.Close()
	if one == other || get("6.1.0") != one {
		t.Errorf("%q and %q", one, other)
	}
	if _, _, problem := x.Needs(t.Context(), def, facts("6.3.0"), source); problem == nil ||
		problem.Reason != accel.RegistryUnreachable || !strings.Contains(problem.Message, "qemu-edu") {
		t.Errorf("a kernel whose headers are not here: %v", problem)
	}
	for _, c := range []struct {
		gone  string
		after time.Duration
		left  bool
	}{{"", 48 * time.Hour, true}, {"6.2.0", time.Hour, true}, {"6.2.0", 48 * time.Hour, false}} {
		if c.gone != "" {
			y.lose("lib/modules/" + c.gone)
		}
		x.forget(facts("6.1.0"), time.Now().Add(c.after))
		if y.h.Exists(other) != c.left || !y.h.Exists(one) {
			t.Errorf("without %q after %v: %v", c.gone, c.after, y.h.Exists(other))
		}
	}
}

// TestNeedsKilled: what was unpacked without its record, because the process was killed, is unpacked again.
func TestNeedsKilled(t *testing.T) {
	y := newYard(t)
	def, _ := y.archive("6.1.0")
	x, source := y.images(), def.Driver.Sources[0]
	dirs, _, problem := x.Needs(t.Context(), def, facts("6.1.0"), source)
	if problem != nil {
		t.Fatal(problem)
	}
	y.lose(strings.TrimPrefix(recordFile(filepath.Dir(dirs[0])), "/"))
	y.lose(strings.TrimPrefix(dirs[0], "/") + "/usr/src/linux-headers-6.1.0/Makefile")
	again, _, problem := x.Needs(t.Context(), def, facts("6.1.0"), source)
	if problem != nil || again[0] != dirs[0] || !y.h.Exists(again[0]+"/usr/src/linux-headers-6.1.0/Makefile") {
		t.Errorf("%v, %v", again, problem)
	}
}

// TestNeedsElsewhere: what the first repository does not have comes from the second one; what none has is said, beside
// what there is.
func TestNeedsElsewhere(t *testing.T) {
	y := newYard(t)
	_, first := y.archive("6.2.0")
	if err := os.Rename(filepath.Join(y.root, "keys.gpg"), filepath.Join(y.root, "first.gpg")); err != nil {
		t.Fatal(err)
	}
	def, second := y.archive("6.1.0")
	x, source := y.images(), def.Driver.Sources[0]
	set := source.Needs[0]
	set.URL, set.Keys = first.URL+"/debian", []string{"/first.gpg", "/keys.gpg"}
	set.Also = []accel.Pocket{{URL: second.URL + "/debian", Suite: set.Suite}}
	nowhere := set
	nowhere.Packages = []string{"linux-headers-nowhere"}
	source.Needs = []accel.PackageSet{nowhere, set}
	dirs, missing, problem := x.Needs(t.Context(), def, facts("6.1.0"), source)
	if problem != nil || len(dirs) != 1 || !y.h.Exists(dirs[0]+"/usr/src/linux-headers-6.1.0/Makefile") {
		t.Fatalf("%v, %v", dirs, problem)
	}
	if missing == nil || !strings.Contains(missing.Message, first.URL) ||
		!strings.Contains(missing.Message, second.URL) {
		t.Errorf("%v", missing)
	}
	first.Close() // is not the same as to have nothing
	if _, _, problem := x.Needs(t.Context(), def, facts("6.4.0"), source); problem == nil ||
		problem.Reason != accel.RegistryUnreachable {
		t.Errorf("%v", problem)
	}
}

// TestNeedsDenied: a repository that is not this host's to use is missing like one that has nothing; the other sets are
// there.
func TestNeedsDenied(t *testing.T) {
	y := newYard(t)
	def, _ := y.archive("6.1.0")
	repos := filepath.Join(y.root, "etc/yum.repos.d")
	if err := errors.Join(os.MkdirAll(repos, 0o755), os.WriteFile(filepath.Join(repos, "x.repo"),
		[]byte("[rhel-9-appstream-rpms]\nbaseurl=https://cdn.example/x\nsslclientcert=/x.pem\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	source := def.Driver.Sources[0]
	source.Needs = append(source.Needs, accel.PackageSet{
		Format: "rpm", URL: "http://rhel.invalid/appstream", Packages: []string{"kernel-devel"}, Keys: []string{"/keys.gpg"},
	})
	dirs, missing, problem := y.images().Needs(t.Context(), def, facts("6.1.0"), source)
	if problem != nil || len(dirs) != 1 || missing == nil || missing.Reason != accel.RegistryDenied ||
		!strings.Contains(missing.Message, "certificate of the client") {
		t.Errorf("%v, %v, %v", dirs, missing, problem)
	}
}
