package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

// onDemand is the definition of the kind whose devices are divided for claims.
func onDemand(t *testing.T, s *stage.Stage, more string) string {
	t.Helper()
	text := readFile(t, s.File("vendors/qemu/edu.yaml"))
	for old, now := range map[string]string{
		"  profiles:\n": "  make: {file: partitions, whole: \"1\"" + more + "}\n  profiles:\n",
		"    - name: half\n      capacity: [{name: memory, file: memory}]\n": "    - name: half\n      make: \"2\"\n" +
			"      possible: [p0, p1]\n      capacity: [{name: memory, value: 2Ki}]\n",
		"    - name: quarter\n      capacity: [{name: memory, file: memory}]\n": "    - name: quarter\n      make: \"4\"\n" +
			"      possible: [p0, p1, p2, p3]\n      capacity: [{name: memory, value: 1Ki}]\n",
	} {
		if !strings.Contains(text, old) {
			t.Fatalf("the definition has no %q", old)
		}
		text = strings.Replace(text, old, now, 1)
	}
	return text
}

// byParts is the configuration of an agent that divides devices for claims.
const byParts = byClaims + "sampleEvery: 1s\n"

// TestPartsOnDemand: a claim asks for a part of a device, the part is made, proven, used and unmade; with kill -9 of
// the agent at random moments, over a reboot and a purge. Nobody loses a device that is in use.
func TestPartsOnDemand(t *testing.T) {
	n, s, image := claimNode(t, bed.Options{Accelerators: 2})
	g := n.Guest
	stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/config.yaml", []byte(byParts), 0o644))
	stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/definitions.d/edu.yaml", []byte(onDemand(t, s, "")), 0o644))
	if !inOrder(t, n, image,
		part{"what could be made is published", partsPublished},
		part{"a part is made, used and unmade", partMade},
		part{"both devices in parts, and whoever wants a whole one waits", partsAtOnce},
		part{"a device that somebody has open is not divided", partsOfAUsedDevice},
		part{"claims at random, the agent is killed", partsKilled},
	) {
		return
	}
	t.Run("parts are made before pods are bound", func(t *testing.T) { partsBeforeBinding(t, n, s, image) })
	t.Run("the guest reboots with a part held", func(t *testing.T) { partOverReboot(t, n, image) })
	t.Run("a purge makes devices whole", func(t *testing.T) {
		startPart(t, n, image, "purged", "half", "-hold", "2h")
		_, err := n.Kubectl(t.Context(), nil, "-n", "default", "delete", "pod", "purged", "--wait=false")
		stage.Check(t, err)
		sh(t, g, `systemctl stop acceld.service; for i in $(seq 300); do pgrep edu-check >/dev/null || exit 0; sleep 0.1; done; exit 1`)
		if got := divisions(t, g); !strings.Contains(got, "2") {
			t.Errorf("before the purge: %s", got)
		}
		out := sh(t, g, "acceld purge")
		t.Logf("acceld purge:\n%s", out)
		if !strings.Contains(out, "it is whole again") {
			t.Error("no device was made whole")
		}
		sh(t, g, "! test -e /run/acceld/divided")
	})
}

// divisions are the attributes that divide the devices, and the journals.
func divisions(t *testing.T, g *bed.Guest) string {
	t.Helper()
	return sh(t, g, `cat /sys/bus/pci/drivers/edu/0*/partitions | xargs; ls /run/acceld/divided 2>/dev/null || true`)
}

// wholeAgain waits until every device is whole and offered, with nothing left to do.
func wholeAgain(t *testing.T, n *bed.Node) {
	t.Helper()
	has(t, n.Guest, "two whole devices", func(m accel.Machine) bool {
		whole := 0
		for _, a := range m.Have[stage.Kind].Accelerators {
			if a.Offered() && a.Divided == nil && !a.Partitioned() {
				whole++
			}
		}
		return whole == 2 && m.Status[stage.Kind].State == accel.Ready
	})
	if got := divisions(t, n.Guest); got != "1 1" {
		t.Errorf("the devices are %q", got)
	}
}

