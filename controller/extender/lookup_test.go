package extender

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/controller/fit"
	"github.com/acceld/acceld/test/fleet"
)

// TestFindAll: whatever nodes come and go, and in whatever order they are listed, a list finds the same as each of its
// names.
func TestFindAll(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) { findAll(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func findAll(t *testing.T, r *rand.Rand) {
	rules, err := fit.Rules{Prefix: fleet.Prefix, Cards: []string{"shares"}}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	b := NewCache(&rules)
	const most = 40
	name := func() string { return fmt.Sprint("n", r.IntN(most)) }
	var list []string
	var room []*entry
	hits := 0
	for range 300 {
		switch r.IntN(5) {
		case 0:
			b.SetNode(&Facts{Name: name()})
		case 1:
			b.DropNode(name())
		case 2: // the scheduler begins with another node
			if len(list) > 0 {
				i := r.IntN(len(list))
				list = slices.Concat(list[i:], list[:i])
			}
		case 3: // other pods, other nodes
			list = nil
			for range r.IntN(most) {
				list = append(list, name())
			}
		case 4:
			time.Sleep(time.Duration(r.IntN(int(2 * reorderAfter))))
		}
		var all names
		for _, name := range list {
			all.add([]byte(name))
		}
		room = b.findAll(&all, room)
		for i, name := range list {
			got, want := room[i], b.nodes[name]
			if got != want && (want != nil || got.node != nil) {
				t.Fatalf("%q of %q: another node than there is", name, list)
			}
		}
		if _, misses := b.findByOrder(&all, room); misses < len(list) {
			hits++
		}
		visited := 0
		b.each(room, func(i int, n *fit.Node) {
			if e := room[i]; i != visited || e == nil && n != nil || e != nil && n != e.node {
				t.Fatalf("%q of %q: not its node", list[i], list)
			}
			visited++
		})
		if visited != len(list) {
			t.Fatalf("%d of %d nodes are looked at", visited, len(list))
		}
	}
	if hits == 0 {
		t.Error("no list has had an order")
	}
}
