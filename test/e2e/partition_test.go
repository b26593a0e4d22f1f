package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// Resources of partitions.
const (
	halves   = stage.Resource + "-half"
	quarters = stage.Resource + "-quarter"
)

// TestPartitions divides one of two devices, with a kubelet that counts and pods that compute. Its parts build on each
// other.
func TestPartitions(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2})
	g := n.Guest
	stage.Check(t, s.Units(t.Context(), g, "kubernetes: {kubeconfig: /etc/acceld/kubeconfig}\n"))
	stage.Check(t, stage.Credentials(t.Context(), n))
	stage.Check(t, s.Store(t.Context(), g, stage.Version))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Enable(t.Context(), g))
	reaches(t, g, accel.Ready, 5*time.Minute)
	if !inOrder(t, n, image,
		part{"two halves are a resource of their own", dividedInHalves},
		part{"a pod computes on a half, and keeps the layout", halfComputes},
		part{"a sick device has sick halves", halvesAreSick},
		part{"four quarters, and whole again", quartersAndWhole},
		part{"a claim by profile", halfByClaim},
	) {
		return
	}
	t.Run("claims know what a device could be divided into", func(t *testing.T) { countedPartitions(t, n, s, image) })
}

// divide divides the device with the node /dev/edu0 and returns how many parts it has then.
func divide(t *testing.T, g *bed.Guest, parts int) string {
	t.Helper()
	return sh(t, g, `f=/sys/class/accelerator_edu/edu0/device/partitions; (echo $1 > $f) 2>/dev/null || true; cat $f`,
		fmt.Sprint(parts))
}

// counts waits until the kubelet offers as many of each resource.
func counts(t *testing.T, n *bed.Node, whole, half, quarter int64) {
	t.Helper()
	ctx := stage.Within(t, 2*soon)
	for resource, count := range map[string]int64{stage.Resource: whole, halves: half, quarters: quarter} {
		if count >= 0 { // a profile that was never there is no resource
			stage.Check(t, n.WaitAllocatable(ctx, resource, count))
		}
	}
	reaches(t, n.Guest, accel.Ready, soon)
}

func dividedInHalves(t *testing.T, n *bed.Node, _ string) {
	timed(t, "divided -> two halves allocatable, one device whole", func() {
		if got := divide(t, n.Guest, 2); got != "2" {
			t.Fatalf("the device is in %s parts", got)
		}
		counts(t, n, 1, 2, -1)
	})
	m, err := stage.Machine(t.Context(), n.Guest)
	stage.Check(t, err)
	var parts []string
	for _, a := range m.Have[stage.Kind].Accelerators {
		for _, p := range a.Partitions {
			parts = append(parts, fmt.Sprintf("%s %s %s %d", strings.TrimPrefix(p.ID, a.ID), p.Profile, p.Health.State,
				len(p.Nodes)))
		}
	}
	if got := strings.Join(parts, ", "); got != "-half-p0 half healthy 1, -half-p1 half healthy 1" {
		t.Errorf("the machine has %s", got)
	}
	status := sh(t, n.Guest, "acceld status")
	if !strings.Contains(status, "-half-p0") || !strings.Contains(status, halves) {
		t.Errorf("acceld status:\n%s", status)
	}
	metrics, _, err := stage.Get(t.Context(), n.Guest, "/metrics")
	stage.Check(t, err)
	if up := strings.Count(metrics, `-half-p0",vendor="qemu"} 1`); up == 0 {
		t.Errorf("the metrics have no half:\n%s", metrics)
	}
}

func halfComputes(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 5*time.Minute)
	timed(t, "pod with a half applied -> computed", func() {
		stage.Check(t, n.Apply(ctx, stage.PodOf(halves, "half", image, 1, "-expect", "1")))
		stage.Check(t, n.WaitPod(ctx, "default", "half", corev1.PodSucceeded))
	})
	log, err := n.PodLog(ctx, "default", "half")
	stage.Check(t, err)
	if !strings.Contains(log, "/dev/edu0p") || !strings.Contains(log, "PASS 1 device(s)") {
		t.Errorf("log of the pod: %s", log)
	}
	for _, name := range []string{"left", "right"} {
		stage.Check(t, n.Apply(ctx, stage.PodOf(halves, name, image, 1, "-expect", "1", "-hold", "2h")))
		stage.Check(t, n.WaitPod(ctx, "default", name, corev1.PodRunning))
	}
	if users := sh(t, n.Guest,
		`for p in $(pgrep edu-check); do for f in /proc/$p/fd/*; do readlink $f; done; done | grep ^/dev/edu0p | sort | xargs`); users != "/dev/edu0p0 /dev/edu0p1" {
		t.Errorf("the pods have %q open, want a half each", users)
	}
	if got := divide(t, n.Guest, 4); got != "2" {
		t.Errorf("a device in use was divided into %s parts", got)
	}
	remove(t, n, "half", "left", "right")
}

