// Package fit decides which cards of a node a pod gets. It keeps the books of one node, card by card, for every
// resource with a prefix: the amounts are numbers to it, whatever they count. It is pure: no clock, no lock, no API, no
// log; the caller guards each [Node].
//
// A container asks for a number of cards and for amounts of other resources, which are divided over these cards,
// rounded up. A card may be given to several containers as long as every amount fits. Cards are tried in the order of
// their names as text, so that "card10" comes before "card2", and the first choice that works is taken; when a later
// container then finds no room, the choice of the earlier ones is changed until all fit. So a pod is refused only where
// it does not fit, or where the search ends at its bound (see [Budget]).
//
// Containers that run beside each other add up on a card; an init container counts as far as it needs more than they
// do. It runs on the cards of the others, because the kubelet gives it those, and only where it asks for more cards has
// it others besides.
package fit

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Ceil is the quantity of a request: rounded up, at most the largest int64, never negative.
func Ceil(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64) >= 0 {
		return math.MaxInt64
	}
	return max(q.Value(), 0)
}

// Floor is the quantity of a capacity: rounded down, at most the largest int64, never negative.
func Floor(q resource.Quantity) int64 {
	up := Ceil(q)
	if up > 0 && q.CmpInt64(up) < 0 {
		return up - 1
	}
	return up
}

// divideUp is a/b rounded up, for a ≥ 0 and b > 0.
func divideUp(a, b int64) int64 {
	if a%b == 0 {
		return a / b
	}
	return a/b + 1
}

// add is a+b, at most the largest int64, for numbers that are not negative.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
