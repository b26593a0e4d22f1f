package e2e

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// TestOneOfEight: one of eight devices does not answer any more, under a stream of short pods. The node goes on with
// the other seven: at most the pod that had the device fails. Beside it, the same with a plain device plugin.
//
// ACCELD_PODS says how many pods there are by the device plugin and by claims; the plain one is compared over fewer.
func TestOneOfEight(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: eight})
	stage.Check(t, s.Units(t.Context(), n.Guest, byDevicePlugin))
	stage.Check(t, stage.Credentials(t.Context(), n))
	stage.Check(t, s.Store(t.Context(), n.Guest, stage.Version))
	stage.Check(t, n.Put(t.Context(), s.Program("plainplugin"), "/usr/bin/plainplugin", 0o755))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Enable(t.Context(), n.Guest))
	reaches(t, n.Guest, accel.Ready, 8*time.Minute)
	inOrder(
		t, n, image,
		part{"by the device plugin", loseUnderPods},
		part{"by claims", loseUnderClaims},
		part{"by a plain device plugin", loseUnderPlain},
	)
}

// losses are what became of a stream of pods.
type losses struct{ computed, refused, failed, stuck int }

// sampled is how many pods there are unless ACCELD_PODS asks for more.
const sampled = 60

func podsToLose() int { return wanted("ACCELD_PODS", sampled) }

// lose runs a stream of pods, and takes one device away after a third of them. Six at a time leave room for that.
func lose(t *testing.T, n *bed.Node, pods int, pod func(name string) []byte) (out losses) {
	t.Helper()
	const atATime = 6
	id := addresses(t, n.Guest)[3]
	s := newPodStream(n, pod)
	s.failed = func(p *corev1.Pod) {
		if p.DeletionTimestamp != nil {
			return // deleted because it was stuck, and counted there
		}
		if len(p.Status.ContainerStatuses) == 0 || p.Status.Reason != "" { // the kubelet did not take it
			out.refused++
		} else {
			out.failed++
		}
		t.Logf("pod %s: %s %s", p.Name, p.Status.Reason, p.Status.Message)
	}
	s.start(t, atATime)
	defer s.end()
	s.reach(t, pods/3, func() {})
	sh(t, n.Guest, `echo dead > "/sys/bus/pci/devices/$1/inject_error"`, id)
	s.reach(t, pods, func() {})
	out.stuck = s.stuck(t)
	s.end()
	out.computed = s.admitted
	t.Logf("%d pods computed, %d were refused, %d failed, %d were allocated the device just before and could not start",
		out.computed, out.refused, out.failed, out.stuck)
	sh(t, n.Guest, `echo none > "/sys/bus/pci/devices/$1/inject_error"`, id)
	return out
}

// repaired resets the device that was lost. The reset is refused until the kubelet has let go of the pod that had it.
func repaired(t *testing.T, n *bed.Node) {
	t.Helper()
	t.Logf("%s", stage.Sh(t, n.Guest, soon, `until acceld reset "$1" 2>&1; do sleep 1; done`, addresses(t, n.Guest)[3]))
}

func loseUnderPods(t *testing.T, n *bed.Node, image string) {
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, eight))
	out := lose(t, n, podsToLose(), func(name string) []byte {
		return stage.Pod("plugin-"+name, image, 1, "-expect", "1", "-hold", "1s")
	})
	if out.refused > 0 || out.failed+out.stuck > 1 {
		t.Errorf("%+v", out)
	}
	repaired(t, n)
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, eight))
}

func loseUnderClaims(t *testing.T, n *bed.Node, image string) {
	stage.Check(t, n.WriteFile(stage.Within(t, soon), "/etc/acceld/config.yaml", []byte(byClaims), 0o644))
	offers(t, n, eight)
	apply(t, n, stage.ClaimTemplate("short"))
	out := lose(t, n, podsToLose(), func(name string) []byte {
		return stage.ClaimPod("claim-"+name, image, "resourceClaimTemplateName: short", "-expect", "1", "-hold", "1s")
	})
	if out.refused > 0 || out.failed+out.stuck > 1 {
		t.Errorf("%+v", out)
	}
	given(t, n, 0)
	repaired(t, n)
	offers(t, n, eight)
}

// loseUnderPlain is the comparison: whoever does not look at its devices gives the dead one to pod after pod.
func loseUnderPlain(t *testing.T, n *bed.Node, image string) {
	sh(t, n.Guest, "systemctl stop acceld.socket acceld.service; systemd-run --unit=plain plainplugin")
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), plain, eight))
	out := lose(t, n, sampled, func(name string) []byte {
		return stage.PodOf(plain, "plain-"+name, image, 1, "-expect", "1", "-hold", "1s")
	})
	if out.refused+out.failed+out.stuck < 2 {
		t.Errorf("%+v: there is nothing to compare with", out)
	}
}

// plain is the resource of the plain device plugin.
const plain = "example.com/plain"
