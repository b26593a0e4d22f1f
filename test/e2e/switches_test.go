package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
)

// TestSwitches lets cards have three lives in turn, at random: in a container with their driver, in parts that are
// made for claims, and with VFIO for a driver in user space. In each a container computes, on the card that its claim
// has, and the agent is killed at random moments of one call in twenty. In the end nothing is lost.
//
// A pod of the kubelet takes too long for as many switches as are wanted, so a program plays the scheduler and the
// kubelet at the agent's socket; the API server, the container runtime and the devices are real. TestLives and
// TestPartsOnDemand have the same with the kubelet. ACCELD_SWITCHES is how many lives there are, ACCELD_SEED repeats an
// order.
func TestSwitches(t *testing.T) {
	n, s, _ := claimNode(t, virtualIOMMU())
	g := n.Guest
	stage.Check(t, g.Put(t.Context(), s.Program("switches"), "/usr/bin/switches", 0o755))
	stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/config.yaml", []byte(bySwitching), 0o644))
	stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/definitions.d/edu.yaml", []byte(onDemand(t, s, "")), 0o644))
	partsPublished(t, n, "")
	before := bindings(t, g)
	lives := wanted("ACCELD_SWITCHES", 30)
	sh(t, g, startsAtOnce)
	sh(t, g, fmt.Sprintf(`systemd-run --unit=switches --property=Type=exec --remain-after-exit switches -kubeconfig /etc/acceld/kubeconfig \
		-driver %s -node %s -count %d -seed %d -kill "%s"`, stage.Class, n.Name(), lives, seed(t), killsAgent))
	ended := func() string {
		return sh(t, g, `systemctl show -p SubState --value switches`)
	}
	for end := time.Now().Add(time.Duration(lives) * soon); ended() == "running"; time.Sleep(5 * time.Second) {
		if time.Now().After(end) {
			t.Error("it does not end")
			break
		}
	}
	said := sh(t, g, "journalctl -u switches -o cat")
	t.Logf("%s", said)
	if got := ended(); got != "exited" || !strings.Contains(said, "\nlives map[") {
		t.Errorf("it ended as %q", got)
	}
	sh(t, g, "systemctl start acceld.service")
	reaches(t, g, accel.Ready, soon)
	wholeAgain(t, n)
	if after := bindings(t, g); after != before {
		t.Errorf("bindings are\n%s\nbefore\n%s", after, before)
	}
	given(t, n, 0)
}
