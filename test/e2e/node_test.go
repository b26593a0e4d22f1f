package e2e

import (
	"context"
	"fmt"
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

// TestDaemonSet is the life of one node, from no driver to a day of trouble. Its parts build on each other.
func TestDaemonSet(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2})
	stage.Check(t, s.Source(t.Context(), n.Guest))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	// What a cluster does at a node's birth, so that nothing is scheduled before the accelerators are ready.
	_, err = n.Kubectl(stage.Within(t, soon), nil, "taint", "node", bed.NodeName, "acceld.dev/not-ready=:NoSchedule")
	stage.Check(t, err)
	timed(t, "DaemonSet applied -> every state ready, driver built", func() {
		stage.Check(t, s.Deploy(t.Context(), n))
		reaches(t, n.Guest, accel.Ready, 10*time.Minute)
	})
	logDurations(t, n.Guest)
	inOrder(t, n, image,
		part{"the cluster sees it", clusterSees},
		part{"a pod computes on its own device only", podComputes},
		part{"drift is repaired", driftRepaired},
		part{"kill -9 under a pod", killedUnderPod},
		part{"kubelet and runtime restart", restarts},
		part{"API server away", apiServerAway},
		part{"device pulled under load and put back", pulledUnderLoad},
		part{"device reports an error and recovers", sickAndWell},
		part{"no container starts with a sick device", gateRefuses},
	)
}

// logDurations prints how long each state lasted.
func logDurations(t *testing.T, g *bed.Guest) {
	t.Helper()
	m, err := stage.Machine(t.Context(), g)
	stage.Check(t, err)
	for _, s := range []accel.State{
		accel.Absent, accel.DriverMissing, accel.DriverUnproven, accel.RuntimeMissing,
		accel.PluginMissing, accel.KubeletPending, accel.Unwatched,
	} {
		t.Logf("  in %-16s %8.3f s", s, m.Status[stage.Kind].Took[s].Seconds())
	}
}

func clusterSees(t *testing.T, n *bed.Node, _ string) {
	ctx := stage.Within(t, soon)
	stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 2))
	for _, p := range []accel.Published{
		accel.DriverContainer, accel.RuntimeEnablement, accel.DevicePlugin,
		accel.DeviceMonitoring, accel.FeatureDiscovery,
	} {
		stage.Check(t, n.WaitLabel(ctx, fmt.Sprintf("acceld.dev/%s-%s", p, stage.Kind), "ready"))
	}
	stage.Check(t, n.WaitLabel(ctx, "acceld.dev/qemu-edu.count", "2"))
	stage.Check(t, n.WaitLabel(ctx, "feature.node.kubernetes.io/pci-1234.present", "true"))
	stage.Check(t, n.WaitLabel(ctx, "feature.node.kubernetes.io/system-os_release.ID", "debian"))
	stage.Check(t, n.WaitCondition(ctx, "AcceleratorsReady", "True", ""))
	stage.Check(t, n.WaitTaint(ctx, "acceld.dev/not-ready", false))
	metrics, _, err := stage.Get(ctx, n.Guest, "/metrics")
	stage.Check(t, err)
	for _, want := range []string{
		`acceld_kind_state{kind="qemu-edu",state="ready"} 1`,
		"accelerator_temperature_celsius{", "accelerator_up{",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		if body, status, err := stage.Get(ctx, n.Guest, path); err != nil || status != 200 {
			t.Errorf("%s: %d %s %v", path, status, body, err)
		}
	}
	events, err := clientset.Of(n).EventsV1().Events("default").List(ctx,
		metav1.ListOptions{FieldSelector: "regarding.kind=Node"})
	stage.Check(t, err)
	seen := 0
	for _, e := range events.Items {
		if strings.Contains(e.ReportingController, "acceld") {
			seen++
		}
	}
	if seen == 0 {
		t.Error("no event of acceld about the node")
	}
	t.Logf("%d events of acceld about the node", seen)
}

