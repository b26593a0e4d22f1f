package extender

import (
	"cmp"
	"slices"
	"time"

	"github.com/acceld/acceld/controller/fit"
)

// Waiting is a pod that the scheduler has asked about and that is not bound.
type Waiting struct {
	Explanation
	// Asked is when the scheduler asked about it last.
	Asked time.Time
}

// seen is what filter was asked, and when last.
type seen struct {
	fit.Request
	at time.Time
}

// recent is how long ago the scheduler may have asked about a pod that still waits: it takes pods that did not fit up
// again after five minutes at the latest (podMaxInUnschedulablePodsDuration of kube-scheduler 1.37).
const recent = 6 * time.Minute

// Waiting returns up to limit pods that wait, those first that the scheduler asked about last, and how many there are
// in all. It is false while there are no complete books. It asks nobody.
func (e *Extender) Waiting(limit int) (pods []Waiting, total int, ok bool) {
	t, err := e.leader()
	if err != nil {
		return nil, 0, false
	}
	for _, q := range e.unbound(t.books) {
		if total++; total <= limit {
			pods = append(pods, Waiting{explanation(t.books, e.rules, &q.Request, "", 0), q.at})
		}
	}
	return pods, total, true
}

// Explain says of a pod that waits ("namespace/name") how it stands with up to limit nodes; false for any other pod.
func (e *Extender) Explain(pod string, limit int) (Waiting, bool) {
	t, err := e.leader()
	if err != nil {
		return Waiting{}, false
	}
	for _, q := range e.unbound(t.books) {
		if q.Namespace+"/"+q.Name == pod {
			return Waiting{explanation(t.books, e.rules, &q.Request, "", limit), q.at}, true
		}
	}
	return Waiting{}, false
}

// unbound are the pods that were asked about lately and are in no book, the latest first.
func (e *Extender) unbound(b *Books) []seen {
	e.seenMu.Lock()
	var out []seen
	for _, q := range e.seen {
		if time.Since(q.at) < recent {
			out = append(out, q)
		}
	}
	e.seenMu.Unlock()
	out = slices.DeleteFunc(out, func(q seen) bool { return b.has(q.UID) })
	slices.SortFunc(out, func(a, b seen) int {
		return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// has reports whether a pod is in the books: bound, or being bound.
func (b *Books) has(uid string) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.pods[uid] != nil
}
