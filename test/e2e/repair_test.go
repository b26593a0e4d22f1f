package e2e

import (
	"fmt"
	"slices"
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

// TestRepair is the whole way of a device that fails under a pod: offered to nobody, its pod evicted and started again
// on another device, reset, proven, offered. The pod on the device beside it computes all the while. Then the same with
// an agent that is killed at each step of the reset.
func TestRepair(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 3})
	stage.Check(t, s.Units(t.Context(), n.Guest, repairs(accel.AllocateByPlugin, accel.RepairEvict)))
	stage.Check(t, stage.Credentials(t.Context(), n))
	stage.Check(t, s.Store(t.Context(), n.Guest, stage.Version))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Enable(t.Context(), n.Guest))
	reaches(t, n.Guest, accel.Ready, 5*time.Minute)
	inOrder(t, n, image, part{"by the device plugin", repairedUnderPods}, part{"by claims", repairedUnderClaims},
		part{"as a dry run", wouldBeRepaired})
}

// repairs is the configuration of an agent that repairs devices.
func repairs(by accel.Allocation, reset accel.RepairReset) string {
	return fmt.Sprintf(`kubernetes: {kubeconfig: /etc/acceld/kubeconfig, allocation: %s}
kinds:
  qemu-edu:
    repair: {reset: %s, attempts: 20}
`, by, reset)
}

// deployment is a Deployment of one pod with one device.
func deployment(name, image string) []byte {
	return fmt.Appendf(nil, `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: default}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: compute
        image: %[2]s
        args: ["-expect", "1", "-hold", "2h"]
        resources: {limits: {%[3]s: 1}}
`, name, image, stage.Resource)
}

// TestRepairLimits: a node with a sick device that a pod has evicts nobody and resets nothing until the policy that
// limits repairs gives it a slot, and gives the slot back afterwards. The controller and the policy are real.
func TestRepairLimits(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2})
	stage.Check(t, s.Store(t.Context(), n.Guest, stage.Version))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Deploy(t.Context(), n))
	rights, err := n.Kubectl(t.Context(), nil, "kustomize", s.File("packaging/manifests/evict"))
	stage.Check(t, err)
	apply(t, n, []byte(rights))
	stage.StartController(t, n, s, "")
	reaches(t, n.Guest, accel.Ready, 5*time.Minute)
	limited := func(paused bool) {
		apply(t, n, fmt.Appendf(nil, `apiVersion: acceld.dev/v1alpha1
kind: AcceleratorPolicy
metadata: {name: edu}
spec:
  kinds: {qemu-edu: {repair: {reset: evict}}}
  repair: {paused: %t}
`, paused))
	}
	limited(true)
	await := func(what string, ok func(m accel.Machine) bool) {
		t.Helper()
		m, err := stage.WaitMachine(stage.Within(t, 2*soon), n.Guest, what, ok)
		for _, a := range m.Have[stage.Kind].Accelerators {
			t.Logf("%s: %s %s %v", what, a.ID, a.Health.State, a.Repair)
		}
		stage.Check(t, err)
	}
	await("the policy to limit repairs", func(m accel.Machine) bool {
		def := m.Want.Kinds[stage.Kind]
		return def.Repair != nil && def.Repair.By == "edu"
	})
	apply(t, n, deployment("victim", image))
	loop := repairLoop{Node: n}
	pod := loop.replaced(t, "")
	sh(t, n.Guest, stage.Sicken, held(t, n.Guest))
	await("the node to ask", func(m accel.Machine) bool {
		return m.Have[stage.Kind].RepairReport.Value.String() == "waiting 1/2"
	})
	says := func(reason string) {
		t.Helper()
		_, err := n.Kubectl(stage.Within(t, 2*soon), nil, "wait", "acceleratorpolicy/edu", "--timeout=1m",
			`--for=jsonpath={.status.conditions[?(@.type=="Repair")].reason}=`+reason)
		stage.Check(t, err)
	}
	says("Waiting")
	_, err = n.Kubectl(stage.Within(t, soon), nil, "wait", "acceleratorpolicy/edu", "--timeout=1m",
		"--for=jsonpath={.status.blocked[0].reason}=RepairPaused")
	stage.Check(t, err)
	time.Sleep(15 * time.Second) // longer than between two looks
	if same := loop.replaced(t, ""); same != pod {
		t.Errorf("pod %s was evicted without a slot", pod)
	}
	begin := time.Now()
	limited(false)
	loop.replaced(t, pod)
	await("the device to be repaired", func(m accel.Machine) bool {
		return accel.CountUsable(m.Have[stage.Kind].Accelerators) == 2 && stage.InState(accel.Ready)(m)
	})
	t.Logf("slot -> repaired %.1f s", time.Since(begin).Seconds())
	says("Idle")
	stage.Check(t, n.WaitNode(stage.Within(t, soon), "the permission to be withdrawn", func(node *corev1.Node) bool {
		return node.Annotations[accel.RepairAnnotation+stage.Kind] == "" &&
			!accel.ParseRepairPermit(node.Annotations[accel.AllowRepairAnnotation+stage.Kind]).Given
	}))
	slots, err := n.Kubectl(stage.Within(t, soon), nil, "get", "acceleratorpolicy/edu", "-o=jsonpath={.status.slots}")
	stage.Check(t, err)
	if strings.Trim(slots, "[]") != "" {
		t.Errorf("slots: %s", slots)
	}
	repairedAfterMaintenance(t, n, loop, await)
}