func podComputes(t *testing.T, n *bed.Node, image string) {
	// After its API server was away the kubelet alone was seen to take a minute and a half until it looked for new
	// pods.
	ctx := stage.Within(t, 5*time.Minute)
	for name, devices := range map[string]int{"one": 1, "both": 2} {
		timed(t, fmt.Sprintf("pod with %d devices applied -> computed", devices), func() {
			stage.Check(t, n.Apply(ctx, stage.Pod(name, image, devices, "-expect", fmt.Sprint(devices))))
			stage.Check(t, n.WaitPod(ctx, "default", name, corev1.PodSucceeded))
		})
	}
	log, err := n.PodLog(ctx, "default", "one")
	stage.Check(t, err)
	if !strings.Contains(log, "PASS 1 device(s)") {
		t.Errorf("log of the pod: %s", log)
	}
	remove(t, n, "one", "both")
}

func remove(t *testing.T, n *bed.Node, pods ...string) {
	t.Helper()
	_, err := n.Kubectl(stage.Within(t, soon), nil,
		append([]string{"-n", "default", "delete", "pod", "--wait", "--ignore-not-found"}, pods...)...)
	stage.Check(t, err)
}

func driftRepaired(t *testing.T, n *bed.Node, _ string) {
	for _, c := range []struct{ name, spoil, mended string }{
		{"module removed", "rmmod edu", "test -e /sys/module/edu && test -c /dev/edu0 && test -c /dev/edu1"},
		{"CDI spec deleted", "rm /var/run/cdi/qemu.org-edu.json", "test -s /var/run/cdi/qemu.org-edu.json"},
		{
			"CDI spec edited", "echo '{}' > /var/run/cdi/qemu.org-edu.json",
			"grep -q 0000: /var/run/cdi/qemu.org-edu.json",
		},
		{
			"device unbound",
			"echo 0000:01:00.0 > /sys/bus/pci/drivers/edu/unbind || echo $(ls /sys/bus/pci/drivers/edu | grep 0000: | head -1) > /sys/bus/pci/drivers/edu/unbind",
			"test $(ls /sys/bus/pci/drivers/edu | grep -c 0000:) = 2",
		},
		{"device node deleted", "rm /dev/edu0", "test -c /dev/edu0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sh(t, n.Guest, c.spoil)
			timed(t, c.name+" -> mended", func() {
				sh(t, n.Guest, "for i in $(seq 300); do if "+c.mended+"; then exit 0; fi; sleep 0.2; done; exit 1")
				reaches(t, n.Guest, accel.Ready, soon)
			})
		})
	}
	t.Run("label edited by hand", func(t *testing.T) {
		ctx := stage.Within(t, soon)
		key := "acceld.dev/driver-container-" + stage.Kind
		_, err := n.Kubectl(ctx, nil, "label", "node", bed.NodeName, "--overwrite", key+"=broken")
		stage.Check(t, err)
		timed(t, "label edited -> mended", func() { stage.Check(t, n.WaitLabel(ctx, key, "ready")) })
	})
}

func killedUnderPod(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 8*time.Minute)
	stage.Check(t, n.Apply(ctx, stage.Pod("holder", image, 1, "-expect", "1", "-hold", "2h")))
	stage.Check(t, n.WaitPod(ctx, "default", "holder", corev1.PodRunning))
	before := facts(t, n.Guest)
	pod, err := clientset.Of(n).CoreV1().Pods("default").Get(ctx, "holder", metav1.GetOptions{})
	stage.Check(t, err)
	// The unit's agent is killed twenty times in bare_test.go; here the container is, by its runtime's eyes, and the
	// kubelet's back-off grows to minutes, so three times have to do.
	for i := range 3 {
		pid := agentPID(t, n.Guest)
		sh(t, n.Guest, `kill -9 "$1"; while kill -0 "$1" 2>/dev/null; do sleep 0.1; done`, pid)
		timed(t, fmt.Sprintf("kill -9 #%d -> ready again (kubelet's back-off included)", i+1), func() {
			reaches(t, n.Guest, accel.Ready, 3*time.Minute)
		})
	}
	stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 2))
	if after := facts(t, n.Guest); after != before {
		t.Errorf("module before %q, after %q", before, after)
	}
	same, err := clientset.Of(n).CoreV1().Pods("default").Get(ctx, "holder", metav1.GetOptions{})
	stage.Check(t, err)
	if same.Status.Phase != corev1.PodRunning || same.Status.ContainerStatuses[0].RestartCount != 0 ||
		same.UID != pod.UID {
		t.Errorf("the pod did not stay: %+v", same.Status)
	}
	remove(t, n, "holder")
}

