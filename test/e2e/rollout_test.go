package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// TestRollout replaces the agent of a DaemonSet over and over, under a stream of short pods. The kubelet refuses none,
// whether they get their devices by the device plugin or by claims. A version that does not work leaves the node with
// the agent that it had.
//
// ACCELD_CHANGES says how often the agent is replaced in each of the two ways.
func TestRollout(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 4})
	stage.Check(t, s.Store(t.Context(), n.Guest, stage.Version))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	stage.Check(t, s.Deploy(t.Context(), n))
	reaches(t, n.Guest, accel.Ready, 5*time.Minute)
	stage.Check(t, n.WaitAllocatable(stage.Within(t, soon), stage.Resource, 4))
	inOrder(
		t, n, image,
		part{"under pods of the device plugin", rolledUnderPods},
		part{"a version that does not start", brokenVersion},
		part{"a version that ends when it has begun", shortVersion},
		part{"under pods with claims", func(t *testing.T, n *bed.Node, image string) { rolledUnderClaims(t, n, s, image) }},
	)
}

// daemonSet runs kubectl rollout for the agents.
func daemonSet(t *testing.T, n *bed.Node, verb string, more ...string) {
	t.Helper()
	_, err := n.Kubectl(stage.Within(t, 5*time.Minute), nil,
		append([]string{"-n", agents, "rollout", verb, "ds/acceld"}, more...)...)
	stage.Check(t, err)
}

// follows waits until an agent that started after another one is ready.
func follows(t *testing.T, n *bed.Node, what string, before accel.Machine) accel.Machine {
	t.Helper()
	m, err := stage.WaitMachine(stage.Within(t, 2*soon), n.Guest, what, func(m accel.Machine) bool {
		return m.Agent.Started.After(before.Agent.Started) && stage.InState(accel.Ready)(m)
	})
	stage.Check(t, err)
	return m
}

func now(t *testing.T, n *bed.Node) accel.Machine {
	t.Helper()
	m, err := stage.Machine(stage.Within(t, soon), n.Guest)
	stage.Check(t, err)
	return m
}

// roll replaces the agent under a stream of pods.
func roll(t *testing.T, n *bed.Node, pod func(name string) []byte) {
	t.Helper()
	times := wanted("ACCELD_CHANGES", 5)
	s := newPodStream(n, pod)
	s.start(t, 2)
	defer s.end()
	for range times {
		timed(t, "rollout restarted -> complete", func() {
			before, failed := now(t, n), t.Failed()
			daemonSet(t, n, "restart")
			follows(t, n, "the next agent", before)
			log, err := n.Kubectl(stage.Within(t, soon), nil, "-n", agents, "logs", "-l", "app.kubernetes.io/name=acceld",
				"--prefix", "--tail=200")
			daemonSet(t, n, "status", "--timeout=3m")
			if t.Failed() && !failed {
				t.Logf("both agents say (%v):\n%s", err, log)
			}
		})
	}
	s.end()
	t.Logf("%d times another agent: %d pods admitted, %d refused, %.1f s each, %.1f s at most", times, s.admitted,
		s.refused, s.sum.Seconds()/float64(max(1, s.admitted)), s.longest.Seconds())
	if s.admitted == 0 {
		t.Error("no pod was admitted")
	}
}

func rolledUnderPods(t *testing.T, n *bed.Node, image string) {
	roll(t, n, func(name string) []byte { return stage.Pod("plugin-"+name, image, 1, "-expect", "1") })
}

// stillComputes holds that a pod still computes on the node.
func stillComputes(t *testing.T, n *bed.Node, image, name string) {
	t.Helper()
	ctx := stage.Within(t, 3*time.Minute)
	stage.Check(t, n.WaitAllocatable(ctx, stage.Resource, 4))
	stage.Check(t, n.Apply(ctx, stage.Pod(name, image, 1, "-expect", "1")))
	stage.Check(t, n.WaitPod(ctx, "default", name, corev1.PodSucceeded))
	remove(t, n, name)
}

// brokenVersion orders an image that is no agent.
func brokenVersion(t *testing.T, n *bed.Node, image string) {
	before := now(t, n)
	_, err := n.Kubectl(stage.Within(t, soon), nil, "-n", agents, "set", "image", "ds/acceld", "acceld="+image)
	stage.Check(t, err)
	ctx := stage.Within(t, 3*time.Minute)
	for restarts := ""; restarts == "" || restarts == "0"; time.Sleep(time.Second) {
		out, err := n.Kubectl(ctx, nil, "-n", agents, "get", "pods", "-o",
			`jsonpath={range .items[*]}{.status.containerStatuses[0].image} {.status.containerStatuses[0].restartCount}{"\n"}{end}`)
		stage.Check(t, err)
		for line := range strings.Lines(out) {
			if fields := strings.Fields(line); len(fields) == 2 && strings.Contains(fields[0], image) {
				restarts = fields[1]
			}
		}
	}
	stillComputes(t, n, image, "beside-broken")
	if after := now(t, n); !after.Agent.Started.Equal(before.Agent.Started) {
		t.Errorf("the agent of %s is gone, %s runs", before.Agent.Started, after.Agent.Started)
	}
	daemonSet(t, n, "undo")
	daemonSet(t, n, "status", "--timeout=3m")
	if after := now(t, n); !after.Agent.Started.Equal(before.Agent.Started) {
		t.Errorf("the agent of %s is gone, %s runs", before.Agent.Started, after.Agent.Started)
	}
}

// shortVersion ends the next agent as soon as it runs. The previous one takes the node back until it begins again.
func shortVersion(t *testing.T, n *bed.Node, image string) {
	before := now(t, n)
	old := strings.Fields(sh(t, n.Guest, "pgrep -f '^(/usr/bin/|/)acceld run'"))
	daemonSet(t, n, "restart")
	next := follows(t, n, "the next agent", before)
	fresh := slices.DeleteFunc(strings.Fields(sh(t, n.Guest, "pgrep -f '^(/usr/bin/|/)acceld run'")), func(pid string) bool {
		return slices.Contains(old, pid)
	})
	if len(fresh) != 1 {
		t.Fatalf("agents %q, before %q", fresh, old)
	}
	timed(t, "the next agent killed -> the previous one is ready", func() {
		sh(t, n.Guest, `kill -9 "$1"`, fresh[0])
		follows(t, n, "the previous agent", next)
	})
	daemonSet(t, n, "status", "--timeout=3m")
	stillComputes(t, n, image, "after-the-kill")
}

func rolledUnderClaims(t *testing.T, n *bed.Node, s *stage.Stage, image string) {
	text, err := n.Kubectl(t.Context(), nil, "kustomize", s.File("packaging/manifests/dra"))
	stage.Check(t, err)
	apply(t, n, []byte(text))
	stage.Check(t, s.DeployOver(t.Context(), n, configMap(t), "kubernetes: {allocation: dra}\n"))
	daemonSet(t, n, "status", "--timeout=3m")
	offers(t, n, 4)
	apply(t, n, stage.ClaimTemplate("short"))
	roll(t, n, func(name string) []byte {
		return stage.ClaimPod("claim-"+name, image, "resourceClaimTemplateName: short", "-expect", "1")
	})
	given(t, n, 0)
}
