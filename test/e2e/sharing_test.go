package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
	"github.com/acceld/acceld/test/vm/clientset"
)

// shared gives each of two devices to two pods at a time, and takes that back under a pod that has a part.
func shared(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 5*soon)
	configure := func(text string) {
		stage.Check(t, n.WriteFile(ctx, "/etc/acceld/config.yaml", []byte(text), 0o644))
	}
	configure("kinds: {qemu-edu: {sharing: {replicas: 2}}}\n")
	timed(t, "two replicas configured -> four allocatable", func() {
		stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 4))
	})
	var pods []string
	for i := range 4 {
		pods = append(pods, fmt.Sprintf("part-%d", i))
		stage.Check(t, n.Apply(ctx, stage.Pod(pods[i], image, 1, "-expect", "1", "-hold", "2h")))
		stage.Check(t, n.WaitPod(ctx, "default", pods[i], corev1.PodRunning))
	}
	// Each pod sees one device, and each device two pods.
	if users := sh(t, n.Guest,
		`for p in $(pgrep edu-check); do for f in /proc/$p/fd/*; do readlink $f; done; done | grep ^/dev/edu | sort | uniq -c | awk '{print $1}' | xargs`); users != "2 2" {
		t.Errorf("pods of each device: %q, want 2 and 2", users)
	}
	remove(t, n, pods[:3]...)
	stage.Check(t, n.Apply(ctx, stage.Pod("wide", image, 2, "-expect", "2")))
	// two different devices, not two parts of one
	stage.Check(t, n.WaitPod(ctx, "default", "wide", corev1.PodSucceeded))
	remove(t, n, "wide")

	configure("kinds: {qemu-edu: {sharing: {replicas: 2, failRequestsGreaterThanOne: true}}}\n")
	_, err := stage.WaitMachine(ctx, n.Guest, "the option to be in force", func(m accel.Machine) bool {
		s := m.Want.Kinds[stage.Kind].Sharing
		return s != nil && s.FailRequestsGreaterThanOne
	})
	stage.Check(t, err)
	stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 4))
	stage.Check(t, n.Apply(ctx, stage.Pod("greedy", image, 2, "-expect", "2")))
	stage.Check(t, n.WaitPod(ctx, "default", "greedy", corev1.PodFailed))
	greedy, err := clientset.Of(n).CoreV1().Pods("default").Get(ctx, "greedy", metav1.GetOptions{})
	stage.Check(t, err)
	t.Logf("the pod that asked for two: %s: %s", greedy.Status.Reason, greedy.Status.Message)
	if !strings.Contains(greedy.Status.Message, "2") {
		t.Errorf("it is not told why: %+v", greedy.Status)
	}
	remove(t, n, "greedy")

	configure("{}\n")
	timed(t, "no sharing -> two allocatable, under a pod", func() {
		stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 2))
	})
	stage.Check(t, n.WaitPod(ctx, "default", pods[3], corev1.PodRunning))
	remove(t, n, pods[3])
	stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 2))
	reaches(t, n.Guest, accel.Ready, soon)
	podComputes(t, n, image)
	sh(t, n.Guest, "rm /etc/acceld/config.yaml")
}
