package stage

import (
	"testing"

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

// StartNode builds the programs and starts a guest of the test bed that ends with the test. Of a failed test the bed keeps
// what tells why.
func StartNode(t testing.TB, o bed.Options) (*bed.Node, *Stage) {
	t.Helper()
	vm.Require(t)
	s, err := New(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return vm.StartNode(t, o).Cluster, s
}
