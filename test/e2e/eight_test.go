package e2e

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/nvml"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

// eight is how many devices a usual server for accelerators has.
const eight = 8

// TestEight fills a node with eight devices: each of eight pods computes on one of its own, Prometheus sees each with
// its pod, and when one device has an Xid, that one alone is ill and its pod alone is named. Its parts build on each
// other.
func TestEight(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: eight})
	g := n.Guest
	stage.Check(t, s.Units(t.Context(), g, "kubernetes: {kubeconfig: /etc/acceld/kubeconfig}\nsampleEvery: 5s\n"+
		monitored))
	stage.Check(t, stage.Credentials(t.Context(), n))
	stage.Check(t, s.SourceOf(t.Context(), g, stage.Version))
	stage.Check(t, s.Store(t.Context(), g, stage.Version))
	e := &full{n: n, ids: addresses(t, g), by: map[string]string{}}
	if len(e.ids) != eight {
		t.Fatalf("the guest has the devices %q", e.ids)
	}
	e.script = nvml.Machine("NVIDIA H200", e.ids...)
	stage.Check(t, s.Watched(t.Context(), g, e.script))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Enable(t.Context(), g))
	reaches(t, g, accel.Ready, 8*time.Minute)
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, eight))
	startPrometheus(t, n, s, "5s")
	inOrder(t, n, image,
		part{"a device for each of eight pods", e.allocated},
		part{"a ninth pod waits", e.ninth},
		part{"each is scraped with its pod", e.scraped},
		part{"an Xid on one", e.xid},
	)
}

// full is a node all of whose devices are in use.
type full struct {
	n      *bed.Node
	ids    []string
	script nvml.Script
	by     map[string]string // which pod has the device, by its id
}

// addresses are the PCI addresses of the guest's devices, in order.
func addresses(t *testing.T, g *bed.Guest) []string {
	t.Helper()
	return strings.Fields(sh(t, g,
		`cd /sys/bus/pci/devices; for d in *; do if [ "$(cat $d/vendor):$(cat $d/device)" = 0x1234:0x11e8 ]; then echo $d; fi; done`))
}

func eighth(i int) string { return fmt.Sprintf("eighth-%d", i) }

func (e *full) allocated(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 8*time.Minute)
	// They compute seldom, because the processors that emulate eight devices emulate the guest too.
	timed(t, "eight pods at once -> all compute", func() {
		var all [][]byte
		for i := range eight {
			all = append(all, stage.Pod(eighth(i), image, 1, "-expect", "1", "-hold", "2h", "-every", "5s"))
		}
		stage.Check(t, n.Apply(ctx, bytes.Join(all, []byte("\n---\n"))))
		for i := range eight {
			stage.Check(t, n.WaitPod(ctx, "default", eighth(i), corev1.PodRunning))
		}
	})
	for i := range eight {
		// sysfs is the host's in every container; the nodes in /dev are those that the container was given.
		sees, err := n.Kubectl(ctx, nil, "exec", eighth(i), "--", "sh", "-c",
			`for d in /dev/edu[0-9]*; do basename $(readlink -f /sys/class/accelerator_edu/$(basename $d)/device); done`)
		stage.Check(t, err)
		id := strings.TrimSpace(sees)
		if other := e.by[id]; other != "" || !slices.Contains(e.ids, id) {
			t.Errorf("%s has the devices %q; %q has it, too", eighth(i), id, other)
		}
		e.by[id] = eighth(i)
	}
	counts := func() string {
		return sh(t, n.Guest, `for d in "$@"; do cat /sys/bus/pci/devices/$d/operations; done`, e.ids...)
	}
	before := strings.Fields(counts())
	for still := e.ids; len(still) > 0; time.Sleep(200 * time.Millisecond) {
		still = nil
		for i, now := range strings.Fields(counts()) {
			if now == before[i] {
				still = append(still, e.ids[i])
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("nobody computes on %q", still)
		}
	}
}

func (e *full) ninth(t *testing.T, n *bed.Node, image string) {
	stage.Check(t, n.Apply(stage.Within(t, soon), stage.Pod("ninth", image, 1, "-expect", "1")))
	_, err := n.Kubectl(stage.Within(t, soon), nil, "wait", "pod/ninth",
		`--for=jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable`, "--timeout=60s")
	stage.Check(t, err)
	remove(t, n, "ninth")
}

