package fit

// Cause is why a pod does not fit on a node. Its text is the same for every node and pod, because the scheduler groups
// nodes by it; what is particular is for explain.
type Cause int

// The causes, least particular last.
const (
	// Fits is no cause.
	Fits Cause = iota
	// NoCards: nothing names the node's cards.
	NoCards
	// LabelUnclear: a label or annotation of the node that the pod depends on cannot be read.
	LabelUnclear
	// NoRoom: the cards have room for it when others end.
	NoRoom
	// NodeRoom: the same for a resource of the node as a whole.
	NodeRoom
	// TooMuch: even an empty node could not hold it.
	TooMuch
	// NoLinks: no linked pairs are free that would do.
	NoLinks
	// NotFound: the search ended at its bound.
	NotFound
	// SameUnclear: the list of containers for one card is not one of at least two that ask for one card each.
	SameUnclear
	// SameAndLinked: one card and linked pairs exclude each other.
	SameAndLinked
	// LinkedOdd: linked pairs are asked for with an odd number of cards.
	LinkedOdd
	// UnknownNode: nobody knows the node (yet).
	UnknownNode
)

// String is the sentence for people.
func (c Cause) String() string {
	switch c {
	case Fits:
		return "fits"
	case NoCards:
		return "no accelerator card is known on this node"
	case LabelUnclear:
		return "what the node says of its cards cannot be read"
	case NoRoom:
		return "not enough room on any one accelerator card"
	case NodeRoom:
		return "not enough room on the node for an accelerator resource of the whole node"
	case TooMuch:
		return "more than the accelerator cards of this node can hold when empty"
	case NoLinks:
		return "no linked accelerator cards with room"
	case NotFound:
		return "no room on the accelerator cards found in the time for looking"
	case SameUnclear:
		return "the pod's list of containers for one accelerator card cannot be followed"
	case SameAndLinked:
		return "the pod asks for one accelerator card and for linked ones"
	case LinkedOdd:
		return "the pod asks for linked pairs with an odd number of accelerator cards"
	case UnknownNode:
		return "the node is not known yet"
	}
	return "unknown"
}

// Final reports whether nothing that ends on the node could change it, so that evicting others is of no use.
func (c Cause) Final() bool {
	switch c {
	case NoCards, LabelUnclear, TooMuch, SameUnclear, SameAndLinked, LinkedOdd:
		return true
	case Fits, NoRoom, NodeRoom, NoLinks, NotFound, UnknownNode:
	}
	return false
}
