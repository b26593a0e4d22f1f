package e2e

import (
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

// TestUnitOnNode is the systemd unit on a node with a kubelet. Each part leaves the node ready, so each can be run
// alone.
func TestUnitOnNode(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2})
	g := n.Guest
	stage.Check(t, s.Units(t.Context(), g, ""))
	stage.Check(t, s.Store(t.Context(), g, stage.Version))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Enable(t.Context(), g))
	reaches(t, g, accel.Ready, 5*time.Minute)
	inOrder(
		t, n, image,
		part{"kill -9 twenty times under a pod", killUnderPod},
		part{"a reset beside a pod, and after it", resetBesidePod},
		part{"restarts of everything in random order", storms},
		part{"a device for several pods", shared},
		part{"device nodes instead of CDI", withoutCDI},
		part{"reboot without network", rebootCut},
	)
}

// killUnderPod kills the agent while a pod holds a device: pod, module and allocation stay, and each new agent
// registers.
func killUnderPod(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 8*time.Minute)
	stage.Check(t, n.Apply(ctx, stage.Pod("holder", image, 1, "-expect", "1", "-hold", "2h")))
	stage.Check(t, n.WaitPod(ctx, "default", "holder", corev1.PodRunning))
	module, allocation := facts(t, n.Guest), allocated(t, n.Guest)
	pod, err := clientset.Of(n).CoreV1().Pods("default").Get(ctx, "holder", metav1.GetOptions{})
	stage.Check(t, err)
	said := sh(t, n.Guest, "journalctl -u kubelet -n 0 --show-cursor | sed -n 's/^-- cursor: //p'")
	killAgent(t, n.Guest, 20)
	stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 2))
	offered(t, n.Guest, said)
	if after := facts(t, n.Guest); after != module {
		t.Errorf("module before %q, after %q", module, after)
	}
	if after := allocated(t, n.Guest); after != allocation || allocation == "" {
		t.Errorf("allocation before %q, after %q", allocation, after)
	}
	same, err := clientset.Of(n).CoreV1().Pods("default").Get(ctx, "holder", metav1.GetOptions{})
	stage.Check(t, err)
	if same.UID != pod.UID || same.Status.Phase != corev1.PodRunning ||
		same.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod did not stay: %+v", same.Status)
	}
	// Only a stop is the end, and an agent that systemd has given up.
	sh(t, n.Guest, "systemctl stop acceld.service")
	stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 0))
	sh(t, n.Guest, "systemctl start acceld.service")
	stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 2))
	sh(t, n.Guest,
		`printf '[Unit]\nStartLimitIntervalSec=300\nStartLimitBurst=3\n[Service]\nExecStart=\nExecStart=/bin/false\n' > /run/systemd/system/acceld.service.d/zz-broken.conf
		systemctl daemon-reload; systemctl kill -s KILL acceld.service`)
	stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 0))
	if state := sh(t, n.Guest, "systemctl is-failed acceld.service"); state != "failed" {
		t.Errorf("devices are withdrawn while the service is %s", state)
	}
	sh(t, n.Guest,
		"rm /run/systemd/system/acceld.service.d/zz-broken.conf; systemctl daemon-reload; systemctl reset-failed acceld.service; systemctl start acceld.service")
	stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 2))
	remove(t, n, "holder")
}

// offered holds that the kubelet had a plugin at every moment since a place in its journal, where it had one: each
// process of the agent registered before the kubelet heard of the end of the one before, which it does a moment later.
// It returns how many ended.
func offered(t *testing.T, g *bed.Guest, since string) (ends int) {
	t.Helper()
	log := sh(t, g, `for i in $(seq 50); do
  log=$(journalctl -u kubelet -o cat --after-cursor="$1" | grep -o 'Got registration request\|ListAndWatch ended')
  test $(systemctl show -P NFileDescriptorStore acceld.service) = 1 &&
    test $(echo "$log" | grep -c Got) = $(echo "$log" | grep -c ended) && break
  sleep 0.5
done
echo "$log"`, since)
	plugins := 1
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "Got") {
			plugins++
			continue
		}
		plugins, ends = plugins-1, ends+1
		if plugins < 1 {
			t.Errorf("the kubelet was without a plugin after %d ends:\n%s", ends, log)
			break
		}
	}
	if held := sh(t, g, "systemctl show -P NFileDescriptorStore acceld.service"); plugins != 1 || held != "1" ||
		ends == 0 {
		t.Errorf("the kubelet has %d plugins after %d ends, the service manager keeps %s connections", plugins, ends,
			held)
	}
	t.Logf("the kubelet had a plugin all the time, over %d processes", ends+1)
	return ends
}

