package fit

import (
	"bytes"
	"cmp"
	"slices"
)

// Report explains for people how one pod fits on one node.
type Report struct {
	Node string `json:"node"`
	Fits bool   `json:"fits"`
	// Verdict is a sentence, the same one that the scheduler gets.
	Verdict string `json:"verdict"`
	// Problem says why what the node says of its cards cannot be read.
	Problem string `json:"problem,omitempty"`
	// Choice are the cards that the pod would get, in the form of the annotation.
	Choice string       `json:"choice,omitempty"`
	Cards  []CardReport `json:"cards,omitempty"`
	// Wide are the resources of the node as a whole.
	Wide []ResourceReport `json:"wholeNode,omitempty"`
	// Unplaced are pods on this node that ask for cards and whose cards are not known.
	Unplaced []string `json:"unplaced,omitempty"`
}

// CardReport is one card.
type CardReport struct {
	Card      string           `json:"card"`
	Verdict   string           `json:"verdict"`
	Resources []ResourceReport `json:"resources"`
	// Pods are the pods that use the card: "namespace/name", with the amount of each resource.
	Pods []HolderReport `json:"pods,omitempty"`
}

// ResourceReport is one resource of a card or a node. Free may be negative if a card has lost capacity.
type ResourceReport struct {
	Name     string `json:"name"`
	Capacity int64  `json:"capacity"`
	Used     int64  `json:"used"`
	Free     int64  `json:"free"`
	// Need is the largest amount that a container of the pod asks of one card, or what the pod needs of the whole
	// node.
	Need int64 `json:"need,omitempty"`
}

// HolderReport is a pod on a card.
type HolderReport struct {
	Pod  string           `json:"pod"`
	Uses map[string]int64 `json:"uses"`
	// Presumed says that nobody chose the pod's cards: it is counted on this one, and may have another.
	Presumed bool `json:"presumed,omitempty"`
}

// Explain compares what the pod of the search asks for with what one node has.
func (s *Search) Explain(n *Node) Report {
	record, cause := s.Place(n)
	out := Report{Node: n.name, Fits: cause == Fits, Verdict: cause.String(), Problem: n.problem}
	if record != nil {
		out.Choice = record.Chosen().Cards
	}
	needs := map[string]int64{}
	for _, c := range s.req.Shape.Containers {
		for _, a := range c.PerCard {
			needs[a.Name] = max(needs[a.Name], a.Count)
		}
	}
	for _, a := range s.req.Shape.Wide {
		needs[a.Name] = max(needs[a.Name], a.Count)
	}
	pods := n.holders()
	for c, name := range n.cards {
		card := CardReport{Card: name, Verdict: "has room for each container that asks for a card", Pods: pods[c]}
		for i, resource := range n.schema.names {
			if n.rules.wide(resource) {
				continue
			}
			at := n.at(c, i)
			r := ResourceReport{resource, n.capacity[at], n.used(c, i), n.free[at], needs[resource]}
			if r.Need > r.Free {
				card.Verdict = "too little " + resource
			}
			card.Resources = append(card.Resources, r)
		}
		for missing := range needs {
			if _, ok := slices.BinarySearch(n.schema.names, missing); !ok {
				card.Verdict = "has no " + missing
			}
		}
		switch {
		case n.off[c]:
			card.Verdict = "taken out of use by a label or its agent"
		case !s.mayUse(name):
			card.Verdict = "not among the cards that the pod may use"
		}
		out.Cards = append(out.Cards, card)
	}
	for i, resource := range n.schema.names {
		if n.rules.wide(resource) {
			out.Wide = append(out.Wide, ResourceReport{
				resource, n.wideCapacity[i], n.wideUsed[i],
				n.wideCapacity[i] - n.wideUsed[i], needs[resource],
			})
		}
	}
	for _, r := range n.sorted() {
		if !r.Chosen().Placed() && r.Shape.Wants() {
			out.Unplaced = append(out.Unplaced, r.Namespace()+"/"+r.Name)
		}
	}
	return out
}

// holders returns the pods on each card.
func (n *Node) holders() [][]HolderReport {
	out := make([][]HolderReport, len(n.cards))
	for _, r := range n.sorted() {
		presumed := n.presumed[r.UID]
		if presumed != nil {
			r = presumed
		}
		load, _ := n.load(r)
		for c := range n.cards {
			uses := map[string]int64{}
			for i, name := range n.schema.names {
				if amount := load[n.at(c, i)]; amount > 0 {
					uses[name] = amount
				}
			}
			if len(uses) > 0 {
				out[c] = append(out[c], HolderReport{r.Namespace() + "/" + r.Name, uses, presumed != nil})
			}
		}
	}
	return out
}

func (n *Node) sorted() []*Record {
	return sortRecords(slices.Clone(n.records))
}

// sortRecords sorts pods by namespace, name and UID.
func sortRecords(all []*Record) []*Record {
	slices.SortFunc(all, func(a, b *Record) int {
		return cmp.Or(cmp.Compare(a.Namespace(), b.Namespace()), cmp.Compare(a.Name, b.Name),
			bytes.Compare(a.UID[:], b.UID[:]))
	})
	return all
}

// Use is how much of one resource of one card is used, for metrics.
type Use struct {
	Card, Resource string
	Used, Capacity int64
}

// Uses appends every resource of every card of the node.
func (n *Node) Uses(out []Use) []Use {
	for c, card := range n.cards {
		for i, name := range n.schema.names {
			if capacity, used := n.capacity[n.at(c, i)], n.used(c, i); capacity > 0 || used > 0 {
				out = append(out, Use{card, name, used, capacity})
			}
		}
	}
	return out
}

// Fullness returns how full the node is, from 0 to 1: the mean over its cards of their scarcest resource.
func (n *Node) Fullness() float64 { return float64(n.full) }

func (n *Node) fullness() float64 {
	sum := 0.0
	for c := range n.cards {
		most := 0.0
		for i, capacity := range n.row(n.capacity, c) {
			if capacity > 0 {
				most = max(most, min(1, float64(n.used(c, i))/float64(capacity)))
			}
		}
		sum += most
	}
	if len(n.cards) == 0 {
		return 0
	}
	return sum / float64(len(n.cards))
}