// held reports whether series are one for each device, with the pod that has it.
func (e *full) held(all []map[string]string) bool {
	seen := map[string]bool{}
	for _, m := range all {
		id := m["accelerator_id"]
		seen[id] = true
		if m["pod"] != e.by[id] || m["namespace"] != "default" {
			return false
		}
	}
	return len(all) == len(e.by) && len(seen) == len(e.by)
}

func (e *full) scraped(t *testing.T, n *bed.Node, _ string) {
	answers(t, n, 2*soon,
		`accelerator_allocation_info{job="acceld"} and on (accelerator_id) (accelerator_up{job="acceld"} == 1)`, e.held)
	// The page for boards that were made for another exporter has them, too, by its own names.
	pods := func(all []map[string]string) bool {
		seen := map[string]bool{}
		for _, m := range all {
			seen[m["pod"]] = true
		}
		return len(all) == eight && len(seen) == eight && !seen[""]
	}
	answers(t, n, soon, `DCGM_FI_DEV_GPU_TEMP`, pods)
	answers(t, n, soon, `increase(accelerator_operations_total{job="acceld"}[1m]) > 0`,
		func(all []map[string]string) bool { return len(all) == eight })
}

// xid: one device has an error, and nobody says anything of the other seven and their pods.
func (e *full) xid(t *testing.T, n *bed.Node, image string) {
	const sick = 5
	id := e.ids[sick]
	e.script.Event(sick, 8, 79)
	stage.Check(t, stage.Play(stage.Within(t, soon), n.Guest, e.script))
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, eight-1))
	one := func(all []map[string]string) bool {
		return len(all) == 1 && all[0]["accelerator_id"] == id && all[0]["pod"] == e.by[id]
	}
	answers(t, n, soon,
		`accelerator_allocation_info{job="acceld"} and on (accelerator_id) (accelerator_up{job="acceld"} == 0)`, one)
	answers(t, n, soon,
		`accelerator_allocation_info{job="acceld"} and on (accelerator_id) (accelerator_driver_errors_total{job="acceld", code="79"} > 0)`,
		one)
	answers(t, n, soon, `accelerator_allocation_info{job="acceld"}`, e.held) // it keeps its pod
	stage.Check(t, n.WaitNode(stage.Within(t, soon), "the condition names the one device",
		func(node *corev1.Node) bool {
			i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == "AcceleratorsReady"
			})
			if i < 0 || node.Status.Conditions[i].Reason != string(accel.DeviceFault) {
				return false
			}
			for _, other := range e.ids {
				if strings.Contains(node.Status.Conditions[i].Message, other) != (other == id) {
					return false
				}
			}
			return true
		}))
	m, err := stage.Machine(stage.Within(t, soon), n.Guest)
	stage.Check(t, err)
	for _, a := range m.Have[stage.Kind].Accelerators {
		if (a.Health.State == accel.Healthy) == (a.ID == id) {
			t.Errorf("%s is %+v", a.ID, a.Health)
		}
	}
	status := sh(t, n.Guest, `acceld status "$1" || true`, id)
	for _, pod := range e.by {
		if strings.Contains(status, pod) != (pod == e.by[id]) {
			t.Errorf("acceld status %s names %s, and %s has the device:\n%s", id, pod, e.by[id], status)
		}
	}
	// Nobody's pod is ended for it, not even the one that has the device.
	for _, pod := range e.by {
		p, err := clientset.Of(n).CoreV1().Pods("default").Get(stage.Within(t, soon), pod, metav1.GetOptions{})
		stage.Check(t, err)
		if p.Status.Phase != corev1.PodRunning || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s: %+v", pod, p.Status)
		}
	}
	// The place of one that ends is taken again, and the sick device is not. For the scheduler the pod on the sick
	// device counts against the seven that are left, so that one has to go too.
	remove(t, n, e.by[e.ids[0]], e.by[id])
	delete(e.by, id)
	apply(t, n, stage.Pod(eighth(eight), image, 1, "-expect", "1", "-hold", "2h"))
	stage.Check(t, n.WaitPod(stage.Within(t, 2*soon), "default", eighth(eight), corev1.PodRunning))
	e.by[e.ids[0]] = eighth(eight)
	answers(t, n, soon, `accelerator_allocation_info{job="acceld"}`, e.held)
}