// partClaim is a claim for a part, and a pod that computes on it.
func partClaim(name, profile, image string, args ...string) []byte {
	claim := stage.Claim(name)
	if profile != "" {
		claim = []byte(strings.Replace(string(claim), "deviceClassName: "+stage.Class, "deviceClassName: "+profile+"."+
			stage.Class, 1))
	}
	return append(claim, stage.ClaimPod(name, image, "resourceClaimName: "+name, append([]string{"-expect", "1"}, args...)...)...)
}

// startPart starts a pod on a part and waits until it computes.
func startPart(t *testing.T, n *bed.Node, image, name, profile string, args ...string) {
	t.Helper()
	apply(t, n, partClaim(name, profile, image, args...))
	stage.Check(t, n.WaitPod(stage.Within(t, 2*soon), "default", name, corev1.PodRunning))
	awaitLog(t, n, name, " alive, ")
}

func partsPublished(t *testing.T, n *bed.Node, _ string) {
	ctx := stage.Within(t, 3*time.Minute)
	for { // two devices, each with two halves and four quarters, and counters that keep them apart
		got, sets := untainted(ctx, t, n), 0
		for _, slice := range slicesOf(ctx, t, n) {
			for _, set := range slice.Spec.SharedCounters {
				if len(set.Counters) == 3 {
					sets++
				}
			}
		}
		if len(got) == 14 && sets == 2 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%d counter sets, %v", sets, got)
		}
		time.Sleep(200 * time.Millisecond)
	}
	wholeAgain(t, n)
}

func partMade(t *testing.T, n *bed.Node, image string) {
	timed(t, "claim for a half -> its pod computes", func() { startPart(t, n, image, "half", "half", "-hold", "2h") })
	log, err := n.PodLog(t.Context(), "default", "half")
	stage.Check(t, err)
	if !strings.Contains(log, "/dev/edu0p") && !strings.Contains(log, "/dev/edu1p") {
		t.Errorf("log of the pod: %s", log)
	}
	if status := sh(t, n.Guest, "acceld status || true"); !strings.Contains(status, "divided for") {
		t.Errorf("acceld status:\n%s", status)
	}
	timed(t, "a second half of the device -> its pod computes", func() {
		startPart(t, n, image, "other", "half", "-hold", "2h")
	})
	timed(t, "claims over -> the devices are whole", func() {
		removeClaims(t, n, "half", "other")
		wholeAgain(t, n)
	})
}

func partsAtOnce(t *testing.T, n *bed.Node, image string) {
	var names []string
	for i := range 6 {
		profile := "quarter"
		if i < 2 {
			profile = "half"
		}
		names = append(names, fmt.Sprintf("%s-%d", profile, i))
		apply(t, n, partClaim(names[i], profile, image, "-hold", "2h"))
	}
	for _, name := range names {
		stage.Check(t, n.WaitPod(stage.Within(t, 2*soon), "default", name, corev1.PodRunning))
		awaitLog(t, n, name, " alive, ")
	}
	if got := divisions(t, n.Guest); !strings.HasPrefix(got, "2 4") && !strings.HasPrefix(got, "4 2") {
		t.Errorf("the devices are %q", got)
	}
	apply(t, n, partClaim("whole", "", image))
	awaitEvent(stage.Within(t, soon), t, n, "whole", "cannot allocate all claims")
	removePods(t, n, names[:2]...)
	timed(t, "the halves are over -> a pod has the whole device", func() {
		stage.Check(t, n.WaitPod(stage.Within(t, 3*time.Minute), "default", "whole", corev1.PodSucceeded))
	})
	removeClaims(t, n, append(names, "whole")...)
	wholeAgain(t, n)
}