// repairedAfterMaintenance: while somebody else says that they work on the node, a sick device keeps its pod, and the
// policy names the condition. When they have ended, the device is repaired.
func repairedAfterMaintenance(t *testing.T, n *bed.Node, loop repairLoop,
	await func(what string, ok func(m accel.Machine) bool),
) {
	t.Helper()
	works := func(status string) {
		t.Helper()
		_, err := n.Kubectl(stage.Within(t, soon), nil, "patch", "node", n.Name(), "--subresource=status", "-p", fmt.Sprintf(
			`{"status":{"conditions":[{"type":"MaintenanceInProgress","status":%q,"reason":"FanReplacement"}]}}`, status))
		stage.Check(t, err)
	}
	works("True")
	await("the condition to be seen", func(m accel.Machine) bool {
		return accel.Hinders(m.Facts.Maintenance, accel.RepairWork, nil) != nil
	})
	pod := loop.replaced(t, "")
	sh(t, n.Guest, stage.Sicken, held(t, n.Guest))
	await("the repair to wait", func(m accel.Machine) bool {
		return slices.ContainsFunc(m.Have[stage.Kind].Accelerators, func(a accel.Accelerator) bool {
			return a.Repair != nil && strings.Contains(a.Repair.Message, "reason FanReplacement by condition MaintenanceInProgress")
		})
	})
	_, err := n.Kubectl(stage.Within(t, soon), nil, "wait", "acceleratorpolicy/edu", "--timeout=1m",
		"--for=jsonpath={.status.blocked[0].reason}=RepairUnderMaintenance")
	stage.Check(t, err)
	time.Sleep(15 * time.Second) // longer than between two looks
	if same := loop.replaced(t, ""); same != pod {
		t.Errorf("pod %s was evicted under maintenance", pod)
	}
	works("False")
	loop.replaced(t, pod)
	await("the device to be repaired", func(m accel.Machine) bool {
		return accel.CountUsable(m.Have[stage.Kind].Accelerators) == 2 && stage.InState(accel.Ready)(m)
	})
	stage.Check(t, n.WaitNode(stage.Within(t, soon), "the condition of somebody else to stay", func(node *corev1.Node) bool {
		return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeConditionType(accel.MaintenanceInProgress) && c.Reason == "FanReplacement"
		})
	}))
}

func repairedUnderPods(t *testing.T, n *bed.Node, image string) {
	// The kubelet tells the API server of it only every ten seconds.
	offered := func(devices int) {
		_, err := stage.WaitMachine(stage.Within(t, soon), n.Guest, fmt.Sprintf("%d devices to be offered", devices),
			func(m accel.Machine) bool { return m.Have[stage.Kind].Plugin.Allocatable.Is(devices) })
		stage.Check(t, err)
	}
	offered(3)
	loop := repairLoop{n, offered}
	loop.run(t, deployment("victim", image), stage.Pod("neighbour", image, 1, "-expect", "1", "-hold", "2h"))
}

func repairedUnderClaims(t *testing.T, n *bed.Node, image string) {
	stage.Check(t, n.WriteFile(stage.Within(t, soon), "/etc/acceld/config.yaml", []byte(repairs(accel.AllocateByDRA,
		accel.RepairEvict)), 0o644))
	offers(t, n, 3)
	apply(t, n, stage.ClaimTemplate("one"))
	loop := repairLoop{n, func(devices int) {
		for len(untainted(t.Context(), t, n)) != devices {
			time.Sleep(50 * time.Millisecond)
		}
	}}
	const source = "resourceClaimTemplateName: one"
	loop.run(t, stage.ClaimDeployment("victim", image, source, 1, "-expect", "1", "-hold", "2h"),
		stage.ClaimPod("neighbour", image, source, "-expect", "1", "-hold", "2h"))
}