func restarts(t *testing.T, n *bed.Node, image string) {
	pid := agentPID(t, n.Guest)
	registrations := func() int {
		m, err := stage.Machine(t.Context(), n.Guest)
		stage.Check(t, err)
		return m.Have[stage.Kind].Plugin.Registrations
	}
	for _, c := range []struct {
		name    string
		restart func(context.Context) error
		again   bool
	}{{"kubelet", n.RestartKubelet, true}, {"CRI-O", n.RestartEngine, false}} {
		before := registrations()
		stage.Check(t, c.restart(stage.Within(t, soon)))
		timed(t, c.name+" restarted -> allocatable and ready", func() {
			if c.again {
				_, err := stage.WaitMachine(stage.Within(t, soon), n.Guest, "a new registration",
					func(m accel.Machine) bool {
						return m.Have[stage.Kind].Plugin.Registrations > before
					})
				stage.Check(t, err)
			}
			reaches(t, n.Guest, accel.Ready, soon)
			stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 2))
		})
	}
	if now := agentPID(t, n.Guest); now != pid {
		t.Errorf("the agent was restarted: pid %s, before %s", now, pid)
	}
	podComputes(t, n, image)
}

func apiServerAway(t *testing.T, n *bed.Node, image string) {
	pid := agentPID(t, n.Guest)
	n.StopAPIServer()
	sh(t, n.Guest, "rm /var/run/cdi/qemu.org-edu.json") // the node goes on mending itself
	time.Sleep(time.Minute)                             // the minute
	sh(t, n.Guest, "test -s /var/run/cdi/qemu.org-edu.json")
	stage.Check(t, n.Unplug(stage.Within(t, soon), 1)) // something to tell that only fits into the API server later
	_, err := stage.WaitMachine(stage.Within(t, soon), n.Guest, "the device to be gone", func(m accel.Machine) bool {
		return accel.CountUsable(m.Have[stage.Kind].Accelerators) == 1
	})
	stage.Check(t, err)
	stage.Check(t, n.StartAPIServer(stage.Within(t, soon)))
	timed(t, "API server back -> count label is right", func() {
		// The agent's back-off ends at a minute and a fifth.
		stage.Check(t, n.WaitLabel(stage.Within(t, 2*soon), "acceld.dev/qemu-edu.count", "1"))
	})
	stage.Check(t, n.Plug(stage.Within(t, soon), 1))
	stage.Check(t, n.WaitLabel(stage.Within(t, soon), "acceld.dev/qemu-edu.count", "2"))
	reaches(t, n.Guest, accel.Ready, soon)
	if now := agentPID(t, n.Guest); now != pid {
		t.Errorf("the agent was restarted: pid %s, before %s", now, pid)
	}
	stage.Check(t, n.WaitNode(stage.Within(t, soon), "the node to be Ready", func(node *corev1.Node) bool {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	}))
	podComputes(t, n, image)
}

func pulledUnderLoad(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 4*time.Minute)
	stage.Check(t, n.Apply(ctx, stage.Pod("pulled", image, 2, "-expect", "2", "-hold", "2h")))
	stage.Check(t, n.WaitPod(ctx, "default", "pulled", corev1.PodRunning))
	stage.Check(t, n.Unplug(ctx, 0))
	begin := time.Now()
	lap := func(what string) { t.Logf("%-60s %6.2f s", "device_del -> "+what, time.Since(begin).Seconds()) }
	_, err := stage.WaitMachine(ctx, n.Guest, "the device to be gone", func(m accel.Machine) bool {
		return accel.CountUsable(m.Have[stage.Kind].Accelerators) == 1
	})
	stage.Check(t, err)
	lap("gone in the machine and the metrics")
	stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 1))
	lap("allocatable 1 at the API server (kubelet's own reporting included)")
	stage.Check(t, n.WaitCondition(ctx, "AcceleratorsReady", "False", string(accel.DeviceGone)))
	lap("condition AcceleratorsReady=False, DeviceGone")
	metrics, _, err := stage.Get(ctx, n.Guest, "/metrics")
	stage.Check(t, err)
	if !strings.Contains(metrics, `state="gone"`) {
		t.Error("/metrics does not show a device as gone")
	}
	stage.Check(t, n.Plug(ctx, 0))
	begin = time.Now()
	back := func(what string) { t.Logf("%-60s %6.2f s", "device_add -> "+what, time.Since(begin).Seconds()) }
	_, err = stage.WaitMachine(ctx, n.Guest, "the device to be back", func(m accel.Machine) bool {
		return accel.CountUsable(m.Have[stage.Kind].Accelerators) == 2 && m.Have[stage.Kind].Plugin.Allocatable.Is(2)
	})
	stage.Check(t, err)
	back("bound, computed, allocatable at the kubelet")
	stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 2))
	back("allocatable 2 at the API server (kubelet's own reporting included)")
	stage.Check(t, n.WaitCondition(ctx, "AcceleratorsReady", "True", ""))
	remove(t, n, "pulled")
	podComputes(t, n, image)
}