// removePods deletes pods and their claims.
func removePods(t *testing.T, n *bed.Node, names ...string) {
	t.Helper()
	for _, kind := range []string{"pod", "resourceclaim"} {
		_, err := n.Kubectl(stage.Within(t, 2*soon), nil,
			append([]string{"-n", "default", "delete", kind, "--wait", "--ignore-not-found"}, names...)...)
		stage.Check(t, err)
	}
}

// partsOfAUsedDevice: processes of the host have both devices open. No claim divides one, and the pod's event says why.
func partsOfAUsedDevice(t *testing.T, n *bed.Node, image string) {
	g := n.Guest
	sh(t, g, "systemd-run --unit=holder sh -c 'exec 3<>/dev/edu0 4<>/dev/edu1; exec sleep 1h'; sleep 1")
	apply(t, n, partClaim("waits", "half", image))
	awaitEvent(stage.Within(t, soon), t, n, "waits", "is in use by")
	if got := divisions(t, g); got != "1 1" {
		t.Errorf("under a process: %q", got)
	}
	sh(t, g, "systemctl is-active holder; systemctl stop holder")
	stage.Check(t, n.WaitPod(stage.Within(t, 3*time.Minute), "default", "waits", corev1.PodSucceeded))
	removeClaims(t, n, "waits")
	wholeAgain(t, n)
}

// partsKilled: claims for parts and for whole devices come and go at random while the agent is killed again and again.
// Every pod computes, and in the end the devices are whole. ACCELD_PARTS_CLAIMS is how many claims; 6 by default.
func partsKilled(t *testing.T, n *bed.Node, image string) {
	claims := wanted("ACCELD_PARTS_CLAIMS", 6)
	g := n.Guest
	restart := restartTime(t, g)
	stop := killing(t, g, restart/2, 3*restart) // of the agents, some must live until they serve
	begin := time.Now()
	var running []string
	for i := range claims {
		name := fmt.Sprintf("random-%d", i)
		profile := []string{"half", "quarter", "quarter", ""}[rand.IntN(4)]
		apply(t, n, partClaim(name, profile, image))
		running = append(running, name)
		if len(running) == 3 {
			done := running[rand.IntN(3)]
			running = drop(running, done)
			stage.Check(t, n.WaitPod(stage.Within(t, 6*time.Minute), "default", done, corev1.PodSucceeded))
			removePods(t, n, done)
		}
	}
	for _, name := range running {
		stage.Check(t, n.WaitPod(stage.Within(t, 6*time.Minute), "default", name, corev1.PodSucceeded))
	}
	kills := sh(t, g, "journalctl -u acceld.service | grep -c 'status=9/KILL' || true")
	t.Logf("%d claims, %s kills, %.0f s", claims, kills, time.Since(begin).Seconds())
	stop()
	removeClaims(t, n, running...)
	wholeAgain(t, n)
}

func drop(all []string, one string) (out []string) {
	for _, x := range all {
		if x != one {
			out = append(out, x)
		}
	}
	return out
}

// partOverReboot: the parts are gone with the boot, the kubelet asks again, and the pod computes on its part again.
func partOverReboot(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 15*time.Minute)
	apply(t, n, restarted(partClaim("over", "half", image, "-hold", "2h")))
	stage.Check(t, n.WaitPod(ctx, "default", "over", corev1.PodRunning))
	stage.Check(t, n.Reboot(ctx, bed.Reboot{}))
	sh(t, n.Guest, `for i in $(seq 600); do pgrep edu-check >/dev/null && exit 0; sleep 0.2; done; exit 1`)
	if got := divisions(t, n.Guest); !strings.Contains(got, "2") {
		t.Errorf("after the boot: %q", got)
	}
	removeClaims(t, n, "over")
	wholeAgain(t, n)
}

