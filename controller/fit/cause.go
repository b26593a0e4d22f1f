package fit

// Cause is why a pod does not fit on a node. Its text is the same for every node and pod, because the scheduler
// groups nodes by it. Explain gives the details.
type Cause uint8

// The causes.
const (
	// Fits means that the pod fits.
	Fits Cause = iota
	// NoCards: neither an inventory nor a label names the node's cards.
	NoCards
	// LabelUnclear: a label or annotation of the node that the pod depends on cannot be read.
	LabelUnclear
	// NoRoom: the cards have too little room now; they have enough when other pods end.
	NoRoom
	// NodeRoom: the same, for a resource of the node as a whole.
	NodeRoom
	// TooMuch: even an empty node could not hold it.
	TooMuch
	// NoLinks: no free linked pairs have enough room.
	NoLinks
	// NotFound: the search reached its limit.
	NotFound
	// ListTooLong: the pod's list of allowed or denied cards is longer than the cards of any node.
	ListTooLong
	// SameUnclear: the list of containers that share a card does not name at least two that ask for one card each.
	SameUnclear
	// SameAndLinked: the pod asks for a shared card and for linked pairs, which exclude each other.
	SameAndLinked
	// LinkedOdd: the pod asks for linked pairs with an odd number of cards.
	LinkedOdd
	// UnknownNode: the node is not known (yet).
	UnknownNode
)

// String returns the sentence for people.
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
	case ListTooLong:
		return "the pod's list of allowed or denied accelerator cards is too long"
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

// Final reports whether the cause stays even if other pods on the node end, so that evicting them is useless.
func (c Cause) Final() bool {
	switch c {
	case NoCards, LabelUnclear, TooMuch, ListTooLong, SameUnclear, SameAndLinked, LinkedOdd:
		return true
	case Fits, NoRoom, NodeRoom, NoLinks, NotFound, UnknownNode:
	}
	return false
}