func halvesAreSick(t *testing.T, n *bed.Node, _ string) {
	inject := func(what string) {
		sh(t, n.Guest, `echo $1 > /sys/class/accelerator_edu/edu0/device/inject_error`, what)
	}
	inject("overheat")
	timed(t, "device sick -> its halves are not allocatable", func() { counts(t, n, 1, 0, -1) })
	inject("none")
	timed(t, "device well -> they are", func() { counts(t, n, 1, 2, -1) })
}

func quartersAndWhole(t *testing.T, n *bed.Node, image string) {
	divide(t, n.Guest, 4)
	timed(t, "divided otherwise -> four quarters, no half", func() { counts(t, n, 1, 0, 4) })
	divide(t, n.Guest, 1)
	timed(t, "whole again -> two devices, no parts", func() { counts(t, n, 2, 0, 0) })
	podComputes(t, n, image)
}

// halfClaim is a claim for a half, and a pod that computes on it.
func halfClaim(name, image string, args ...string) []byte {
	claim := strings.Replace(string(stage.Claim(name)), "deviceClassName: "+stage.Class,
		"deviceClassName: half."+stage.Class, 1)
	return append([]byte(claim), stage.ClaimPod(name, image, "resourceClaimName: "+name, args...)...)
}

func halfByClaim(t *testing.T, n *bed.Node, image string) {
	ctx := stage.Within(t, 8*time.Minute)
	stage.Check(t, n.WriteFile(ctx, "/etc/acceld/config.yaml", []byte(byClaims), 0o644))
	offers(t, n, 2)
	divide(t, n.Guest, 2)
	timed(t, "divided -> a device and two halves in slices", func() { offers(t, n, 3) })
	timed(t, "claim for a half applied -> computed", func() {
		apply(t, n, halfClaim("half", image, "-expect", "1"))
		stage.Check(t, n.WaitPod(ctx, "default", "half", corev1.PodSucceeded))
	})
	log, err := n.PodLog(ctx, "default", "half")
	stage.Check(t, err)
	if !strings.Contains(log, "/dev/edu0p") || !strings.Contains(log, "PASS 1 device(s)") {
		t.Errorf("log of the pod: %s", log)
	}
	// Whoever asks for a device gets the one that is whole.
	apply(t, n, stage.Claim("whole"), stage.ClaimPod("whole", image, "resourceClaimName: whole", "-expect", "1"))
	stage.Check(t, n.WaitPod(ctx, "default", "whole", corev1.PodSucceeded))
	log, err = n.PodLog(ctx, "default", "whole")
	stage.Check(t, err)
	if !strings.Contains(log, "/dev/edu1 serial") {
		t.Errorf("log of the pod with a whole device: %s", log)
	}
	removeClaims(t, n, "half", "whole")
	divide(t, n.Guest, 1)
	timed(t, "whole again -> two devices in slices", func() { offers(t, n, 2) })
	reaches(t, n.Guest, accel.Ready, soon)
}

// countedPartitions: with counters in the definition the API server has the partitions that could be, and what each
// takes.
func countedPartitions(t *testing.T, n *bed.Node, s *stage.Stage, image string) {
	ctx := stage.Within(t, 8*time.Minute)
	definition := readFile(t, s.File("vendors/qemu/edu.yaml"))
	for old, text := range map[string]string{
		"  profiles:\n":         "  counters: {quarters: \"4\"}\n  profiles:\n",
		"    - name: half\n":    "    - name: half\n      uses: {quarters: \"2\"}\n      possible: [p0, p1]\n",
		"    - name: quarter\n": "    - name: quarter\n      uses: {quarters: \"1\"}\n      possible: [p0, p1, p2, p3]\n",
	} {
		if !strings.Contains(definition, old) {
			t.Fatalf("the definition has no %q", old)
		}
		definition = strings.Replace(definition, old, text, 1)
	}
	stage.Check(t, n.WriteFile(ctx, "/etc/acceld/definitions.d/edu.yaml", []byte(definition), 0o644))
	// devices are those in the slices with all that could be, sets their counter sets.
	told := func() (devices, sets int) {
		for _, slice := range slicesOf(ctx, t, n) {
			devices += len(slice.Spec.Devices)
			sets += len(slice.Spec.SharedCounters)
		}
		return devices, sets
	}
	// 2 devices with 2 halves and 4 quarters each
	for devices, sets := told(); devices != 14 || sets != 2; devices, sets = told() {
		if ctx.Err() != nil {
			t.Fatalf("%d devices and %d counter sets in the slices, want 14 and 2", devices, sets)
		}
		time.Sleep(200 * time.Millisecond)
	}
	offers(t, n, 2)
	divide(t, n.Guest, 2)
	offers(t, n, 3)
	apply(t, n, halfClaim("counted", image, "-expect", "1"))
	stage.Check(t, n.WaitPod(ctx, "default", "counted", corev1.PodSucceeded))
	removeClaims(t, n, "counted")
	divide(t, n.Guest, 1)
	offers(t, n, 2)
	sh(t, n.Guest, "rm /etc/acceld/definitions.d/edu.yaml")
}
