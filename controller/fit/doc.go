// Package fit decides which cards of a node a pod gets. It tracks the usage of one node, card by card, for every
// resource with a configured prefix. The amounts are plain numbers to it, whatever they count. It is pure: no clock,
// no lock, no API, no log. The caller guards each [Node].
//
// A container asks for a number of cards and for amounts of other resources. The amounts are divided over these cards
// and rounded up. A card may be given to several containers as long as every amount fits. Cards are tried in the
// order of their names as text, so "card10" comes before "card2", and the first choice that works is taken. If a
// later container then finds no room, the search changes the choice of the earlier ones until all fit. A pod is
// therefore refused only if it does not fit or if the search reaches its limit (see [Budget]).
//
// The amounts of containers that run at the same time add up on a card. An init container counts only as far as it
// needs more than they do. It runs on cards of the other containers, because the kubelet reuses their devices. It
// gets further cards only if it asks for more than the pod otherwise has.
package fit

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Ceil converts the quantity of a request: rounded up, at most the largest int64, never negative.
func Ceil(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64) >= 0 {
		return math.MaxInt64
	}
	return max(q.Value(), 0)
}

// Floor converts the quantity of a capacity: rounded down, at most the largest int64, never negative.
func Floor(q resource.Quantity) int64 {
	up := Ceil(q)
	if up > 0 && q.CmpInt64(up) < 0 {
		return up - 1
	}
	return up
}

// divideUp returns a/b rounded up, for a ≥ 0 and b > 0.
func divideUp(a, b int64) int64 {
	return a/b + min(a%b, 1)
}

// add returns a+b, at most the largest int64, for numbers that are not negative.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
