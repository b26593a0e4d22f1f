package vm

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/test/vm/clientset"
)

// accelerators lists the PCI addresses of the accelerators that the guest sees.
const accelerators = `for d in /sys/bus/pci/devices/*; do
	[ "$(cat "$d/vendor"):$(cat "$d/device")" = 0x1234:0x11e8 ] || continue
	echo "${d##*/}"
done`

// expectAccelerators waits, because the guest enumerates a device some time after the slot has it.
func expectAccelerators(t *testing.T, g *Guest, want int) []string {
	t.Helper()
	var got []string
	for range 50 {
		if got = strings.Fields(g.MustSh(accelerators)); len(got) == want {
			return got
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("the guest sees accelerators %q, want %d", got, want)
	return nil
}

// identification reads the first register of an accelerator, 0x010000ed (QEMU documentation, specs/edu): a device that
// is only a name in sysfs does not answer.
const identification = `d=/sys/bus/pci/devices/$1
echo 1 > "$d/enable"
busybox devmem "$(head -n 1 "$d/resource" | cut -d ' ' -f 1)" 32`

func expectRegisters(t *testing.T, g *Guest, address string) {
	t.Helper()
	if got := strings.TrimSpace(g.MustSh(identification, address)); !strings.EqualFold(got, "0x010000ED") {
		t.Errorf("the first register of %s is %q, want 0x010000ED", address, got)
	}
}

func TestLightGuest(t *testing.T) {
	g := StartLight(t, Options{Accelerators: 1})
	expectRegisters(t, g, expectAccelerators(t, g, 1)[0])
	if r := g.Run("sh", "-c", "exit 7"); r.Status != 7 {
		t.Errorf("got status %d, want 7", r.Status)
	}
	g.WriteFile("/some/new/file", "content", 0o600)
	if got := g.ReadFile("/some/new/file"); got != "content" {
		t.Errorf("read back %q", got)
	}
	g.Plug(5)
	expectAccelerators(t, g, 2)
}

const hello = `
apiVersion: v1
kind: Pod
metadata: {name: hello}
spec:
  restartPolicy: Never
  containers: [{name: hello, image: IMAGE}]
`

func TestNode(t *testing.T) {
	n := StartNode(t, Options{Accelerators: 2})
	for _, address := range expectAccelerators(t, n.Guest, 2) {
		expectRegisters(t, n.Guest, address)
	}
	n.Unplug(1)
	expectAccelerators(t, n.Guest, 1)

	script := File{Mode: 0o755, Content: []byte("#!/bin/sh\necho hello from a pod\n")}
	image := n.PushImage("test/hello:1", map[string]File{"/hello": script}, "/hello")
	n.Apply(strings.ReplaceAll(hello, "IMAGE", image))
	n.WaitPod("default", "hello", corev1.PodSucceeded)
	if got := n.PodLog("default", "hello"); got != "hello from a pod\n" {
		t.Errorf("the pod said %q", got)
	}

	n.StopAPIServer()
	n.StartAPIServer()
	n.RestartEngine()
	n.RestartKubelet()
	n.WaitReady()
}

func TestNodesFromOneSnapshotAreStrangers(t *testing.T) {
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			n := StartNode(t, Options{})
			if n.Run("test", "-e", "/var/lib/mark").OK() {
				t.Error("this node has the other's file")
			}
			if _, err := clientset.Of(n.Cluster).CoreV1().ConfigMaps("default").Get(t.Context(), "mark",
				metav1.GetOptions{}); err == nil {
				t.Error("this cluster has the other's object")
			}
			if seconds, err := strconv.ParseInt(strings.TrimSpace(n.MustRun("date", "+%s")), 10, 64); err != nil ||
				time.Since(time.Unix(seconds, 0)).Abs() > 10*time.Second {
				t.Errorf("the guest's clock says %d (%v)", seconds, err)
			}
			n.WriteFile("/var/lib/mark", name, 0o644)
			n.Kubectl("create", "configmap", "mark")
			n.MustRun("sync")
		})
	}
}

func TestReboots(t *testing.T) {
	h := StartNode(t, Options{NoKubernetes: true, Accelerators: 1})
	kernels := h.Core.Kernels()
	newest := kernels[len(kernels)-1]
	if got := strings.TrimSpace(h.MustRun("uname", "-r")); got != kernels[0] {
		t.Errorf("the kernel is %q, want %q", got, kernels[0])
	}
	h.WriteFile("/var/lib/mark", "kept", 0o644)
	boot := h.ReadFile("/proc/sys/kernel/random/boot_id")

	h.Reboot(Reboot{Kernel: newest, NetworkCut: true})
	if again := h.ReadFile("/proc/sys/kernel/random/boot_id"); again == boot {
		t.Error("the guest did not reboot")
	}
	if got := strings.TrimSpace(h.MustRun("uname", "-r")); got != newest {
		t.Errorf("the kernel is %q, want %q", got, newest)
	}
	if got := h.ReadFile("/var/lib/mark"); got != "kept" {
		t.Errorf("the file has %q after the reboot", got)
	}
	expectAccelerators(t, h.Guest, 1)
	const reach = `curl -s -m 5 -o /dev/null "http://$1/v2/"`
	registry := strings.TrimSuffix(h.Image(""), "/")
	if h.Sh(reach, registry).OK() {
		t.Error("the registry is reached over a cut network")
	}
	h.RestoreNetwork()
	h.MustSh(reach, registry)

	h.MustRun("sync")
	h.Reboot(Reboot{PowerCut: true})
	if got := h.ReadFile("/var/lib/mark"); got != "kept" {
		t.Errorf("the file has %q after a power cut", got)
	}
}

// hold asks the test to hold a guest until it is killed.
const hold = "ACCELD_TESTBED_HOLD"

func TestKilledTestLeavesNothing(t *testing.T) {
	Require(t)
	if os.Getenv(hold) != "" {
		g := StartLight(t, Options{})
		fmt.Printf("qemu %d\n", g.Core.PID())
		<-t.Context().Done()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), hold+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		fmt.Sscanf(lines.Text(), "qemu %d", &pid)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if pid == 0 {
		t.Fatal("the other process did not start a guest")
	}
	for range 100 {
		if syscall.Kill(pid, 0) != nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if syscall.Kill(pid, 0) == nil {
		t.Errorf("QEMU %d outlives the test that started it", pid)
	}
	// The bed is free at once, and a guest starts.
	StartLight(t, Options{}).MustRun("true")
}
