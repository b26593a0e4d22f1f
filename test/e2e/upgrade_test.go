package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// TestUpgrade replaces a driver that pods use, by every policy, and by one that computes wrongly. Its parts build on
// each other.
func TestUpgrade(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2})
	g := n.Guest
	stage.Check(t, s.Units(t.Context(), g, "kubernetes: {kubeconfig: /etc/acceld/kubeconfig}\n"))
	stage.Check(t, stage.Credentials(t.Context(), n))
	for _, version := range []string{stage.VersionWrong, stage.Version2, stage.Version} {
		stage.Check(t, s.SourceOf(t.Context(), g, version))
		stage.Check(t, s.Store(t.Context(), g, version))
	}
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Enable(t.Context(), g))
	serves(t, g, stage.Version)
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 2))
	inOrder(t, n, image,
		part{"refuse: nothing is changed under a pod, which is named", upgradeRefused},
		part{"wait: nobody new gets a device, and it goes on when the pod ends", upgradeWaits},
		part{"evict: the pod goes", upgradeEvicts},
		part{"a driver that computes wrongly is taken back", upgradeRolledBack},
		part{"killed at every step", upgradeKilled},
	)
}

// serves waits until a version of the driver serves.
func serves(t *testing.T, g *bed.Guest, version string) {
	t.Helper()
	_, err := stage.WaitMachine(stage.Within(t, 5*time.Minute), g, "version "+version+" to serve",
		func(m accel.Machine) bool {
			return m.Status[stage.Kind].State == accel.Ready && m.Have[stage.Kind].Driver.Version == version
		})
	stage.Check(t, err)
	sh(t, g, `test "$(cat /sys/module/edu/version)" = "$1"`, version)
}

// holder starts a pod that holds both devices.
func holder(t *testing.T, n *bed.Node, image string) {
	t.Helper()
	stage.Check(t, n.Apply(stage.Within(t, soon), stage.Pod("holder", image, 2, "-expect", "2", "-hold", "2h")))
	stage.Check(t, n.WaitPod(stage.Within(t, soon), "default", "holder", corev1.PodRunning))
}

func upgradeRefused(t *testing.T, n *bed.Node, image string) {
	holder(t, n, image)
	before := facts(t, n.Guest)
	out := says(t, n.Guest, accel.InUse, "acceld driver upgrade qemu-edu --version 2.0.0 --holders refuse")
	if !strings.Contains(out, "pod default/holder") {
		t.Errorf("the pod is not named: %s", out)
	}
	if after := facts(t, n.Guest); after != before {
		t.Errorf("module before %q, after %q", before, after)
	}
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 2))
}

func upgradeWaits(t *testing.T, n *bed.Node, _ string) {
	sh(t, n.Guest,
		"systemd-run --quiet --unit=upgrade -p RemainAfterExit=yes acceld driver upgrade qemu-edu --version 2.0.0 --holders wait")
	_, err := stage.WaitMachine(stage.Within(t, soon), n.Guest, "the upgrade to wait", func(m accel.Machine) bool {
		u := m.Have[stage.Kind].Driver.Upgrade
		return u != nil && u.Phase == accel.UpgradeDraining && len(u.Holders) > 0
	})
	stage.Check(t, err)
	t.Logf("acceld status:\n%s", sh(t, n.Guest, "acceld status || true"))
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 0))
	sh(t, n.Guest, `test "$(cat /sys/module/edu/version)" = 1.0.0`)
	remove(t, n, "holder")
	timed(t, "the holder has ended -> version 2.0.0 serves", func() { serves(t, n.Guest, stage.Version2) })
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 2))
}

func upgradeEvicts(t *testing.T, n *bed.Node, image string) {
	holder(t, n, image)
	timed(t, "asked -> pod evicted, version 1.0.0 serves", func() {
		t.Logf("%s", sh(t, n.Guest, "acceld driver upgrade qemu-edu --version 1.0.0 --holders evict"))
		serves(t, n.Guest, stage.Version)
	})
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 2))
	remove(t, n, "holder")
	podComputes(t, n, image)
}

func upgradeRolledBack(t *testing.T, n *bed.Node, _ string) {
	timed(t, "asked for version 3.0.0 -> taken back", func() {
		t.Logf("%s", says(t, n.Guest, accel.RolledBack, "acceld driver upgrade qemu-edu --version 3.0.0"))
	})
	serves(t, n.Guest, stage.Version)
	sh(t, n.Guest, "edu-check -expect 2")
}

// killed runs an upgrade without an agent and kills it on entering a call that lasts, the $2-th one of a thread: a step
// of the journal, the choice or the mark of an attempt takes its name, a module goes or comes, or one of the calls that
// $3 names, with the path $4 if there is one. It prints the call, or nothing when there are fewer. strace dies of the
// same signal, sometimes before it has written of whom it was.
const killed = `calls=${3:-rename,renameat,renameat2,finit_module,init_module,delete_module}
strace -f -q ${4:+-P "$4"} -o /tmp/trace -e signal=none -e trace=$calls -e inject=$calls:signal=KILL:when=$2 acceld driver upgrade qemu-edu --version "$1" >/tmp/upgrade 2>&1 || true
while pkill -KILL -x acceld; do sleep 0.05; done
if grep -q -e 'killed by SIGKILL' -e '= ?$' /tmp/trace; then grep -v '+++' /tmp/trace | grep -e '= ?' -e unfinished | tail -n 1 | grep . || grep -v '+++' /tmp/trace | tail -n 1; fi`

// upgradeKilled: whatever an upgrade was doing when it was killed, the next look at the driver completes it or takes it
// back. One that goes well leads to the other good version each time, one that goes wrong back to where it was.
func upgradeKilled(t *testing.T, n *bed.Node, _ string) {
	g := n.Guest
	sh(t, g, "systemctl stop acceld.socket acceld.service")
	for _, wrong := range []bool{false, true} {
		for i := 1; ; i++ {
			from := sh(t, g, "rm -rf /var/lib/acceld/requests /var/lib/acceld/attempts; cat /sys/module/edu/version")
			to := map[string]string{stage.Version: stage.Version2, stage.Version2: stage.Version}[from]
			if wrong {
				to = stage.VersionWrong
			}
			call := sh(t, g, killed, to, fmt.Sprint(i))
			if call == "" {
				break
			}
			after := sh(t, g,
				`acceld driver ensure qemu-edu >/dev/null; cat /sys/module/edu/version; ls /var/lib/acceld/journal; edu-check -expect 2 >/dev/null`)
			t.Logf("%s to %s, killed at %-90.90s then serves %s", from, to, call, after)
			if after != from && (after != to || wrong) {
				t.Errorf("%s to %s, killed at %s: %q serves", from, to, call, after)
			}
		}
	}
}
