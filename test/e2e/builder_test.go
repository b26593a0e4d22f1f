package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/image"
)

// TestBuilderImage is a host without make, compiler and binutils, which builds its driver in an image from a registry,
// and the next version in the same image when the network is cut.
func TestBuilderImage(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2, NoKubernetes: true})
	g := n.Guest
	builder := builderImage(t, g, s)
	stage.Check(t, s.Source(t.Context(), g))
	stage.Check(t, s.Units(t.Context(), g, builtIn(stage.Version, "")))
	stage.Check(t, g.Put(t.Context(), s.Program("tree"), "/usr/bin/tree", 0o755))
	sh(t, g, `for p in gcc gcc-12 make cc ld as strip; do if [ -e "/usr/bin/$p" ]; then mv "/usr/bin/$p" "/usr/bin/$p.away"; fi; done`)
	before := snapshot(t, g)
	sh(t, g, "cp -p /etc/acceld/config.yaml /root/config.before")
	if !t.Run("without an image it says what to set", func(t *testing.T) {
		says(t, g, accel.CompilerMissing, "acceld driver build qemu-edu")
		if out := sh(t, g, "acceld driver build qemu-edu 2>&1 || true"); !strings.Contains(out, "set image of the source") {
			t.Errorf("it says %q", out)
		}
	}) {
		return
	}
	configureBuild(t, g, stage.Version, builder)
	timed(t, "units enabled -> ready, image pulled and driver built", func() {
		// The early unit loads what is stored, and there is nothing yet.
		sh(t, g, "systemctl enable -q --now acceld.socket acceld.service; systemctl enable -q acceld-early.service")
		reaches(t, g, accel.Ready, 15*time.Minute)
	})
	sh(t, g, "edu-check -expect 2")
	t.Logf("the image:\n%s", sh(t, g, "cat /var/lib/acceld/builders/uses.json; du -sh /var/lib/acceld/builders"))
	unpacked := sh(t, g, "tree /var/lib/acceld/builders")
	t.Run("the next version with the network cut", func(t *testing.T) {
		stage.Check(t, s.SourceOf(t.Context(), g, stage.Version2))
		stage.Check(t, g.CutNetwork(t.Context()))
		defer func() { stage.Check(t, g.RestoreNetwork(t.Context())) }()
		timed(t, "version configured -> built and serving, network cut", func() {
			configureBuild(t, g, stage.Version2, builder)
			serves(t, g, stage.Version2)
		})
		if log := sh(t, g, "journalctl -u acceld -o cat"); !strings.Contains(log, "the builder image is the last known one") {
			t.Error("the log does not say that no registry confirmed the image")
		}
	})
	if diff := stage.Unlike(unpacked, sh(t, g, "tree /var/lib/acceld/builders"), "uses.json"); diff != "" {
		t.Errorf("the image changed:\n%s", diff)
	}
	unmounted(t, g)
	t.Run("purge leaves the host as it was", func(t *testing.T) {
		sh(t, g, "mv /root/config.before /etc/acceld/config.yaml; rm -rf /usr/src/edu-"+stage.Version2)
		purged(t, g, before)
	})
}

// builderImage returns the name of an image with a compiler, in a registry that lives as long as the test.
func builderImage(t *testing.T, g *bed.Guest, s *stage.Stage) string {
	t.Helper()
	registry, err := image.Serve(0)
	stage.Check(t, err)
	t.Cleanup(registry.Close)
	name, err := s.Builder(stage.Within(t, 5*time.Minute), g, registry)
	stage.Check(t, err)
	return name
}

// unmounted checks that no process has a mount of a builder image.
func unmounted(t *testing.T, g *bed.Guest) {
	t.Helper()
	if left := sh(t, g, "grep -c builders /proc/*/mountinfo | grep -v ':0$' || true"); left != "" {
		t.Errorf("mounts are left: %s", left)
	}
}

// builtIn is a configuration whose driver is built from source, in an image unless that is empty.
func builtIn(version, builder string) string {
	source := "type: build, path: '/usr/src/edu-{{.DriverVersion}}'"
	if builder != "" {
		source += fmt.Sprintf(", image: %q, plainHTTP: true", builder)
	}
	return fmt.Sprintf("kinds: {qemu-edu: {driver: {version: %q, sources: [{%s}]}}}\n", version, source)
}

func configureBuild(t *testing.T, g *bed.Guest, version, builder string) {
	t.Helper()
	stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/config.yaml", []byte(builtIn(version, builder)), 0o644))
}
