package build

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/driver/store"
	"github.com/acceld/acceld/host"
	"github.com/acceld/acceld/host/hosttest"
)

// site is a machine, and beside it packages with headers, a source tree and firmware.
func site(t *testing.T, files ...string) (*Builder, *job) {
	t.Helper()
	m := hosttest.New(t)
	for _, name := range files {
		text := name
		if strings.HasSuffix(name, "utsrelease.h") {
			text = `#define UTS_RELEASE "6.1.0-9-amd64"`
		}
		m.File("/"+name, text)
	}
	h := m.Host
	root, err := h.Path("/state/needs/k/root")
	if err != nil {
		t.Fatal(err)
	}
	inside, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	b := New(h, Options{Log: slog.New(slog.DiscardHandler)})
	b.store = store.New(h, store.Options{StateDir: "/state"})
	return b, &job{
		def: &accel.Definition{Kind: "a-b", Driver: accel.DriverDefinition{
			Version: "1.0", Modules: []accel.Module{{Name: "m", Firmware: []string{"m/{{.DriverVersion}}/a.bin", "m/b.bin"}}},
		}},
		facts:     accel.Facts{Kernel: accel.Kernel{Release: "6.1.0-9-amd64", Arch: "x86_64"}, OS: accel.OS{ID: "debian"}},
		needs:     []needed{{"/state/needs/k/root", inside}},
		Workspace: &store.Workspace{Dir: "/job", Work: "/job/w", Entry: "/job/e"},
	}
}

// TestNeededHeaders: the machine's headers count first, then those of packages, whose directories the build sees under
// their own names.
func TestNeededHeaders(t *testing.T) {
	const packages = "state/needs/k/root/usr/src/linux-headers-6.1.0-9-amd64"
	theirs := []string{
		packages + "/Makefile", packages + "/include/generated/utsrelease.h",
		"state/needs/k/root/usr/lib/linux-kbuild-6.1/scripts/modpost", "state/needs/k/root/usr/lib/other/x",
		"state/needs/k/root/usr/src/m-1.0/Makefile",
	}
	b, j := site(t, theirs...)
	dir, in, problem := b.findHeaders(j)
	if problem != nil || dir != "/usr/src/linux-headers-6.1.0-9-amd64" || in != j.needs[0].h {
		t.Errorf("%q, %v", dir, problem)
	}
	got := map[string]string{}
	for _, bind := range j.needs[0].binds() {
		got[bind.To] = bind.From
	}
	want := map[string]string{}
	for _, name := range []string{
		"/usr/src/linux-headers-6.1.0-9-amd64", "/usr/src/m-1.0", "/usr/lib/linux-kbuild-6.1",
	} {
		want[name] = "/state/needs/k/root" + name
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]string{
		"/usr/src/m-1.0": "/state/needs/k/root/usr/src/m-1.0", "/nowhere": "/nowhere", "/job": "/job",
	} {
		if got := b.locate(j.needs, name); got != want {
			t.Errorf("%q is at %q", name, got)
		}
	}
	own := "usr/src/linux-headers-6.1.0-9-amd64"
	b, j = site(t, append(theirs, own+"/Makefile", own+"/include/generated/utsrelease.h")...)
	if _, in, problem := b.findHeaders(j); problem != nil || in != b.h {
		t.Errorf("the machine's own: %v", problem)
	}
	b, j = site(t, "state/needs/k/root/usr/src/x")
	if _, _, problem := b.findHeaders(j); problem == nil || problem.Reason != accel.HeadersMissing ||
		!strings.Contains(problem.Message, "needs brings none") {
		t.Errorf("packages without headers: %v", problem)
	}
}

// TestNeededFirmware: firmware that packages brought goes into the entry with the modules; the rest is the machine's.
func TestNeededFirmware(t *testing.T) {
	b, j := site(t, "state/needs/k/root/lib/firmware/m/1.0/a.bin", "state/needs/k/root/usr/lib/firmware/m/other.bin",
		"usr/lib/firmware/m/b.bin", "job/e/.keep")
	got, problem := b.firmware(j)
	if problem != nil || len(got) != 1 || got[0].Path != "m/1.0/a.bin" || len(got[0].SHA256) != 64 {
		t.Fatalf("%v, %v", got, problem)
	}
	text, err := b.h.ReadFile("/job/e/firmware/m/1.0/a.bin")
	if err != nil || !strings.HasSuffix(string(text), "a.bin") {
		t.Errorf("%q, %v", text, err)
	}
}

// TestLinkedHeaders: a build that has its headers from packages finds them behind the usual links, too.
func TestLinkedHeaders(t *testing.T) {
	const root, release = "/state/needs/k/root", "6.1.0-9-amd64"
	const common = "/usr/src/linux-headers-6.1.0-9-common"
	for _, c := range []struct{ name, modules, to, source string }{
		{"in two parts", "/lib/modules/", common, common},
		{"in two parts below /usr, since Debian 13", "/usr/lib/modules/", "../../../src/linux-headers-6.1.0-9-common", common},
		{"in one part", "/lib/modules/", "", "/usr/src/linux-headers-" + release},
	} {
		b, j := site(t, "state/needs/k/root"+common+"/Makefile", "state/needs/k/root"+c.modules+release+"/.keep", "job/.keep")
		if c.to != "" {
			if err := b.h.Symlink(c.to, root+c.modules+release+"/source"); err != nil {
				t.Fatal(err)
			}
		}
		j.headers, j.headersIn = "/usr/src/linux-headers-"+release, j.needs[0].h
		bind, err := b.linkHeaders(j)
		if err != nil || bind.To != "/lib/modules/"+release || bind.Write {
			t.Errorf("%s: %+v, %v", c.name, bind, err)
		}
		for link, want := range map[string]string{"build": j.headers, "source": c.source} {
			if got, err := b.h.Readlink(bind.From + "/" + link); err != nil || got != want {
				t.Errorf("%s: %s leads to %q: %v", c.name, link, got, err)
			}
		}
	}
}
