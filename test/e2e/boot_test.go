package e2e

import (
	"context"
	"fmt"
	"maps"
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

// TestPodsOverReboot: pods that are bound to a node are admitted again by its kubelet after a boot. A claim is prepared
// as often as it takes, so that every pod computes again. For a device plugin the kubelet does not wait, and what it
// refuses it refuses for good (kubernetes/kubernetes#125579): how often it comes to that is told.
func TestPodsOverReboot(t *testing.T) {
	n, _, image := claimNode(t, bed.Options{Accelerators: 4})
	if !t.Run("claims", func(t *testing.T) {
		pods := bound(t, n, image)
		for boot := range 3 {
			if refused := booted(t, n, pods, boot+1); len(refused) > 0 {
				t.Fatalf("refused after a boot: %v", refused)
			}
		}
		remove(t, n, slices.Collect(maps.Keys(pods))...)
	}) {
		return
	}
	t.Run("device plugin", func(t *testing.T) {
		ctx := stage.Within(t, 5*time.Minute)
		stage.Check(t, n.WriteFile(ctx, "/etc/acceld/config.yaml", []byte(byDevicePlugin), 0o644))
		_, err := stage.WaitMachine(ctx, n.Guest, "the device plugin to offer them", func(m accel.Machine) bool {
			return m.Want.Kinds[stage.Kind].AllocatedBy() == accel.AllocateByPlugin &&
				m.Have[stage.Kind].Plugin.Allocatable.Is(4)
		})
		stage.Check(t, err)
		all, lost := 0, 0
		for range 5 {
			pods := bound(t, n, image)
			refused := booted(t, n, pods, 1)
			for pod, why := range refused {
				if !strings.HasPrefix(why, "UnexpectedAdmissionError: ") || !strings.Contains(why, stage.Resource) {
					t.Errorf("%s was refused for another reason: %s", pod, why)
				}
			}
			all, lost = all+len(pods), lost+len(refused)
			remove(t, n, slices.Collect(maps.Keys(pods))...)
		}
		t.Logf("the kubelet refused %d of %d pods that were bound when it started", lost, all)
	})
}

// bound starts a pod on each of four devices, and returns their uids by name.
func bound(t *testing.T, n *bed.Node, image string) map[string]string {
	t.Helper()
	ctx := stage.Within(t, 3*time.Minute)
	stage.Check(t, n.WaitReady(ctx))
	pods := map[string]string{}
	for i := range 4 {
		name := fmt.Sprintf("stays-%d", i)
		stage.Check(t, n.Apply(ctx, restarted(stage.Pod(name, image, 1, "-expect", "1", "-hold", "2h"))))
		pods[name] = ""
	}
	for name := range pods {
		stage.Check(t, n.WaitPod(ctx, "default", name, corev1.PodRunning))
		p, err := clientset.Of(n).CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		stage.Check(t, err)
		pods[name] = string(p.UID)
	}
	return pods
}

// booted boots the node and waits until each of its pods computes again, for the times-th time, or is refused.
func booted(t *testing.T, n *bed.Node, pods map[string]string, times int) (refused map[string]string) {
	t.Helper()
	ctx := stage.Within(t, 6*time.Minute)
	stage.Check(t, n.Reboot(ctx, bed.Reboot{}))
	begin := time.Now()
	for {
		var running int
		running, refused = again(ctx, t, n, pods, times)
		if running+len(refused) == len(pods) {
			t.Logf("%d of %d pods compute again %.1f s after the node is up", running, len(pods),
				time.Since(begin).Seconds())
			t.Log(sh(t, n.Guest,
				`journalctl -b -o short-monotonic -u acceld -u kubelet | sed 's/ bed-node / /; s/msg=/\n&/' | grep -E 'registered with the kubelet|main sync loop|admission denied' | cut -c1-160`))
			return refused
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d of %d pods compute again, %d were refused, and nothing comes of the others", running,
				len(pods), len(refused))
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func again(ctx context.Context, t *testing.T, n *bed.Node, pods map[string]string, times int) (running int,
	refused map[string]string,
) {
	t.Helper()
	list, err := clientset.Of(n).CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	stage.Check(t, err)
	refused = map[string]string{}
	for _, p := range list.Items {
		switch s := p.Status; {
		case string(p.UID) != pods[p.Name]:
		case s.Phase == corev1.PodFailed:
			refused[p.Name] = s.Reason + ": " + s.Message
		case len(s.ContainerStatuses) == 1 && s.ContainerStatuses[0].State.Running != nil &&
			int(s.ContainerStatuses[0].RestartCount) == times:
			running++
		}
	}
	return running, refused
}
