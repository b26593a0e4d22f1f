package fit

import (
	"maps"
	"slices"
	"strings"
)

// When says when a container of a pod runs.
type When int

const (
	// App containers run at the same time.
	App When = iota
	// Init containers run before the app containers, one after the other.
	Init
	// Sidecar is an init container that keeps running alongside all containers that start after it.
	Sidecar
)

// Asked is one container as the pod's author specified it.
type Asked struct {
	Name string
	When When
	// Amounts by full name, rounded up ([Ceil]). Those without the prefix of the rules are ignored.
	Amounts map[string]int64
}

// Amount is an amount of a resource, named without its prefix.
type Amount struct {
	Name  string
	Count int64
}

// Container is what one container of a pod needs.
type Container struct {
	Name string
	When When
	// Cards is how many different cards it gets.
	Cards int64
	// PerCard is what it needs of each card, Total what it needs of all together; both sorted by name, without zeros.
	PerCard, Total []Amount
	// Tiles is how many tiles it needs of each card.
	Tiles int64
}

// Shape is what a pod needs. Pods with the same needs have equal shapes. It is never changed.
type Shape struct {
	// Containers are the app containers, then the sidecars, then the init containers, each in the order of the pod.
	Containers []Container
	// Apps is how many of them are app containers. Beside is how many run at the same time: apps and sidecars.
	Apps, Beside int
	// Before has, for each init container in Containers, how many sidecars started before it.
	Before []int
	// Wide is what the pod needs of resources that belong to the node as a whole.
	Wide []Amount
}

// Request is a pod that needs a node.
type Request struct {
	UID             UID
	Namespace, Name string
	Shape           *Shape
	// Same are the app containers that must share a card, by index; empty or at least two.
	Same []int
	// SingleNUMA requires the cards of each container to be on one NUMA node, Linked requires them to be in linked
	// pairs.
	SingleNUMA, Linked bool
	// Allow and Deny are lists of cards; nil if there is none.
	Allow, Deny []string
	// Contradiction is the cause if no node can meet what the pod specifies.
	Contradiction Cause
}

// NewRequest reads what a pod asks for. App containers come in the order of the pod, and so do init containers.
func NewRequest(r *Rules, uid UID, namespace, name string, annotations map[string]string, asked []Asked) Request {
	q := Request{UID: uid, Namespace: namespace, Name: name, Shape: NewShape(r, asked)}
	_, q.Linked = annotations[r.Annotations.Linked]
	_, q.SingleNUMA = annotations[r.Annotations.SingleNUMA]
	if list, ok := annotations[r.Annotations.Allow]; ok && r.Allow {
		q.Allow = commaList(list)
	}
	if list, ok := annotations[r.Annotations.Deny]; ok && r.Deny {
		q.Deny = commaList(list)
	}
	if max(len(q.Allow), len(q.Deny)) > maxCards { // each card of each node is looked for in it
		q.Allow, q.Deny, q.Contradiction = nil, nil, ListTooLong
	}
	if list, ok := annotations[r.Annotations.Same]; ok {
		q.readSame(r, list)
	}
	if q.Linked {
		for _, c := range q.Shape.Containers[:q.Shape.Beside] {
			if c.Cards%2 != 0 {
				q.Contradiction = LinkedOdd
			}
		}
	}
	return q
}

// commaList splits a comma-separated list; it never returns nil.
func commaList(s string) []string {
	out := []string{}
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// readSame reads the names of the containers that must share a card: at least two, no duplicates, all present. Each
// must ask for one card, and for nothing that is counted by tile or for the node as a whole.
func (q *Request) readSame(r *Rules, list string) {
	names := commaList(list)
	if q.Linked {
		q.Contradiction = SameAndLinked
		return
	}
	for _, name := range names {
		i := slices.IndexFunc(q.Shape.Containers[:q.Shape.Apps], func(c Container) bool { return c.Name == name })
		if i < 0 || slices.Contains(q.Same, i) {
			q.Contradiction = SameUnclear
			return
		}
		c := q.Shape.Containers[i]
		if c.Cards != 1 || c.Tiles > 0 || slices.ContainsFunc(c.Total, func(a Amount) bool { return r.wide(a.Name) }) {
			q.Contradiction = SameUnclear
			return
		}
		q.Same = append(q.Same, i)
	}
	if len(names) < 2 {
		q.Contradiction = SameUnclear
	}
	slices.Sort(q.Same)
}

// Wants reports whether the pod asks for any card.
func (s *Shape) Wants() bool {
	return slices.ContainsFunc(s.Containers, func(c Container) bool { return c.Cards > 0 })
}

// NewShape computes what the containers of a pod need.
func NewShape(r *Rules, asked []Asked) *Shape {
	s := &Shape{}
	byWhen := func(when When) (n int) {
		for _, a := range asked {
			if a.When == when {
				s.Containers = append(s.Containers, newContainer(r, a))
				n++
			}
		}
		return n
	}
	s.Apps = byWhen(App)
	s.Beside = s.Apps + byWhen(Sidecar)
	byWhen(Init)
	sidecars := 0
	for _, a := range asked {
		switch a.When {
		case Sidecar:
			sidecars++
		case Init:
			s.Before = append(s.Before, sidecars)
		case App:
		}
	}
	s.Wide = s.wide(r)
	return s
}

func newContainer(r *Rules, a Asked) Container {
	c := Container{Name: a.Name, When: a.When}
	for _, full := range slices.Sorted(maps.Keys(a.Amounts)) {
		if short, ok := r.Resource(full); ok && a.Amounts[full] > 0 {
			c.Total = append(c.Total, Amount{short, a.Amounts[full]})
		}
	}
	for _, name := range r.Cards {
		if n := amountOf(c.Total, name); n > 0 {
			c.Cards = n
			break
		}
	}
	c.PerCard = c.over(r, c.Cards)
	if c.Cards > 0 && r.Tiles != "" {
		c.Tiles = amountOf(c.PerCard, r.Tiles)
	}
	return c
}

// over divides the total over a number of cards, rounded up.
func (c *Container) over(r *Rules, cards int64) []Amount {
	if cards == 0 {
		return nil
	}
	var out []Amount
	for _, a := range c.Total {
		if !r.wide(a.Name) {
			out = append(out, Amount{a.Name, divideUp(a.Count, cards)})
		}
	}
	return out
}

func amountOf(list []Amount, name string) int64 {
	for _, a := range list {
		if a.Name == name {
			return a.Count
		}
	}
	return 0
}

// wide returns what the pod needs of the node as a whole: the sum over the containers that run at the same time, or
// one init container with the sidecars before it if that is more.
func (s *Shape) wide(r *Rules) []Amount {
	most := map[string]int64{}
	phase := func(containers ...Container) {
		sum := map[string]int64{}
		for _, c := range containers {
			for _, a := range c.Total {
				if r.wide(a.Name) {
					sum[a.Name] = add(sum[a.Name], a.Count)
					most[a.Name] = max(most[a.Name], sum[a.Name])
				}
			}
		}
	}
	phase(s.Containers[:s.Beside]...)
	for i, c := range s.Containers[s.Beside:] {
		phase(append(slices.Clone(s.Containers[s.Apps:s.Apps+s.Before[i]]), c)...)
	}
	var out []Amount
	for _, name := range slices.Sorted(maps.Keys(most)) {
		out = append(out, Amount{name, most[name]})
	}
	return out
}
