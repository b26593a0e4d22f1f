package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm"
	"github.com/acceld/acceld/test/vm/bed"
)

// TestUserSpace: the library in a container is of the module's version, whatever happens to the driver, and a container
// that runs keeps the one that it was given.
func TestUserSpace(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2, NoKubernetes: true, Engine: vm.Containerd})
	g := n.Guest
	for _, v := range []string{stage.Version, stage.Version2, stage.VersionWrong} {
		_, err := s.Root(t.Context(), n.Guest, "edu-root:"+v, v, v)
		stage.Check(t, err)
	}
	whole := n.Image("edu-root:{{.DriverVersion}}")
	skewed, err := s.Root(t.Context(), n.Guest, "edu-root:skewed", stage.Version, stage.Version2)
	stage.Check(t, err)
	app, err := s.App(t.Context(), n)
	stage.Check(t, err)
	sh(t, g, `systemctl enable -q --now containerd; until ctr version >/dev/null 2>&1; do sleep 0.2; done
ctr images pull --local --plain-http --snapshotter native "$1" >/dev/null`, app)
	stage.Check(t, s.Units(t.Context(), g, ""))
	stage.Check(t, s.Whole(t.Context(), g, skewed, stage.Version))
	sh(t, g, nothingToBuildWith)

	computes := func(t *testing.T, version string) {
		t.Helper()
		out := sh(t, g, `ctr run --rm --snapshotter native --device qemu.org/edu=0000:01:00.0 "$1" new /usr/bin/edu-app`, app)
		if !strings.Contains(out, "edu-app: library "+version+": /dev/edu") || !strings.Contains(out, "10! = 3628800") {
			t.Errorf("a new container said %s", out)
		}
		out = sh(t, g, "acceld exec qemu-edu -- edu-smi")
		if !strings.Contains(out, "edu-smi "+version+", module "+version) {
			t.Errorf("acceld exec said %s", out)
		}
	}
	t.Run("a user space of another version is refused", func(t *testing.T) {
		stage.Check(t, s.Enable(t.Context(), g))
		_, err := stage.WaitMachine(stage.Within(t, soon), g, "the refusal", stage.Blocked(accel.LibraryMismatch))
		stage.Check(t, err)
		sh(t, g, "test ! -e /sys/module/edu && test ! -e /run/acceld/driver/qemu-edu")
		t.Logf("acceld status:\n%s", sh(t, g, "acceld status || true"))
	})
	t.Run("a container computes through the library", func(t *testing.T) {
		stage.Check(t, s.Whole(t.Context(), g, whole, stage.Version))
		timed(t, "definition written -> ready", func() { serves(t, g, stage.Version) })
		computes(t, stage.Version)
		sh(t, g, `ctr run -d --snapshotter native --device qemu.org/edu=0000:02:00.0 --log-uri file:///tmp/keeper.log "$1" keeper /usr/bin/edu-app wait`,
			app)
		sh(t, g, "until grep -c 'library 1.0.0$' /tmp/keeper.log; do sleep 0.2; done")
	})
	t.Run("an upgrade swaps both", func(t *testing.T) {
		stage.Check(t, s.Whole(t.Context(), g, whole, stage.Version2))
		timed(t, "definition written -> 2.0.0 serves", func() { serves(t, g, stage.Version2) })
		computes(t, stage.Version2)
	})
	t.Run("a driver that computes wrongly goes with its library", func(t *testing.T) {
		stage.Check(t, s.Whole(t.Context(), g, whole, stage.VersionWrong))
		_, err := stage.WaitMachine(stage.Within(t, 2*soon), g, "the rollback", func(m accel.Machine) bool {
			return m.Have[stage.Kind].Driver.Version == stage.Version2 &&
				strings.Contains(m.Status[stage.Kind].Sentence, "version 3.0.0 failed")
		})
		stage.Check(t, err)
		computes(t, stage.Version2)
	})
	t.Run("the container that ran kept its library", func(t *testing.T) {
		out := sh(t, g, `n=$(grep -c . /tmp/keeper.log); until test "$(grep -c . /tmp/keeper.log)" -gt $((n+2)); do sleep 0.2; done
grep -c 'library 1.0.0' /tmp/keeper.log; grep -cv 'library 1.0.0' /tmp/keeper.log || true; ctr tasks kill -s KILL keeper`)
		if lines := strings.Fields(out); len(lines) < 2 || lines[1] != "0" {
			t.Errorf("lines with its library, and others: %s", out)
		}
	})
	t.Run("programs of the host find it where that is asked for", func(t *testing.T) {
		sh(t, g, `! command -v edu-smi
mkdir -p /etc/systemd/system/acceld.service.d
printf '[Service]\nReadWritePaths=/usr/lib/x86_64-linux-gnu /usr/local/bin\n' > /etc/systemd/system/acceld.service.d/host.conf
systemctl daemon-reload; systemctl restart acceld`)
		onHost := func(sources, version string) {
			stage.Check(t, s.WholeFrom(t.Context(), g, sources, "{host: true}", version))
			serves(t, g, version)
			out := sh(t, g, `until edu-smi; do sleep 0.2; done; ldd /usr/local/bin/edu-smi`)
			if !strings.Contains(out, "edu-smi "+version+", module "+version) ||
				!strings.Contains(out, "x86_64-linux-gnu/libedu.so.1 ") {
				t.Errorf("a program of the host said %s", out)
			}
		}
		sources := "[{type: oci, image: \"" + whole + "\", plainHTTP: true}]"
		onHost(sources, stage.Version2)
		onHost(sources, stage.Version)
		t.Logf("acceld purge:\n%s", sh(t, g, `systemctl disable -q --now acceld.service acceld.socket acceld-early.service
acceld purge; test ! -L /usr/local/bin/edu-smi; test ! -L /usr/lib/x86_64-linux-gnu/libedu.so.1`))
	})
}

