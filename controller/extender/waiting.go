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
	// Asked is when the scheduler last asked about it.
	Asked time.Time
}

// seen is a request to filter, when it last came, and whether no node fitted then.
type seen struct {
	fit.Request
	at      time.Time
	refused bool
}

// recent is the longest time since the scheduler asked about a pod that still waits. The scheduler retries pods that
// did not fit after at most five minutes (podMaxInUnschedulablePodsDuration of kube-scheduler 1.37).
const recent = 6 * time.Minute

// Waiting returns up to limit pods that wait, those first that the scheduler asked about last, and their total
// number. It returns false while the cache is incomplete. It sends no request to the API server.
func (e *Extender) Waiting(limit int) (pods []Waiting, total int, ok bool) {
	t, err := e.leader()
	if err != nil {
		return nil, 0, false
	}
	for _, q := range e.unbound(t.cache) {
		if total++; total <= limit {
			pods = append(pods, Waiting{explanation(t.cache, e.rules, &q.Request, "", 0), q.at})
		}
	}
	return pods, total, true
}

// Explain compares a pod that waits ("namespace/name") with up to limit nodes; false for any other pod.
func (e *Extender) Explain(pod string, limit int) (Waiting, bool) {
	t, err := e.leader()
	if err != nil {
		return Waiting{}, false
	}
	for _, q := range e.unbound(t.cache) {
		if q.Namespace+"/"+q.Name == pod {
			return Waiting{explanation(t.cache, e.rules, &q.Request, "", limit), q.at}, true
		}
	}
	return Waiting{}, false
}

// unbound returns the pods that the scheduler asked about recently and that are not in the cache, the latest first.
func (e *Extender) unbound(b *Cache) []seen {
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

// has reports whether a pod is in the cache: bound or being bound.
func (b *Cache) has(uid fit.UID) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.pods[uid] != nil
}
