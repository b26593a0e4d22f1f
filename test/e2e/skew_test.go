package e2e

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/acceld/acceld/test/stage"
	"github.com/acceld/acceld/test/vm/bed"
)

// TestSkew: agents and a controller of which one side is of the release before do what a policy orders, as in the
// minutes of an upgrade of both. First the agents are behind, then the controller is.
func TestSkew(t *testing.T) {
	first, second, s := stage.StartPair(t, bed.Options{Accelerators: 1})
	before, err := stage.NewBefore(t.Context(), t.TempDir())
	stage.Check(t, err)
	f := &fleet{first: first, nodes: []*bed.Node{first, second}, s: s}
	f.prepare(t)
	agentsOf := func(s *stage.Stage) {
		t.Helper()
		stage.Check(t, s.Deploy(t.Context(), first))
		_, err := first.Kubectl(t.Context(), nil, "-n", agents, "rollout", "status", "daemonset/acceld", "--timeout=6m")
		stage.Check(t, err)
	}
	agentsOf(before)
	f.served(t, stage.Version)
	stage.StartController(t, first, s, "")
	f.order = watchFleet(t, first)
	inOrder(t, first, f.image,
		f.part("agents of the release before", underDeployment),
		f.part("a controller of the release before", func(t *testing.T, f *fleet) {
			agentsOf(s)
			f.served(t, stage.Version2)
			stage.StartController(t, first, before, "")
			wrongVersion(t, f)
		}),
	)
}

// TestSkewOfClaims: devices are given out by claims while the agent or the controller is of the release before, and
// what one version of the agent has prepared, the other one takes over and takes back.
func TestSkewOfClaims(t *testing.T) {
	n, s := stage.StartNode(t, bed.Options{Accelerators: 2})
	before, err := stage.NewBefore(t.Context(), t.TempDir())
	stage.Check(t, err)
	stage.Check(t, s.Store(t.Context(), n.Guest, stage.Version))
	image, err := s.Workload(t.Context(), n)
	stage.Check(t, err)
	agentOf := func(t *testing.T, s *stage.Stage) {
		t.Helper()
		text, err := n.Kubectl(t.Context(), nil, "kustomize", s.File("packaging/manifests/dra"))
		stage.Check(t, err)
		apply(t, n, []byte(text))
		stage.Check(t, s.DeployOver(t.Context(), n, configMap(t), "kubernetes: {allocation: dra}\n"))
		daemonSet(t, n, "status", "--timeout=4m")
	}
	// takenOver puts an agent in the place of another under a pod that holds a claim.
	takenOver := func(t *testing.T, next *stage.Stage, name string) {
		t.Helper()
		apply(t, n, stage.Claim(name), stage.ClaimPod(name, image, "resourceClaimName: "+name, "-expect", "1", "-hold", "2h"))
		stage.Check(t, n.WaitPod(stage.Within(t, 3*time.Minute), "default", name, corev1.PodRunning))
		given(t, n, 1)
		agentOf(t, next)
		given(t, n, 1)
		removeClaims(t, n, name)
	}
	agentOf(t, before)
	offers(t, n, 2)
	stage.StartController(t, n, s, "")
	inOrder(
		t, n, image,
		part{"an agent of the release before", claimComputes},
		part{"what it prepared is taken over by this one", func(t *testing.T, _ *bed.Node, _ string) {
			takenOver(t, s, "forth")
		}},
		part{"this agent", claimComputes},
		part{"a controller of the release before", func(t *testing.T, n *bed.Node, image string) {
			stage.StartController(t, n, before, "")
			claimComputes(t, n, image)
		}},
		part{"what this agent prepared is taken over by that of the release before", func(t *testing.T, _ *bed.Node, _ string) {
			takenOver(t, before, "back")
		}},
		part{"the agent of the release before again", claimComputes},
	)
}