// resetBesidePod: a device that a pod has is not reset, and the pod is named; the other one is, when the kubelet has
// heard that it is not to be had, and so is the pod's when the pod has ended.
func resetBesidePod(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 8*time.Minute)
	stage.Check(t, n.Apply(ctx, stage.Pod("keeper", image, 1, "-expect", "1", "-hold", "2h")))
	stage.Check(t, n.WaitPod(ctx, "default", "keeper", corev1.PodRunning))
	kept := sh(t, n.Guest,
		`for i in $(seq 60); do curl -s --unix-socket /run/acceld/acceld.sock http://acceld/v1/holders | grep -o '0000:0[0-9]:00.0' && exit 0; sleep 0.5; done; exit 1`)
	free := map[string]string{"0000:01:00.0": "0000:02:00.0", "0000:02:00.0": "0000:01:00.0"}[kept]
	for _, devices := range []string{kept, free + " " + kept} {
		out := sh(t, n.Guest, "acceld reset "+devices+" 2>&1 || echo status $?")
		if !strings.Contains(out, string(accel.InUse)) || !strings.Contains(out, "pod default/keeper)") ||
			!strings.HasSuffix(out, "status 1") {
			t.Errorf("a reset of %s beside a pod said %q", devices, out)
		}
	}
	t.Logf("acceld reset: %s", sh(t, n.Guest, "acceld reset "+free))
	stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 2))
	remove(t, n, "keeper")
	// Who has just ended is believed to be there for a moment longer.
	t.Logf("acceld reset, after the pod: %s",
		sh(t, n.Guest, "for i in $(seq 20); do acceld reset "+kept+" && exit 0; sleep 1; done; exit 1"))
	stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 2))
	reaches(t, n.Guest, accel.Ready, soon)
}

// allocated returns what the kubelet has written down about who was given which device.
func allocated(t *testing.T, g *bed.Guest) string {
	t.Helper()
	return sh(t, g, `grep -o '"PodDeviceEntries":[^]]*]' /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint`)
}

// rebootCut: what was built once is loaded from the store before the kubelet starts, with no network and no compiler.
func rebootCut(t *testing.T, n *bed.Node, _ string) {
	g := n.Guest
	// Without the programs a build could only fail, and without the source it could not begin.
	sh(t, g,
		"for p in gcc make cc ld; do if [ -e /usr/bin/$p ]; then mv /usr/bin/$p /usr/bin/$p.away; fi; done; rm -rf "+
			stage.SourceDir+"; sync")
	stage.Check(t, g.Reboot(stage.Within(t, 5*time.Minute), bed.Reboot{NetworkCut: true}))
	m := reaches(t, g, accel.Ready, 2*time.Minute)
	if !m.Have[stage.Kind].Plugin.Allocatable.Is(2) || m.Have[stage.Kind].Driver.Source != "store" {
		t.Errorf("allocatable %v, driver from %q after the reboot", m.Have[stage.Kind].Plugin.Allocatable,
			m.Have[stage.Kind].Driver.Source)
	}
	t.Logf("early unit: %s", sh(t, g, `journalctl -b -o short-monotonic -u acceld-early | grep -m1 'present (store)'`))
	early := sh(t, g, "systemctl show -p ExecMainExitTimestampMonotonic --value acceld-early")
	kubelet := sh(t, g, "systemctl show -p ExecMainStartTimestampMonotonic --value kubelet")
	var a, b int64
	if _, err := fmt.Sscan(early+" "+kubelet, &a, &b); err != nil || a == 0 || b == 0 || a > b {
		t.Errorf("driver loaded at %q us after boot, kubelet started at %q us (%v)", early, kubelet, err)
	}
	t.Logf("driver loaded %.2f s after boot, kubelet started at %.2f s", float64(a)/1e6, float64(b)/1e6)
}

// withoutCDI: the kubelet is told device nodes where the runtime is not to use CDI, and no spec is left behind.
func withoutCDI(t *testing.T, n *bed.Node, image string) {
	sh(t, n.Guest, "printf 'runtime: {cdi: false}\\n' > /etc/acceld/config.yaml; systemctl restart acceld.service")
	reaches(t, n.Guest, accel.Ready, soon)
	sh(t, n.Guest, "test ! -e /var/run/cdi/qemu.org-edu.json")
	podComputes(t, n, image)
	sh(t, n.Guest, "rm /etc/acceld/config.yaml; systemctl restart acceld.service")
	reaches(t, n.Guest, accel.Ready, soon)
	sh(t, n.Guest, "test -s /var/run/cdi/qemu.org-edu.json")
}
