package growth

import (
	"slices"

	"github.com/acceld/acceld/test/fleet"
)

// The model says what the right answers are, without the code that is measured: each card has 1000 millicores, used
// says how many of them a pod has, and a request fits on a node if a card has so many left.
const (
	perCard = 1000
	little  = 600 // leaves room for small and middle
	much    = 900 // leaves room for small
	small   = 100
	middle  = 300
	large   = 500
)

// used is how many millicores the pod on card c of node i has. Of three nodes, one has room for middle on each card,
// one on none, and one on one card.
func used(i, c int) int {
	if i%3 == 0 || i%3 == 2 && c == i%fleet.WholeCards {
		return little
	}
	return much
}

// fits reports whether a card of node i has so many millicores left.
func fits(i, millicores int) bool {
	for c := range fleet.WholeCards {
		left := perCard
		if c < *podsEach {
			left -= used(i, c)
		}
		if left >= millicores {
			return true
		}
	}
	return false
}

// split returns the names of those nodes on which a request fits, and of the others, in order.
func split(nodes []int, millicores int) (fit, not []string) {
	for _, i := range nodes {
		if fits(i, millicores) {
			fit = append(fit, fleet.WholeName(i))
		} else {
			not = append(not, fleet.WholeName(i))
		}
	}
	return fit, not
}

// right reports whether an answer is the model's.
func (r filterResult) right(nodes []int, millicores int) bool {
	fit, not := split(nodes, millicores)
	if r.NodeNames == nil || !slices.Equal(*r.NodeNames, fit) || r.Error != "" || len(r.FailedNodes) != len(not) {
		return false
	}
	for _, name := range not {
		if r.FailedNodes[name] == "" {
			return false
		}
	}
	return true
}
