package stage

import (
	"context"
	"testing"
	"time"

	"github.com/acceld/acceld/test/vm"
	"github.com/acceld/acceld/test/vm/bed"
)

// StartPair is StartNode for two nodes of one cluster.
func StartPair(t testing.TB, o bed.Options) (first, second *bed.Node, s *Stage) {
	t.Helper()
	vm.Require(t)
	s, err := New(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	one, two := vm.StartPair(t, o)
	return one.Cluster, two.Cluster, s
}

// StartNode builds the programs and starts a guest of the test bed that ends with the test. Of a failed test the bed
// keeps what tells why.
func StartNode(t testing.TB, o bed.Options) (*bed.Node, *Stage) {
	t.Helper()
	vm.Require(t)
	s, err := New(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return vm.StartNode(t, o).Cluster, s
}

// StartController is [Stage.Controller] for a test, with its log when the test fails.
func StartController(t testing.TB, n *bed.Node, s *Stage, config string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
			defer cancel()
			t.Logf("the controller:\n%s", ControllerLog(ctx, n))
		}
	})
	Check(t, s.Controller(Within(t, 8*time.Minute), n, config))
}