func sickAndWell(t *testing.T, n *bed.Node, _ string) {
	ctx := stage.Within(t, 3*time.Minute)
	m, err := stage.Machine(ctx, n.Guest)
	stage.Check(t, err)
	id := m.Have[stage.Kind].Accelerators[0].ID
	sh(t, n.Guest, `echo fail > /sys/bus/pci/devices/$1/inject_error`, id)
	begin := time.Now()
	stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 1))
	stage.Check(t, n.WaitCondition(ctx, "AcceleratorsReady", "False", string(accel.DeviceUnhealthy)))
	t.Logf("%-60s %6.2f s", "error -> allocatable 1 and the condition", time.Since(begin).Seconds())
	body, status, err := stage.Get(ctx, n.Guest, "/healthz")
	stage.Check(t, err)
	if status != 503 || !strings.Contains(body, id) {
		t.Errorf("/healthz: %d %s", status, body)
	}
	sh(t, n.Guest, `echo none > /sys/bus/pci/devices/$1/inject_error`, id)
	stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 2))
	stage.Check(t, n.WaitCondition(ctx, "AcceleratorsReady", "True", ""))
}

// gateRefuses: the kubelet restarts a container with the devices it was given once, without asking anybody. The hook
// does not let it start with one that has become sick, and says so in the pod's events.
func gateRefuses(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 5*time.Minute)
	stage.Check(t, n.Apply(ctx, restarted(stage.Pod("gated", image, 1, "-expect", "1", "-hold", "2h"))))
	stage.Check(t, n.WaitPod(ctx, "default", "gated", corev1.PodRunning))
	id := held(t, n.Guest)
	sh(t, n.Guest, `echo fail > /sys/bus/pci/devices/$1/inject_error; pkill -KILL edu-check || true`, id)
	message := ""
	for message == "" {
		events, err := clientset.Of(n).CoreV1().Events("default").List(ctx,
			metav1.ListOptions{FieldSelector: "involvedObject.name=gated"})
		stage.Check(t, err)
		for _, e := range events.Items {
			if strings.Contains(e.Message, "acceld: ") && strings.Contains(e.Message, id) {
				message = e.Message
			}
		}
		time.Sleep(300 * time.Millisecond)
	}
	t.Logf("the pod's event: %s", message)
	sh(t, n.Guest, `echo none > /sys/bus/pci/devices/$1/inject_error`, id)
	timed(t, "device well again -> the container runs (kubelet's back-off included)", func() {
		for {
			pod, err := clientset.Of(n).CoreV1().Pods("default").Get(ctx, "gated", metav1.GetOptions{})
			stage.Check(t, err)
			if s := pod.Status.ContainerStatuses; len(s) == 1 && s[0].State.Running != nil && s[0].RestartCount > 0 {
				return
			}
			time.Sleep(300 * time.Millisecond)
		}
	})
	remove(t, n, "gated")
}

// held returns the device that the only running edu-check has open.
func held(t *testing.T, g *bed.Guest) string {
	t.Helper()
	node := sh(t, g,
		`pid=$(pgrep -o edu-check); for f in /proc/$pid/fd/*; do l=$(readlink $f); case $l in /dev/edu*) echo ${l#/dev/};; esac; done | head -1`)
	return sh(t, g, `basename $(readlink -f /sys/class/accelerator_edu/$1/device)`, node)
}
