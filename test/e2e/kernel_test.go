package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/nvidia"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/unproven"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/cache"
	"github.com/acceld/acceld/test/vm/kernels"
	"github.com/acceld/acceld/test/vm/progress"
)

// slowBuild is time for a build in a guest with others beside it.
const slowBuild = 15 * time.Minute

// TestBrokenKernel is a kernel upgrade for which a driver's source does not compile, a true one: NVIDIA's, in its
// smallest part. It is told before the reboot; after it the node says so and is otherwise a node; booted back, it is
// ready.
func TestBrokenKernel(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 1, Kernel: bed.Oldest, FreshBoot: true})
	g := n.Guest
	pair := kernels.Of(n.Kernels())
	if !pair.Both() {
		stage.Check(t, unproven.In(s.File(".")).Note(kernels.What, pair.Lost()))
		t.Skip(
			"the distribution's archive no longer has two kernels of which the driver's source compiles for one alone, and the cache has none")
	}
	log := progress.New(os.Stderr)
	c, err := cache.Open(log.Say)
	stage.Check(t, err)
	theirs, err := nvidia.Source(t.Context(), c, log)
	stage.Check(t, err)
	source := filepath.Join(t.TempDir(), "source")
	stage.Check(t, nvidia.Subset(theirs, s.File("test/edu/module"), source))
	for _, k := range []string{pair.Older, pair.Newer} {
		stage.Check(t, nvidia.Probe(t.Context(), c, log, source, k))
	}
	stage.Check(t, s.PutTree(t.Context(), g, source, stage.SourceDir))
	stage.Check(t, s.Units(t.Context(), g, "kubernetes: {kubeconfig: /etc/acceld/kubeconfig}\n"))
	stage.Check(t, stage.Credentials(t.Context(), n))
	stage.Check(t, s.Enable(t.Context(), g))
	timed(t, pair.Older+": enabled -> ready, NVIDIA's part built", func() { reaches(t, g, accel.Ready, slowBuild) })
	label := fmt.Sprintf("acceld.dev/%s-%s", accel.DriverContainer, stage.Kind)
	stage.Check(t, n.WaitLabel(stage.Within(t, soon), label, "ready"))

	sh(t, g, "acceld driver preflight --kernel "+pair.Older+" qemu-edu")
	timed(t, "preflight for "+pair.Newer+" -> the compiler's sentence", func() {
		res, err := g.Sh(stage.Within(t, slowBuild), "acceld driver preflight --kernel "+pair.Newer+" qemu-edu")
		stage.Check(t, err)
		t.Logf("before the reboot:\n%s%s", res.Stdout, res.Stderr)
		if res.Status != 1 || !strings.Contains(plainQuotes(res.Stdout+res.Stderr), nvidia.Error) {
			t.Errorf("status %d, want 1 and the compiler's sentence", res.Status)
		}
	})
	reaches(t, g, accel.Ready, soon)

	stage.Check(t, n.Reboot(stage.Within(t, 5*time.Minute), bed.Reboot{Kernel: pair.Newer}))
	m := blocked(t, g, accel.BuildFailed, slowBuild)
	if said := m.Status[stage.Kind].Blocked.Message; !strings.Contains(plainQuotes(said), nvidia.Error) {
		t.Errorf("the sentence is %q", said)
	}
	stage.Check(t, n.WaitLabel(stage.Within(t, soon), label, "failed"))
	stage.Check(t, n.Apply(stage.Within(t, soon),
		fmt.Appendf(nil, `{apiVersion: v1, kind: Pod, metadata: {name: works, namespace: default}, spec: {
restartPolicy: Never, containers: [{name: main, image: %q, command: ["true"]}]}}`, n.Image("bed/busybox:1"))))
	stage.Check(t, n.WaitPod(stage.Within(t, 2*soon), "default", "works", corev1.PodSucceeded))

	stage.Check(t, n.Reboot(stage.Within(t, 5*time.Minute), bed.Reboot{Kernel: pair.Older}))
	timed(t, "booted back -> ready, from the store", func() {
		if m := reaches(t, g, accel.Ready, 3*time.Minute); m.Have[stage.Kind].Driver.Source != string(
			accel.SourceStore) {
			t.Errorf("the driver is from %q", m.Have[stage.Kind].Driver.Source)
		}
	})
	stage.Check(t, n.WaitLabel(stage.Within(t, soon), label, "ready"))
}

// plainQuotes makes a compiler's quotes those of every locale.
func plainQuotes(s string) string { return strings.NewReplacer("‘", "'", "’", "'").Replace(s) }

// blocked waits until the kind is blocked for a reason and returns the machine.
func blocked(t *testing.T, g *bed.Guest, reason accel.Reason, d time.Duration) accel.Machine {
	t.Helper()
	m, err := stage.WaitMachine(stage.Within(t, d), g, fmt.Sprintf("reason %q", reason), stage.Blocked(reason))
	stage.Check(t, err)
	return m
}
