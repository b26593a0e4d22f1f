package e2e

import (
	"strings"
	"testing"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// companion is the unit of the daemon that [stage.Companion] describes.
const companion = "acceld-companion-qemu-edu.stay.service"

// companionRuns checks that the daemon is of the version that serves and has both devices open, and returns its
// process.
func companionRuns(t *testing.T, g *bed.Guest, version string) string {
	t.Helper()
	return strings.TrimSpace(sh(t, g, `pid=$(systemctl show -P MainPID "$1"); readlink /proc/$pid/exe >&2
test "$(readlink /proc/$pid/exe)" = "$(readlink -f /run/acceld/driver/qemu-edu)/usr/bin/edu-stayd"
test "$(cat /run/edu-stay/ready)" = "$2"; test "$(ls -l /proc/$pid/fd | grep -c /dev/edu)" = 2; echo $pid`, companion, version))
}

// TestCompanion: the daemon of a driver, by the host's own systemd. It has the devices open, and yet the driver can be
// unloaded and replaced; the agent is not its parent; what fails has a reason; a purge leaves nothing of it.
func TestCompanion(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2, NoKubernetes: true})
	g := n.Guest
	for _, v := range []string{stage.Version, stage.Version2} {
		_, err := s.Root(t.Context(), n.Guest, "edu-root:"+v, v, v)
		stage.Check(t, err)
	}
	image := n.Image("edu-root:{{.DriverVersion}}")
	stage.Check(t, s.Units(t.Context(), g, ""))
	stage.Check(t, g.Put(t.Context(), s.Program("tree"), "/usr/bin/tree", 0o755))
	sh(t, g, nothingToBuildWith)
	before, err := stage.Files(stage.Within(t, soon), g)
	stage.Check(t, err)
	stage.Check(t, s.Attended(t.Context(), g, image, stage.Version, ""))
	var first string
	t.Run("it starts with the driver, and the agent is not its parent", func(t *testing.T) {
		stage.Check(t, s.Enable(t.Context(), g))
		timed(t, "agent started -> ready", func() { serves(t, g, stage.Version) })
		first = companionRuns(t, g, stage.Version)
		sh(t, g, `pid=$1; kill -9 "$2"; sleep 1; until acceld status >/dev/null 2>&1; do sleep 0.2; done`, first, agentPID(t, g))
		serves(t, g, stage.Version)
		if again := companionRuns(t, g, stage.Version); again != first {
			t.Errorf("process %s before the agent was killed, %s after", first, again)
		}
		t.Logf("acceld status:\n%s", sh(t, g, "acceld status; systemctl status --no-pager "+companion))
	})
	t.Run("systemd starts it again", func(t *testing.T) {
		timed(t, "killed -> it runs again", func() {
			sh(t, g, `kill -9 "$2"; until p=$(systemctl show -P MainPID "$1"); test "$p" != "$2" && test "$p" != 0 && test -e /run/edu-stay/ready; do sleep 0.05; done`,
				companion, first)
		})
		serves(t, g, stage.Version)
		companionRuns(t, g, stage.Version)
	})
	t.Run("stopped by somebody, it is started again", func(t *testing.T) {
		sh(t, g, `systemctl stop "$1"; test ! -e /run/edu-stay; acceld driver ensure qemu-edu >&2`, companion)
		companionRuns(t, g, stage.Version)
	})
	t.Run("an upgrade replaces it, and waits for users all the same", func(t *testing.T) {
		sh(t, g, "systemd-run --unit=holder edu-check -expect 2 -hold 2h")
		stage.Check(t, s.Attended(t.Context(), g, image, stage.Version2, ""))
		_, err := stage.WaitMachine(stage.Within(t, soon), g, "the holder is named", func(m accel.Machine) bool {
			u := m.Have[stage.Kind].Driver.Upgrade
			return u != nil && len(u.Holders) == 1 && u.Holders[0].Comm == "edu-check"
		})
		stage.Check(t, err)
		companionRuns(t, g, stage.Version)
		sh(t, g, "systemctl stop holder")
		timed(t, "the user is gone -> 2.0.0 serves", func() { serves(t, g, stage.Version2) })
		companionRuns(t, g, stage.Version2)
	})
	t.Run("a reset does not find it in its way", func(t *testing.T) {
		sh(t, g, "acceld reset 0000:01:00.0 >&2")
		serves(t, g, stage.Version2)
		companionRuns(t, g, stage.Version2)
	})
	t.Run("one that does not start", func(t *testing.T) {
		stage.Check(t, s.Attended(t.Context(), g, image, stage.Version2, "broken"))
		_, err := stage.WaitMachine(stage.Within(t, 2*soon), g, "the reason", stage.Blocked(accel.CompanionDown))
		stage.Check(t, err)
		out := sh(t, g, `acceld status || true; journalctl -u "$1" | tail -20`, companion)
		if !strings.Contains(out, "journalctl -u "+companion) || !strings.Contains(out, "told to be broken") {
			t.Errorf("it is said like this:\n%s", out)
		}
		stage.Check(t, s.Attended(t.Context(), g, image, stage.Version2, ""))
		serves(t, g, stage.Version2)
		companionRuns(t, g, stage.Version2)
	})
	t.Run("unload and purge", func(t *testing.T) {
		sh(t, g, `systemctl stop acceld.socket acceld.service; acceld driver unload qemu-edu; test ! -e /sys/module/edu; test ! -e "/run/edu-stay"`)
		t.Log(sh(t, g, "acceld driver ensure qemu-edu; systemctl is-active "+companion))
		t.Log(sh(t, g, "acceld purge"))
		sh(t, g, `test ! -e /sys/module/edu; test "$(systemctl is-active "$1")" = inactive; test ! -e /run/edu-stay`, companion)
		after, err := stage.Files(stage.Within(t, soon), g)
		stage.Check(t, err)
		if diff := stage.Unlike(before, after, "/etc/acceld/definitions.d", ".wants/acceld"); diff != "" {
			t.Errorf("the host is not as it was:\n%s", diff)
		}
	})
}