// partsBeforeBinding: a pod waits for its part before it is bound, and one whose part cannot be made goes elsewhere.
func partsBeforeBinding(t *testing.T, n *bed.Node, s *stage.Stage, image string) {
	g := n.Guest
	define := func(more string) {
		stage.Check(t, g.WriteFile(t.Context(), "/etc/acceld/definitions.d/edu.yaml", []byte(onDemand(t, s, more)), 0o644))
	}
	define(", beforeBinding: true")
	defer define("")
	conditions(t, n, 12)
	timed(t, "claim for a half -> made before its pod is bound -> the pod computes", func() {
		startPart(t, n, image, "ahead", "half", "-hold", "2h")
	})
	awaitEvent(stage.Within(t, soon), t, n, "ahead", "waiting for binding conditions")
	claim, err := clientset.Of(n).ResourceV1().ResourceClaims("default").Get(t.Context(), "ahead", metav1.GetOptions{})
	stage.Check(t, err)
	if d := claim.Status.Devices; len(d) != 1 || len(d[0].Conditions) != 1 || d[0].Conditions[0].Type != "acceld.dev/Made" {
		t.Errorf("the claim's status: %+v", d)
	}
	removeClaims(t, n, "ahead")
	wholeAgain(t, n)
	sh(t, g, "systemd-run --unit=holder sh -c 'exec 3<>/dev/edu0 4<>/dev/edu1; exec sleep 1h'; sleep 1")
	apply(t, n, bytes.Replace(partClaim("elsewhere", "half", image), []byte("restartPolicy: Never"),
		[]byte("restartPolicy: Never\n  tolerations: [{operator: Exists}]"), 1)) // of a node without a kubelet
	awaitEvent(stage.Within(t, soon), t, n, "elsewhere", "is in use by")
	apply(t, n, []byte(elsewhere))
	timed(t, "cannot be made -> bound to another node", func() {
		ctx := stage.Within(t, 3*time.Minute)
		for {
			pod, err := clientset.Of(n).CoreV1().Pods("default").Get(ctx, "elsewhere", metav1.GetOptions{})
			stage.Check(t, err)
			if pod.Spec.NodeName == "elsewhere" {
				return
			}
			if pod.Spec.NodeName != "" {
				t.Fatalf("the pod is bound to %q", pod.Spec.NodeName)
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	if got := divisions(t, g); got != "1 1" {
		t.Errorf("under a process: %q", got)
	}
	_, err = n.Kubectl(t.Context(), nil, "-n", "default", "delete", "pod", "elsewhere", "--force", "--grace-period=0")
	stage.Check(t, err)
	_, err = n.Kubectl(t.Context(), nil, "delete", "resourceslice/elsewhere", "node/elsewhere")
	stage.Check(t, err)
	sh(t, g, "systemctl stop holder")
	removeClaims(t, n, "elsewhere")
	wholeAgain(t, n)
}

// conditions waits until as many devices in the slices have binding conditions.
func conditions(t *testing.T, n *bed.Node, want int) {
	t.Helper()
	ctx := stage.Within(t, 3*time.Minute)
	for {
		got := 0
		for _, slice := range slicesOf(ctx, t, n) {
			for _, d := range slice.Spec.Devices {
				if len(d.BindingConditions) == 1 && d.BindsToNode != nil && *d.BindsToNode {
					got++
				}
			}
		}
		if got == want {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%d devices have conditions, want %d", got, want)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// elsewhere is a node without a kubelet that has a half.
const elsewhere = `---
apiVersion: v1
kind: Node
metadata: {name: elsewhere}
spec: {taints: []}
status:
  allocatable: {cpu: "4", memory: 8Gi, pods: "10"}
  capacity: {cpu: "4", memory: 8Gi, pods: "10"}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: elsewhere}
spec:
  driver: qemu-edu.acceld.dev
  nodeName: elsewhere
  pool: {name: elsewhere, generation: 1, resourceSliceCount: 1}
  devices:
  - name: half
    attributes: {profile: {string: half}}
`
