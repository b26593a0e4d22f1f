package e2e

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/image"
)

// TestFromPackages is a host that has nothing of a driver and nothing to build one with: the headers of its kernel, the
// driver's source, its library and its program come from a signed repository, the compiler from an image. A kernel
// module is built and loaded, and a container computes through the library. Nothing is installed. The definition says
// where the distribution has all of it, under names that only the configured mirrors can reach.
func TestFromPackages(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2, NoKubernetes: true, Engine: vm.Containerd})
	g := n.Guest
	registry, err := image.Serve(0)
	stage.Check(t, err)
	t.Cleanup(registry.Close)
	builder, err := s.Builder(stage.Within(t, 5*time.Minute), g, registry)
	stage.Check(t, err)
	repository, err := s.Packages(t.Context(), g, stage.Version)
	stage.Check(t, err)
	t.Cleanup(repository.Close)
	app, err := s.App(t.Context(), n)
	stage.Check(t, err)
	sh(t, g, `systemctl enable -q --now containerd; until ctr version >/dev/null 2>&1; do sleep 0.2; done
ctr images pull --local --plain-http --snapshotter native "$1" >/dev/null`, app)
	stage.Check(t, s.Units(t.Context(), g, fmt.Sprintf("mirrors: {registry.example: [%q], 'http://deb.example/debian': [%q]}\n",
		path.Dir(builder), repository.URL)))
	stage.Check(t, g.Put(t.Context(), s.Program("tree"), "/usr/bin/tree", 0o755))
	stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/archive.gpg", repository.Key, 0o644))
	packages := func(names string) string {
		return `{format: deb, url: "http://deb.example/debian", suite: stable, components: [main], keys: [/etc/acceld/archive.gpg], packages: [` +
			names + "]}"
	}
	sources := fmt.Sprintf("[{type: build, path: '/usr/src/edu-{{.DriverVersion}}', image: %q, plainHTTP: true, needs: [%s]}]",
		"registry.example/"+path.Base(builder), packages(
			`'linux-headers-{{.KernelVersion}}', 'linux-headers-{{.KernelBase}}-common', linux-kbuild-6.1, 'edu-source={{.DriverVersion}}'`))
	libraries := strings.Replace(packages(`'libedu1={{.DriverVersion}}', 'edu-smi={{.DriverVersion}}'`), "{", "{type: packages, ", 1)
	stage.Check(t, s.WholeFrom(t.Context(), g, "[{type: distribution}]", fmt.Sprintf(
		"{}\n  distributions:\n    - os: [debian12]\n      sources: %s\n      userSpace: [%s]", sources, libraries), stage.Version))
	sh(t, g, nothingToBuildWith)
	before := snapshot(t, g)
	timed(t, "units enabled -> ready: image and packages fetched, driver built", func() {
		stage.Check(t, s.Enable(t.Context(), g))
		reaches(t, g, accel.Ready, 20*time.Minute)
	})
	logDurations(t, g)
	t.Logf("%s", sh(t, g, "acceld status; du -sh /var/lib/acceld/needs; journalctl -u acceld -o cat | grep -E 'unpacked|fetched|stored|driver built'"))
	out := sh(t, g, `ctr run --rm --snapshotter native --device qemu.org/edu=0000:01:00.0 "$1" new /usr/bin/edu-app`, app)
	if !strings.Contains(out, "edu-app: library "+stage.Version) || !strings.Contains(out, "10! = 3628800") {
		t.Errorf("a container said %s", out)
	}
	if left := sh(t, g, "find / -xdev -newer /etc/acceld/archive.gpg -path '/usr/*' -type f ! -path '/usr/bin/acceld*'"); left != "" {
		t.Errorf("something was installed: %s", left)
	}
	purged(t, g, before)
}
