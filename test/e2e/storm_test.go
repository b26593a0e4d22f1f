package e2e

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
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

// storms restarts kubelet, agent and container runtime in random order, with random pauses, under a pod that holds a
// device: after each storm everything is ready, and what the pod has is what it had. ACCELD_SEED repeats an order.
func storms(t *testing.T, n *bed.Node, image string) {
	seed, err := strconv.ParseUint(os.Getenv("ACCELD_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("ACCELD_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	restarts := []struct {
		name string
		do   func(context.Context) error
	}{
		{"kubelet", n.RestartKubelet},
		{"CRI-O", n.RestartEngine},
		{"agent", func(ctx context.Context) error {
			return stage.Must(n.Run(ctx, "systemctl", "restart", "acceld.service"))
		}},
		{"agent (killed)", func(ctx context.Context) error {
			return stage.Must(n.Run(ctx, "systemctl", "kill", "-s", "KILL", "acceld.service"))
		}},
	}
	start := func() string {
		stage.Check(t, n.Apply(stage.Within(t, soon), stage.Pod("weathers", image, 1, "-expect", "1", "-hold", "2h")))
		stage.Check(t, n.WaitPod(stage.Within(t, soon), "default", "weathers", corev1.PodRunning))
		return allocated(t, n.Guest)
	}
	before, lost := start(), 0
	for i := range 20 {
		order := ""
		for _, k := range random.Perm(len(restarts)) {
			pause := time.Duration(random.IntN(2000)) * time.Millisecond
			order += restarts[k].name + ", " + pause.String() + "; "
			sh(t, n.Guest, "systemctl reset-failed kubelet crio acceld.service 2>/dev/null || true")
			stage.Check(t, restarts[k].do(stage.Within(t, soon)))
			time.Sleep(pause)
		}
		begin := time.Now()
		_, err := stage.WaitMachine(stage.Within(t, 2*soon), n.Guest, "everything to be ready",
			func(m accel.Machine) bool {
				return m.Status[stage.Kind].State == accel.Ready && m.Have[stage.Kind].Plugin.Allocatable.Is(2)
			})
		stage.Check(t, err)
		stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 2))
		t.Logf("storm %2d: %s-> right after %5.2f s", i+1, order, time.Since(begin).Seconds())
		if lostByKubelet(t, n) {
			if lost++; lost > 3 {
				t.Fatalf("the kubelet lost the pod %d times", lost)
			}
			t.Logf("storm %2d: the kubelet started while the runtime was away, and refused the pod that ran", i+1)
			remove(t, n, "weathers")
			before = start()
			continue
		}
		if after := allocated(t, n.Guest); after != before || before == "" {
			t.Errorf("storm %d (%s): allocation before %q, after %q", i+1, order, before, after)
		}
	}
	pod, err := clientset.Of(n).CoreV1().Pods("default").Get(stage.Within(t, soon), "weathers", metav1.GetOptions{})
	stage.Check(t, err)
	if pod.Status.Phase != corev1.PodRunning || pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod did not stay: %+v", pod.Status)
	}
	remove(t, n, "weathers")
	podComputes(t, n, image)
}

// lostByKubelet reports whether the kubelet has refused a pod that ran, because it could not list containers when it
// started: it then takes none for running, and asks for their devices again, which no plugin gives out while the plugin
// is away, too. No plugin can do anything about that (Kubernetes 1.37, pkg/kubelet/cm/devicemanager/manager.go says so
// at isContainerAlreadyRunning, and names kubernetes/kubernetes#118559). Any other end of the pod is a failure.
func lostByKubelet(t *testing.T, n *bed.Node) bool {
	t.Helper()
	pod, err := clientset.Of(n).CoreV1().Pods("default").Get(stage.Within(t, soon), "weathers", metav1.GetOptions{})
	stage.Check(t, err)
	if pod.Status.Phase == corev1.PodRunning {
		return false
	}
	listed := strings.TrimSpace(sh(t, n.Guest, `journalctl -o cat _PID="$(systemctl show -P MainPID kubelet)" |
	sed '/Starting kubelet main sync loop/q' | grep -cE '"List(PodSandbox|Containers) with filter from runtime service failed"' || true`))
	if pod.Status.Reason != "UnexpectedAdmissionError" || listed == "0" {
		t.Fatalf("the pod did not stay, and the kubelet could list containers (%s errors): %+v", listed, pod.Status)
	}
	return true
}
