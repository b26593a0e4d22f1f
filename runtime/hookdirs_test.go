package runtime

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/host"
)

func TestHookDirs(t *testing.T) {
	const usr, etc, run = "/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d",
		"/run/containers/oci/hooks.d"
	for name, test := range map[string]struct {
		engine string
		files  map[string]string
		want   []string
	}{
		"nothing configured": {"cri-o", nil, []string{usr}},
		"no runtime":         {"", nil, nil},
		"containerd":         {"containerd", nil, nil},
		"main file": {
			"cri-o",
			map[string]string{"/etc/crio/crio.conf": "[crio.runtime]\nhooks_dir = [\"" + etc + "\"]\n"},
			[]string{etc},
		},
		"main file without it": {
			"cri-o",
			map[string]string{"/etc/crio/crio.conf": "[crio.image]\npause_image=\"x\"\n"},
			[]string{usr},
		},
		"empty list": {
			"cri-o",
			map[string]string{"/etc/crio/crio.conf": "[crio.runtime]\nhooks_dir = []\n"},
			[]string{},
		},
		"drop-in wins over main": {
			"cri-o",
			map[string]string{
				"/etc/crio/crio.conf":             "[crio.runtime]\nhooks_dir=[\"" + usr + "\"]",
				"/etc/crio/crio.conf.d/01-x.conf": "[crio.runtime]\nhooks_dir=[\"" + etc + "\",\"" + run + "\"]",
			},
			[]string{etc, run},
		},
		"drop-ins in lexical order, any suffix, recursive": {"cri-o", map[string]string{
			"/etc/crio/crio.conf.d/00-default":   "[crio.runtime]\nhooks_dir=[\"" + etc + "\"]",
			"/etc/crio/crio.conf.d/10/z.bak":     "[crio.runtime]\nhooks_dir=[\"" + run + "\"]",
			"/etc/crio/crio.conf.d/05-other.cfg": "[crio.runtime]\nhooks_dir=[\"" + usr + "\"]",
		}, []string{run}},
		"broken drop-in": {"cri-o", map[string]string{"/etc/crio/crio.conf.d/00": "[crio.runtime]\nhooks_dir=[\"" +
			run + "\"]", "/etc/crio/crio.conf.d/01": "hooks_dir = ["}, []string{run}},
		"relative paths": {
			"cri-o",
			map[string]string{"/etc/crio/crio.conf": "[crio.runtime]\nhooks_dir = [\"hooks.d\", \"/a/../b/\"]\n"},
			[]string{"/b"},
		},
		"podman default": {"podman", nil, []string{usr}},
		"podman's own": {"podman", map[string]string{"/etc/containers/containers.conf": "[engine]\nhooks_dir = [\"" +
			etc + "\"]\n"}, []string{etc}},
		"podman appends": {
			"podman",
			map[string]string{"/etc/containers/containers.conf.d/a.conf": "[engine]\nhooks_dir = [\"" + etc +
				"\", {append=true}]\n"},
			[]string{usr, etc},
		},
		"podman suffix": {
			"podman",
			map[string]string{"/etc/containers/containers.conf.d/a.bak": "[engine]\nhooks_dir = [\"" + etc + "\"]\n"},
			[]string{usr},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, t.TempDir())
			for file, text := range test.files {
				b.write(file, text)
			}
			b.restart("", test.engine)
			c, _ := b.r.config.read(b.r.engine)
			if diff := cmp.Diff(test.want, readHookDirs(b.r.engine, nil, c)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A running CRI-O knows its command line. Its answer wins over the files; without an answer the files count.
func TestHookDirsOfLiveCRIO(t *testing.T) {
	root, err := os.MkdirTemp("", "crio") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.MkdirAll("/run/crio", 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(root, "run/crio/crio.sock"))
	if err != nil {
		t.Fatal(err)
	}
	padding, asked := "", 0
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/config" {
			http.NotFound(w, req)
			return
		}
		asked++
		_, _ = w.Write([]byte("[crio]\n  [crio.runtime]\n    hooks_dir = [\"/opt/hooks.d\"]\n" +
			"    cdi_spec_dirs = [\"/opt/cdi\", \"/run/cdi\"]\n" + padding))
	})}
	go func() { _ = server.Serve(listener) }()

	r := New(h, Options{Engine: accel.ContainerEngine{Name: "cri-o", Endpoint: "unix:///run/crio/crio.sock"}})
	read := func() []string {
		c, _ := r.config.read(r.engine)
		return readHookDirs(r.engine, r.client.crioConfig(r.engine).Crio.Runtime.HooksDir, c)
	}
	if diff := cmp.Diff([]string{"/opt/hooks.d"}, read()); diff != "" {
		t.Errorf("of the running one (-want +got):\n%s", diff)
	}
	// The files say otherwise, but it has read them before it started.
	if err := errors.Join(h.MkdirAll("/etc/crio", 0o755), h.WriteFile("/etc/crio/crio.conf",
		[]byte("[crio.runtime]\ncdi_spec_dirs = [\"/etc/cdi\"]\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if rep, p := r.CheckConfig(); p != nil || !rep.Offers || len(rep.Change.Files) > 0 {
		t.Errorf("the running one reads specs: %v, %+v", p, rep)
	}
	if diff := cmp.Diff([]string{"/etc/cdi", "/var/run/cdi", "/opt/cdi"}, r.specs.dirs); diff != "" {
		t.Errorf("directories of specs (-want +got):\n%s", diff)
	}
	r.engine.Started = time.Now().Add(-time.Hour) // they are newer, so they may have been read since, by a reload
	if rep, p := r.CheckConfig(); reason(p) != accel.RuntimeMissingCDI || rep.Offers {
		t.Errorf("with newer files: %v, offers %t", p, rep.Offers)
	}
	// It is asked once, and again when another one runs.
	for _, pid := range []int{os.Getpid(), os.Getppid()} {
		r.engine.PID, asked = pid, 0
		for range 3 {
			if _, p := r.CheckConfig(); reason(p) != accel.RuntimeMissingCDI {
				t.Errorf("with pid %d: %v", pid, p)
			}
		}
		if asked != 1 {
			t.Errorf("pid %d was asked %d times", pid, asked)
		}
	}
	r.engine.PID, r.engine.Started = 0, time.Time{}
	padding = strings.Repeat("# long\n", maxAnswer/7+1)
	if diff := cmp.Diff(crioConfig{}, r.client.crioConfig(r.engine)); diff != "" {
		t.Errorf("of an answer that is too long: %s", diff)
	}
	if err := h.Remove("/etc/crio/crio.conf"); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{defaultHookDir}, read()); diff != "" {
		t.Errorf("after it stopped (-want +got):\n%s", diff)
	}
}

// The same name in a later directory masks the earlier one: only the file in force counts. Only directories that
// existed when CRI-O started are watched.
func TestHookFileInForce(t *testing.T) {
	const config = "[crio.runtime]\nhooks_dir = [\"/a\", \"/b\", \"/c\"]\n"
	b := newBed(t, t.TempDir())
	b.write("/etc/crio/crio.conf", config)
	for _, dir := range []string{"/a", "/b"} {
		if err := os.Mkdir(b.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if have := b.apply(); have.Hook != "/b/50-acceld.json" {
		t.Errorf("hook is %q; want the highest directory that is there", have.Hook)
	}
	b.write("/c/50-acceld.json", "{}")
	if b.applied() {
		t.Error("Applied although another file masks ours")
	}
	if have := b.apply(); have.Hook != "/c/50-acceld.json" {
		t.Errorf("hook is %q", have.Hook)
	}
	if p := b.r.Remove(b.def); p != nil {
		t.Fatal(p)
	}
	for _, dir := range []string{"/a", "/b", "/c"} {
		if b.r.host.Exists(dir + "/50-acceld.json") {
			t.Errorf("a file is left in %s", dir)
		}
	}
}
