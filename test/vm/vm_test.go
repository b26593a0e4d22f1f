package vm

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// accelerators lists the PCI addresses of the accelerators that the guest sees and can read registers of.
const accelerators = `for d in /sys/bus/pci/devices/*; do
	[ "$(cat "$d/vendor"):$(cat "$d/device")" = 0x1234:0x11e8 ] || continue
	echo "${d##*/}"
done`

func TestLightGuest(t *testing.T) {
	g := StartLight(t, Options{Accelerators: 1})
	if got := strings.Fields(g.MustSh(accelerators)); len(got) != 1 {
		t.Errorf("got accelerators %q, want 1", got)
	}
	if r := g.Run("sh", "-c", "exit 7"); r.Status != 7 {
		t.Errorf("got status %d, want 7", r.Status)
	}
	g.WriteFile("/some/new/file", "content", 0o600)
	if got := g.ReadFile("/some/new/file"); got != "content" {
		t.Errorf("read back %q", got)
	}
	g.Plug(5)
	if got := strings.Fields(g.MustSh("sleep 1; " + accelerators)); len(got) != 2 {
		t.Errorf("got accelerators %q, want 2", got)
	}
}

const hello = `
apiVersion: v1
kind: Pod
metadata: {name: hello}
spec:
  restartPolicy: Never
  containers: [{name: hello, image: IMAGE, command: [echo, hello from a pod]}]
`

func TestNode(t *testing.T) {
	n := StartNode(t, Options{Accelerators: 2})
	if got := strings.Fields(n.MustSh(accelerators)); len(got) != 2 {
		t.Errorf("got accelerators %q, want 2", got)
	}
	n.Unplug(1)
	if got := strings.Fields(n.MustSh(accelerators)); len(got) != 1 {
		t.Errorf("got accelerators %q after one was unplugged, want 1", got)
	}
	n.Apply(strings.ReplaceAll(hello, "IMAGE", n.Image("bed/busybox:1")))
	n.WaitPod("default", "hello", corev1.PodSucceeded)
	if got := n.PodLog("default", "hello"); got != "hello from a pod\n" {
		t.Errorf("the pod said %q", got)
	}
}
