package extender

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/acceld/acceld/controller/fit"
)

// Explanation is the answer of /v1/explain: why a pod is where it is, or nowhere.
type Explanation struct {
	Pod string `json:"pod"`
	// Node is the node that it is bound to, and Cards its cards; both are empty while it waits.
	Node  string `json:"node,omitempty"`
	Cards string `json:"cards,omitempty"`
	// Containers is what each container needs of each card.
	Containers []ContainerNeed `json:"containers"`
	// Verdicts is the number of nodes by verdict.
	Verdicts map[string]int `json:"verdicts"`
	// Nodes are reports on the requested node, or on the first nodes: those that fit come first, then by name.
	Nodes []fit.Report `json:"nodes"`
}

// ContainerNeed is what a container asks for.
type ContainerNeed struct {
	Name    string           `json:"name"`
	Cards   int64            `json:"cards"`
	PerCard map[string]int64 `json:"perCard"`
}

// explainNodes is how many nodes are shown unless "limit" says otherwise.
const explainNodes = 20

// explain serves GET /v1/explain?pod=namespace/name, with node=name for one node and limit=n for more of them.
func (e *Extender) explain(w http.ResponseWriter, r *http.Request) {
	t, err := e.leader()
	if err != nil {
		fail(w, err)
		return
	}
	key := r.URL.Query().Get("pod")
	if namespace, name, ok := strings.Cut(key, "/"); !ok || namespace == "" || name == "" {
		fail(w, wrong{http.StatusBadRequest, "say which pod: ?pod=namespace/name"})
		return
	}
	limit := explainNodes
	if n, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && n > 0 {
		limit = n
	}
	p, err := e.api.pod(r.Context(), key)
	switch {
	case err != nil:
		fail(w, wrong{http.StatusBadGateway, "cannot look at pod " + key + ": " + err.Error()})
		return
	case p == nil:
		fail(w, wrong{http.StatusNotFound, "there is no pod " + key})
		return
	}
	q := e.requestFor(p)
	out := explanation(t.cache, e.rules, &q, r.URL.Query().Get("node"), limit)
	out.Node, out.Cards = p.Spec.NodeName, p.Annotations[e.rules.Annotations.Cards]
	body, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		fail(w, wrong{http.StatusInternalServerError, err.Error()})
		return
	}
	answer(w, http.StatusOK, append(body, '\n'))
}

// verdict is the result for one node.
type verdict struct {
	node  string
	cause fit.Cause
}

func explanation(b *Cache, rules *fit.Rules, q *fit.Request, only string, limit int) Explanation {
	out := Explanation{Pod: q.Namespace + "/" + q.Name, Verdicts: map[string]int{}}
	for _, c := range q.Shape.Containers {
		need := ContainerNeed{c.Name, c.Cards, map[string]int64{}}
		for _, a := range c.PerCard {
			need.PerCard[a.Name] = a.Count
		}
		out.Containers = append(out.Containers, need)
	}
	search := fit.NewSearch(rules, q)
	var order []verdict
	for _, name := range b.names() {
		b.look(name, func(n *fit.Node) {
			cause := search.Try(n)
			out.Verdicts[cause.String()]++
			if only == "" || only == name {
				order = append(order, verdict{name, cause})
			}
		})
	}
	slices.SortStableFunc(order, func(a, b verdict) int { return cmp.Compare(min(a.cause, 1), min(b.cause, 1)) })
	for _, v := range order[:min(limit, len(order))] {
		b.look(v.node, func(n *fit.Node) { out.Nodes = append(out.Nodes, search.Explain(n)) })
	}
	return out
}
