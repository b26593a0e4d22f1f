package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// TestPackage is the life of the Debian package on a plain host. Its parts build on each other.
func TestPackage(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 1, NoKubernetes: true})
	g := n.Guest
	stage.Check(t, s.Source(t.Context(), g))
	for _, p := range []string{"tree", "edu-check"} {
		stage.Check(t, g.Put(t.Context(), s.Program(p), "/usr/bin/"+p, 0o755))
	}
	for file, version := range map[string]string{"/root/old.deb": "v1.0.0", "/root/young.deb": "v1.1.0"} {
		deb, err := s.Package(t.Context(), version)
		stage.Check(t, err)
		stage.Check(t, g.Put(t.Context(), deb, file, 0o644))
	}
	before := snapshot(t, g)
	timed(t, "apt install -> ready, driver built", func() {
		t.Logf("%s", apt(t, g, "install", "/root/old.deb"))
		reaches(t, g, accel.Ready, 10*time.Minute)
	})
	if out := sh(t, g, "curl -fsS http://127.0.0.1:9480/healthz"); !strings.Contains(out, stage.Kind) {
		t.Errorf("/healthz: %s", out)
	}
	if out := sh(t, g,
		"systemctl is-enabled acceld.service acceld.socket acceld-early.service; systemctl is-active acceld.service acceld.socket"); out != "enabled\nenabled\nenabled\nactive\nactive" {
		t.Errorf("the units are %q", out)
	}
	sh(t, g, "edu-check -expect 1; acceld doctor; test -x /etc/kernel/postinst.d/zz-acceld")
	sh(t, g, "systemd-run --unit=holder edu-check -expect 1 -hold 2h")
	driver, holder := facts(t, g), sh(t, g, "systemctl show -p MainPID --value holder")
	same := func(t *testing.T, when string) {
		t.Helper()
		if now := facts(t, g); now != driver {
			t.Errorf("%s the driver is %q, before %q", when, now, driver)
		}
		if now := sh(t, g,
			"systemctl show -p MainPID --value holder; journalctl -u holder | grep -c gone || true"); now != holder+
			"\n0" {
			t.Errorf("%s the holder of a device is %q, before %q", when, now, holder)
		}
	}
	t.Run("upgrade under a holder", func(t *testing.T) {
		old := agentPID(t, g)
		sh(t, g, "echo '# mine' >> /etc/acceld/config.yaml")
		t.Logf("%s", apt(t, g, "install", "/root/young.deb"))
		reaches(t, g, accel.Ready, soon)
		if agentPID(t, g) == old {
			t.Error("the old program still runs")
		}
		sh(t, g, "grep -q '^# mine$' /etc/acceld/config.yaml && dpkg-query -W -f '${Version}' acceld | grep -qx 1.1.0")
		same(t, "after the upgrade")
	})
	t.Run("what an administrator stopped stays stopped", func(t *testing.T) {
		sh(t, g, "systemctl disable --now acceld.service acceld.socket")
		apt(t, g, "install", "--reinstall", "/root/young.deb")
		if out := sh(t, g,
			"systemctl is-enabled acceld.service || true; systemctl is-active acceld.service || true"); out !=
			"disabled\ninactive" {
			t.Errorf("it is %q", out)
		}
		sh(t, g, "systemctl enable --now acceld.socket acceld.service")
		reaches(t, g, accel.Ready, soon)
	})
	t.Run("remove leaves the driver", func(t *testing.T) {
		apt(t, g, "remove", "acceld")
		if out := sh(t, g,
			"systemctl is-active acceld.service acceld.socket || true; curl -fsS http://127.0.0.1:9480/healthz || echo silent"); !strings.HasSuffix(out,
			"silent") || strings.Contains(out, "active\n") && !strings.Contains(out, "inactive\n") {
			t.Errorf("it still answers: %s", out)
		}
		sh(t, g, "test ! -e /usr/bin/acceld && test -d /var/lib/acceld/kmod")
		same(t, "after the removal")
	})
	t.Run("purge names who uses the driver", func(t *testing.T) {
		res, err := g.Sh(stage.Within(t, soon), "DEBIAN_FRONTEND=noninteractive apt-get purge -y acceld 2>&1")
		stage.Check(t, err)
		if res.OK() || !strings.Contains(res.Stdout, "edu-check") ||
			!strings.Contains(res.Stdout, "purge the package again") {
			t.Errorf("status %d: %s", res.Status, res.Stdout)
		}
		same(t, "after a purge that was refused")
		sh(t, g, "systemctl stop holder")
	})
	t.Run("purge leaves the host as it was", func(t *testing.T) {
		t.Logf("%s", apt(t, g, "purge", "acceld"))
		// dpkg's and apt's own records have another time and, below info, nothing of acceld any more.
		if diff := stage.Unlike(before, snapshot(t, g), "/var/lib/dpkg/", "/var/lib/apt/"); diff != "" {
			t.Errorf("the host is not as it was:\n%s", diff)
		}
		if out := sh(t, g,
			"grep -rl acceld /var/lib/dpkg/info /var/lib/dpkg/status /var/lib/systemd 2>/dev/null || true; ls /var/lib/dpkg/info | grep acceld || true"); out != "" {
			t.Errorf("left: %s", out)
		}
	})
}

// apt runs apt-get, which asks nothing.
func apt(t *testing.T, g *bed.Guest, args ...string) string {
	t.Helper()
	argv := append([]string{
		"env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "-o",
		"Dpkg::Options::=--force-confold",
	}, args...)
	res, err := g.Run(stage.Within(t, 3*time.Minute), argv...)
	stage.Check(t, stage.Must(res, err))
	return res.Stdout + res.Stderr
}
