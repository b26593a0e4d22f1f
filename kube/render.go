package kube

import (
	"maps"

	"github.com/acceld/acceld/accel"
	corev1 "k8s.io/api/core/v1"
)

// rendered is what the node should show of a machine. Two machines that render equal cause no write.
type rendered struct {
	labels map[string]string
	// words are the annotations by which the node speaks to the controller; a kind that is not in it may keep its own.
	words map[string]string
	kinds map[string]bool // all that there are
	// origin is the annotation that tells how the agent is run; empty when nobody asks.
	origin    string
	condition corev1.NodeCondition
	// ready is true when every kind is ready or absent: the startup taint goes.
	ready bool
	// settled is true when no kind is on its way: nothing better is to be expected shortly.
	settled bool
}

func render(m accel.Machine) *rendered {
	r := &rendered{
		labels: Labels(m), words: map[string]string{}, kinds: map[string]bool{}, condition: Condition(m),
		ready: true, settled: true,
	}
	r.words[accel.CardsAnnotation] = Cards(m)
	for kind, have := range m.Have {
		r.kinds[kind] = true
		if have.Word.Known {
			r.words[accel.WordAnnotation+kind] = have.Word.Value.String()
		}
	}
	for kind, st := range m.Status {
		still := complete(m, kind) || st.State == accel.Absent
		r.ready = r.ready && still && st.Blocked == nil
		r.settled = r.settled && (still || st.Blocked != nil)
	}
	return r
}

func (r *rendered) equal(o *rendered) bool {
	return o != nil && r.condition == o.condition && r.ready == o.ready && r.settled == o.settled &&
		maps.Equal(r.labels, o.labels) && maps.Equal(r.words, o.words) && maps.Equal(r.kinds, o.kinds)
}

// observed reports whether anybody has read the host for m. Before that its kinds look absent, and taking that for
// true would remove labels and taint at each start of the agent.
func observed(m accel.Machine) bool { return m.Facts.Kernel.Release != "" }