// TestUserSpaceKills kills upgrades at every call that leaves something behind, as [upgradeKilled] does. The library
// that serves at that moment, and afterwards, is of the version of the module that is live, or there is none.
func TestUserSpaceKills(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 1, NoKubernetes: true})
	g := n.Guest
	for _, v := range []string{stage.Version, stage.Version2} {
		_, err := s.Root(t.Context(), n.Guest, "edu-root:"+v, v, v)
		stage.Check(t, err)
	}
	whole := n.Image("edu-root:{{.DriverVersion}}")
	stage.Check(t, s.Units(t.Context(), g, ""))
	const look = `echo "$(cat /sys/module/edu/version 2>/dev/null || echo none) $(ls /run/acceld/driver/qemu-edu/usr/lib64 2>/dev/null | sed -n 's/libedu.so.\(.*\..*\)/\1/p')"`
	stage.Check(t, s.Whole(t.Context(), g, whole, stage.Version))
	sh(t, g, "acceld driver ensure qemu-edu")
	for _, v := range []string{stage.Version2, stage.Version} { // from now on the store has both, of these images
		stage.Check(t, s.Whole(t.Context(), g, whole, v))
		sh(t, g, `acceld driver upgrade qemu-edu --version "$1"`, v)
	}
	injections := 0
	kill := func(calls, path string, i int) bool {
		from := sh(t, g, "rm -rf /var/lib/acceld/requests /var/lib/acceld/attempts; cat /sys/module/edu/version")
		to := map[string]string{stage.Version: stage.Version2, stage.Version2: stage.Version}[from]
		stage.Check(t, s.Whole(t.Context(), g, whole, to))
		call := sh(t, g, killed, to, fmt.Sprint(i), calls, path)
		if call == "" {
			return false
		}
		injections++
		dead := strings.Fields(sh(t, g, look))
		if len(dead) == 2 && dead[0] != "none" && dead[0] != dead[1] {
			t.Errorf("killed at %s: the module is of version %s, and the library that serves of %s", call, dead[0], dead[1])
		}
		after := sh(t, g, "acceld driver ensure qemu-edu >/dev/null; "+look+"; acceld exec qemu-edu -- edu-smi")
		v := strings.Fields(after)
		t.Logf("%s to %s, killed at %-90.90s (then %v), serves %v", from, to, call, dead, v[:2])
		if v[0] != v[1] || v[0] != from && v[0] != to || !strings.Contains(after, "edu-smi "+v[0]+", module "+v[0]) {
			t.Errorf("%s to %s, killed at %s: %s", from, to, call, after)
		}
		return true
	}
	const rename, remove = "rename,renameat,renameat2", "unlink,unlinkat"
	chosen := sh(t, g, "echo /var/lib/acceld/kmod/current/*")
	for _, step := range []struct{ calls, path string }{
		{rename, "/var/lib/acceld/journal/qemu-edu.json"},
		{remove, "/var/lib/acceld/journal/qemu-edu.json"},
		{rename, chosen},
		{remove, "/run/acceld/driver/qemu-edu"},
		{"symlink,symlinkat", "/run/acceld/driver/.qemu-edu.new"},
		{rename, "/run/acceld/driver/qemu-edu"},
		{"delete_module", ""},
		{"finit_module,init_module", ""},
	} {
		i := 1
		for kill(step.calls, step.path, i) {
			i++
		}
		if i == 1 {
			t.Errorf("no upgrade came to %s %s", step.calls, step.path)
		}
	}
	t.Logf("%d injections", injections)
}
