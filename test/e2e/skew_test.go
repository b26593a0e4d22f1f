package e2e

import (
	"testing"

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