// wouldBeRepaired lets an idle device fail, which is reset, and fail again under a dry run: the log, an event and the
// history say what would have been done, and nothing is.
func wouldBeRepaired(t *testing.T, n *bed.Node, _ string) {
	const device = "0000:02:00.0"
	waits := func(what string, ok func(a accel.Accelerator) bool) {
		t.Helper()
		_, err := stage.WaitMachine(stage.Within(t, soon), n.Guest, what, func(m accel.Machine) bool {
			return slices.ContainsFunc(m.Have[stage.Kind].Accelerators, func(a accel.Accelerator) bool {
				return a.ID == device && ok(a)
			})
		})
		stage.Check(t, err)
	}
	hears := func(reason string) {
		t.Helper()
		var text string
		for ctx := stage.Within(t, soon); !strings.Contains(text, reason); time.Sleep(500 * time.Millisecond) {
			var err error
			text, err = n.Kubectl(ctx, nil, "-n", "default", "get", "events", "--field-selector=reason="+reason, "--no-headers")
			stage.Check(t, err)
		}
		t.Logf("events:\n%s", text)
	}
	healthy := func(a accel.Accelerator) bool { return a.Health.State == accel.Healthy }
	waits("the device", healthy)
	sh(t, n.Guest, stage.Sicken, device)
	hears("DeviceReset")
	waits("the reset", healthy)
	stage.Check(t, n.WriteFile(stage.Within(t, soon), "/etc/acceld/config.yaml", []byte(repairs(accel.AllocateByDRA,
		accel.RepairDryRun)), 0o644))
	_, err := stage.WaitMachine(stage.Within(t, soon), n.Guest, "the dry run", func(m accel.Machine) bool {
		r := m.Want.Kinds[stage.Kind].Repair
		return r != nil && r.Reset == accel.RepairDryRun
	})
	stage.Check(t, err)
	sh(t, n.Guest, stage.Sicken, device)
	waits("what would be done", func(a accel.Accelerator) bool { return a.Repair != nil && a.Repair.Would })
	hears("DeviceResetDryRun")
	const told = `journalctl -u acceld --no-pager -o cat | grep 'would be reset, if this were no dry run.*device='$1
until acceld history $1 | grep 'would have been reset (dry run)'; do sleep 0.5; done # it is written after some seconds
acceld status | grep -A3 $1`
	t.Logf("log, history and status:\n%s", sh(t, n.Guest, told, device))
	sh(t, n.Guest, "acceld reset $1", device)
	waits("the reset by hand", healthy)
}

// repairLoop is a node whose devices are repaired, and how to wait until so many are offered.
type repairLoop struct {
	*bed.Node
	offered func(devices int)
}

func (r repairLoop) run(t *testing.T, victim, neighbour []byte) {
	t.Helper()
	apply(t, r.Node, victim)
	pod := r.replaced(t, "")
	device := held(t, r.Guest)
	apply(t, r.Node, neighbour)
	stage.Check(t, r.WaitPod(stage.Within(t, soon), "default", "neighbour", corev1.PodRunning))
	for i, file := range append([]string{""}, stage.ResetSteps(device)...) {
		if i > 0 { // the pod has moved, and moves again
			device = r.heldBy(t, pod)
			file = stage.ResetSteps(device)[i-1]
			sh(t, r.Guest, stage.KillAt, file)
		}
		begin := time.Now()
		since := func(what string) { t.Logf("%-60s %6.2f s", what, time.Since(begin).Seconds()) }
		sh(t, r.Guest, stage.Sicken, device)
		if i == 0 {
			r.offered(2)
			since("fault -> offered to nobody")
		}
		pod = r.replaced(t, pod)
		since("fault -> its pod runs on another device")
		_, err := stage.WaitMachine(stage.Within(t, soon), r.Guest, "the device to be healthy", func(m accel.Machine) bool {
			return accel.CountUsable(m.Have[stage.Kind].Accelerators) == 3 && stage.InState(accel.Ready)(m)
		})
		stage.Check(t, err)
		r.offered(3)
		since("fault -> reset, proven, offered; killed at " + file)
	}
	t.Logf("acceld history:\n%s", sh(t, r.Guest, "acceld history "+device))
	same, err := clientset.Of(r.Node).CoreV1().Pods("default").Get(stage.Within(t, soon), "neighbour", metav1.GetOptions{})
	stage.Check(t, err)
	if same.Status.Phase != corev1.PodRunning || same.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod beside it: %+v", same.Status)
	}
	_, err = r.Kubectl(stage.Within(t, soon), nil, "-n", "default", "delete", "--wait", "--cascade=foreground",
		"deployment/victim", "pod/neighbour")
	stage.Check(t, err)
}

// replaced waits until the Deployment's pod runs and is another one than before, and returns its UID.
func (r repairLoop) replaced(t *testing.T, before string) (uid string) {
	t.Helper()
	ctx := stage.Within(t, 2*soon)
	for {
		list, err := clientset.Of(r.Node).CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=victim"})
		stage.Check(t, err)
		for _, p := range list.Items {
			if string(p.UID) != before && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				return string(p.UID)
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// heldBy is the device that a pod's process has open.
func (r repairLoop) heldBy(t *testing.T, pod string) string {
	t.Helper()
	return sh(t, r.Guest, `for pid in $(pgrep -x edu-check); do
  grep -q "$(echo "$1" | tr - _)\|$1" /proc/$pid/cgroup || continue
  for f in /proc/$pid/fd/*; do l=$(readlink $f); case $l in /dev/edu*) basename $(readlink -f /sys/class/accelerator_edu/${l#/dev/}/device); exit;; esac; done
done
exit 1`, pod)
}
