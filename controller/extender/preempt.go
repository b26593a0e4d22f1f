package extender

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/acceld/acceld/controller/fit"
)

// preemptionArgs is the part of ExtenderPreemptionArgs that is read.
type preemptionArgs struct {
	Pod                   *pod
	NodeNameToMetaVictims map[string]*victims
}

// preemptionResult is ExtenderPreemptionResult.
type preemptionResult struct {
	NodeNameToMetaVictims map[string]*victims
}

// victims is MetaVictims: the pods that the scheduler would evict from a node.
type victims struct {
	Pods             []metaPod
	NumPDBViolations int64
}

type metaPod struct{ UID string }

// preempt keeps only the candidate nodes on which the evictions would make room for the pod. The scheduler counts by
// node, not by card; without this check it would evict pods for nothing.
func (e *Extender) preempt(w http.ResponseWriter, r *http.Request) error {
	var a preemptionArgs
	if err := decode(w, r, &a); err != nil {
		return err
	}
	t, err := e.leader()
	switch {
	case err != nil:
		return err
	case a.Pod == nil:
		return wrong{http.StatusBadRequest, "there is no Pod in the arguments"}
	case a.NodeNameToMetaVictims == nil:
		return wrong{
			http.StatusBadRequest,
			"there are no NodeNameToMetaVictims in the arguments: set nodeCacheCapable to true",
		}
	}
	q := a.Pod.request(e.rules)
	kept := map[string]*victims{}
	for name, v := range a.NodeNameToMetaVictims {
		if v != nil && t.cache.fitsWithout(name, &q, v) {
			kept[name] = v
		}
	}
	b, err := json.Marshal(preemptionResult{kept})
	if err != nil {
		return fmt.Errorf("cannot write the answer: %w", err)
	}
	answer(w, http.StatusOK, b)
	return nil
}

// fitsWithout reports whether a pod fits on a node once the victims are gone.
func (b *Cache) fitsWithout(node string, q *fit.Request, gone *victims) bool {
	fits, ends := false, map[fit.UID]bool{}
	for _, p := range gone.Pods {
		ends[fit.NewUID(p.UID)] = true
	}
	b.look(node, func(n *fit.Node) {
		stay := slices.DeleteFunc(slices.Clone(n.Records()), func(r *fit.Record) bool { return ends[r.UID] })
		fits = fit.NewSearch(b.rules, q).Try(n.Like(n.Name(), stay)) == fit.Fits
	})
	return fits
}
