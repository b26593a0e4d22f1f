package power

import (
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// soon is for what follows a boot, on a machine that is emulated and busy.
const soon = 4 * time.Minute

// TestPowerCutsOfAHost: a host with systemd and the agent as its unit loses the power in the middle of what the agent
// does, and with it all that was not flushed. QEMU is killed, and the host boots from what is left. In the end a purge
// leaves it as it was.
func TestPowerCutsOfAHost(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{NoKubernetes: true, Accelerators: 1, LosesCache: true})
	g := n.Guest
	sh := func(script string, args ...string) string { t.Helper(); return stage.Sh(t, g, soon, script, args...) }
	reaches := func(what string, version string) {
		t.Helper()
		began := time.Now()
		_, err := stage.WaitMachine(stage.Within(t, soon), g, what, func(m accel.Machine) bool {
			return m.Status[stage.Kind].State == accel.Ready && m.Have[stage.Kind].Driver.Version == version
		})
		stage.Check(t, err)
		t.Logf("%-70s %6.1f s", what, time.Since(began).Seconds())
	}
	// cut takes the power away as soon as the condition holds, and says which files it has lost.
	cut := func(what, condition string) {
		t.Helper()
		began := time.Now()
		sh("for i in $(seq 3000); do if " + condition +
			"; then exit 0; fi; sleep 0.01; done; echo waited in vain >&2; exit 1")
		stage.Check(t, g.Reboot(stage.Within(t, soon), bed.Reboot{PowerCut: true}))
		t.Logf("%-70s %6.1f s", "the power goes "+what+"; booted again", time.Since(began).Seconds())
	}

	stage.Check(t, s.Units(t.Context(), g, ""))
	stage.Check(t, g.Put(t.Context(), s.Program("tree"), "/usr/bin/tree", 0o755))
	for _, v := range []string{stage.Version, stage.Version2} {
		stage.Check(t, s.SourceOf(t.Context(), g, v))
	}
	sh(
		`mkdir -p /etc/containerd; printf '# ours\nversion = 2\n' > /etc/containerd/config.toml; systemctl enable acceld.socket acceld.service acceld-early.service; sync`)
	before, err := stage.Files(stage.Within(t, soon), g)
	stage.Check(t, err)
	for _, v := range []string{stage.Version, stage.Version2} {
		stage.Check(t, s.Store(stage.Within(t, 8*time.Minute), g, v))
	}
	sh("sync")

	sh("systemctl start --no-block acceld.socket acceld.service")
	// The record of the attempt exists only during the load; afterwards, kmod/current shows that there was one.
	cut("while the driver is loaded for the first time",
		"set -- /var/lib/acceld/attempts/*.json; test -e $1 || { set -- /var/lib/acceld/kmod/current/*; test -e $1; }")
	reaches("ready again", stage.Version)

	stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/config.yaml",
		[]byte("kinds: {qemu-edu: {driver: {version: \"2.0.0\"}}}\n"), 0o644))
	sh("sync")
	cut("in the middle of an upgrade", "test -e /var/lib/acceld/journal/qemu-edu.json")
	reaches("upgraded", stage.Version2)

	sh(`acceld runtime apply --engine=containerd --edit=full --config-only >/dev/null 2>&1 & wait`)
	cut("after the configuration of a container runtime was changed", "true")
	reaches("ready again", stage.Version2)
	if text := sh("cat /etc/containerd/config.toml /etc/containerd/conf.d/*.toml"); !strings.Contains(text,
		"imports") || !strings.Contains(text, "cdi") {
		t.Errorf("the configuration of the container runtime is\n%s", text)
	}

	sh(
		"systemctl disable acceld.socket acceld.service acceld-early.service; systemctl stop acceld.socket acceld.service; systemctl enable acceld.socket acceld.service acceld-early.service; sync")
	sh("(acceld purge >/tmp/purge 2>&1 &) ; true")
	cut("in the middle of a purge", "test ! -d /sys/module/edu || ! grep -q imports /etc/containerd/config.toml")
	reaches("the agent starts after half a purge", stage.Version2)

	sh("systemctl stop acceld.socket acceld.service; acceld purge")
	stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/config.yaml", nil, 0o644))
	after, err := stage.Files(stage.Within(t, soon), g)
	stage.Check(t, err)
	// What the test itself wrote again.
	if diff := stage.Unlike(before, after, "/etc/acceld/config.yaml", ".wants/acceld"); diff != "" {
		t.Errorf("the host is not as it was:\n%s", diff)
	}
}
