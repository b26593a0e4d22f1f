package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

// killOn kills the running agent when it enters the first of the calls $1 that names the path $2, and returns once it
// is sure to. The calls are those with which a file gets its name or loses it.
const killOn = `pid=$(pgrep -o -f '^/usr/bin/acceld run')
systemd-run --quiet --collect --unit=killer strace -f -qq -o /tmp/trace -p "$pid" -e signal=none -e trace="$1" -e inject="$1:signal=KILL:when=1" -P "$2"
for i in $(seq 600); do if grep -q '^TracerPid:[[:space:]]*[1-9]' /proc/$pid/task/*/status && ! grep -lq '^TracerPid:[[:space:]]*0' /proc/$pid/task/*/status; then exit 0; fi; sleep 0.1; done
exit 1`

// killedOn waits until that has happened.
const killedOn = `for i in $(seq 600); do systemctl is-active -q killer || exec cat /tmp/trace; sleep 0.1; done
systemctl stop killer; echo "nothing was killed"; exit 1`

const (
	naming   = "rename,renameat,renameat2"
	removing = "unlink,unlinkat"
)

// agentKilledMidway: the agent is killed in the middle of preparing a claim and in the middle of taking it back. The
// kubelet asks the next one again: nothing is lost, nothing is left.
func agentKilledMidway(t *testing.T, n *bed.Node, image string) {
	g := n.Guest
	ctx := stage.Within(t, 12*time.Minute)
	for i, k := range []struct {
		what               string
		prepare, unprepare func(uid string) string
	}{
		{"record", recordOf, specOf}, // the first thing that each of the two does to the disk
		{"CDI spec", specOf, recordOf},
	} {
		name := fmt.Sprintf("midway-%d", i)
		apply(t, n, stage.Claim(name))
		claim, err := clientset.Of(n).ResourceV1().ResourceClaims("default").Get(ctx, name, metav1.GetOptions{})
		stage.Check(t, err)
		sh(t, g, killOn, naming, k.prepare(string(claim.UID)))
		timed(t, "killed while it prepares, at the "+k.what+" -> pod runs", func() {
			apply(t, n, stage.ClaimPod(name, image, "resourceClaimName: "+name, "-expect", "1", "-hold", "2h"))
			t.Logf("killed at %s", sh(t, g, killedOn))
			stage.Check(t, n.WaitPod(ctx, "default", name, corev1.PodRunning))
		})
		offers(t, n, 4)
		given(t, n, 1)
		sh(t, g, killOn, removing, k.unprepare(string(claim.UID)))
		timed(t, "killed while it takes back -> nothing is left", func() {
			_, err := n.Kubectl(ctx, nil, "-n", "default", "delete", "pod", name, "--wait=false")
			stage.Check(t, err)
			t.Logf("killed at %s", sh(t, g, killedOn))
			removeClaims(t, n, name)
		})
		offers(t, n, 4)
	}
}

func recordOf(uid string) string { return records + "/" + uid + ".json" }

// specOf is without the link /var/run: strace compares paths that are not there yet as they are written.
func specOf(uid string) string { return strings.TrimPrefix(claimSpecs, "/var") + uid + ".json" }

// agentUpgraded: the agent's program is replaced and the agent restarted, over and over, while ten pods with a claim
// each start and end. None fails.
func agentUpgraded(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 12*time.Minute)
	apply(t, n, stage.ClaimTemplate("ten"), stage.ClaimJob("ten", image, "resourceClaimTemplateName: ten", 10, 4,
		"-expect", "1", "-hold", "3s"))
	upgrades := 0
	begin := time.Now()
	for {
		job, err := clientset.Of(n).BatchV1().Jobs("default").Get(ctx, "ten", metav1.GetOptions{})
		stage.Check(t, err)
		if job.Status.Failed > 0 {
			t.Errorf("pods failed: %+v", job.Status)
			break
		}
		if job.Status.Succeeded == 10 {
			break
		}
		sh(t, n.Guest,
			"cp /usr/bin/acceld /usr/bin/acceld.next; mv /usr/bin/acceld.next /usr/bin/acceld; systemctl restart acceld.service; systemctl reset-failed acceld.service")
		upgrades++
		time.Sleep(5 * time.Second) // some pods start in peace, some meet the next one
	}
	t.Logf("%d upgrades while ten pods started and ended, %.1f s", upgrades, time.Since(begin).Seconds())
	if upgrades < 3 {
		t.Errorf("only %d upgrades", upgrades)
	}
	_, err := n.Kubectl(ctx, nil, "-n", "default", "delete", "job/ten", "resourceclaimtemplate/ten", "--wait",
		"--cascade=foreground")
	stage.Check(t, err)
	given(t, n, 0)
	offers(t, n, 4)
}

// TestClaimsContainerd gives devices out by claims where the container runtime is containerd.
func TestClaimsContainerd(t *testing.T) {
	n, _, image := claimNode(t, bed.Options{Accelerators: 4, Engine: vm.Containerd})
	inOrder(t, n, image,
		part{"a claim: the pod computes on its device", claimComputes},
		part{"a template: four replicas on four devices", templateReplicas},
		part{"kubelet and runtime restart", claimsOverRestarts},
	)
}
