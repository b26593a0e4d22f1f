package extender

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/controller/fit"
	"github.com/acceld/acceld/controller/leader"
	"github.com/acceld/acceld/guard"
)

// API is the set of single calls to the API server.
type API struct {
	// Pod returns a pod; its error may be of k8s.io/apimachinery/pkg/api/errors.
	Pod func(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// Bind creates the Binding. The API server copies its annotations to the pod in the same write.
	Bind func(ctx context.Context, b *corev1.Binding) error
	// Room sets [accel.RoomAnnotation] of a node.
	Room func(ctx context.Context, node string, since time.Time) error
}

// pod returns the pod "namespace/name"; nil if there is none.
func (a API) pod(ctx context.Context, key string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	namespace, name, _ := strings.Cut(key, "/")
	p, err := a.Pod(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return p, err
}

// apiDeadline is less than the five seconds after which the scheduler gives up a binding. It is also less than the
// time between the moment a leader gives up renewing its lease and the moment another replica may take it.
const apiDeadline = 4 * time.Second

// Packing says which of the nodes that fit are better.
type Packing string

const (
	// Pack prefers nodes that are in use, so that whole cards stay free.
	Pack Packing = "pack"
	// Spread prefers nodes that are free.
	Spread Packing = "spread"
)

// Extender answers the scheduler. Make it with [New].
type Extender struct {
	rules   *fit.Rules
	api     API
	packing Packing
	log     *slog.Logger
	metrics *Metrics

	term   atomic.Pointer[term]
	stamp  atomic.Int64 // the last gas-ts
	seenMu sync.Mutex
	seen   map[fit.UID]seen // by UID: pods that filter has seen and that are not bound yet

	idle atomic.Pointer[memory] // what the last answer used; nil while it is in use
}

// term is a term of leadership, with its cache.
type term struct {
	cache *Cache
	ctx   context.Context //nolint:containedctx // the end of the term ends what is begun in it
	// binding is held for reading by each binding in progress, and for writing to end the term, which sets over.
	binding sync.RWMutex
	over    bool
}

// New returns an extender that is not the leader: it answers 503.
func New(r *fit.Rules, api API, packing Packing, log *slog.Logger) *Extender {
	e := &Extender{rules: r, api: api, packing: packing, log: log, seen: map[fit.UID]seen{}}
	e.metrics = newMetrics(e)
	return e
}

// Lead fills the cache from the sources and answers the scheduler once the cache is complete, until ctx ends. It
// returns when no binding is in progress any more. A panic in a part of it is its error. It calls complete once the
// cache is.
func (e *Extender) Lead(ctx context.Context, from Sources, complete func()) (err error) {
	b := NewCache(e.rules)
	nodes, pods := b.reflectors(from)
	e.During(ctx, b, func(ctx context.Context) {
		err = guard.Together(ctx,
			func(ctx context.Context) error {
				select {
				case <-ctx.Done():
				case <-b.complete:
					complete()
				}
				return nil
			},
			func(ctx context.Context) error {
				b.check(ctx, e.api, func(err error) { e.log.Warn("cannot tell what became of a pod", "error", err) })
				return nil
			},
			func(ctx context.Context) error { e.retry(ctx, b); return nil },
			func(ctx context.Context) error { nodes.RunWithContext(ctx); return nil },
			func(ctx context.Context) error { pods.RunWithContext(ctx); return nil },
		)
	})
	return err
}

// During answers from the cache that run maintains, until run returns or ctx ends.
func (e *Extender) During(ctx context.Context, b *Cache, run func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &term{cache: b, ctx: ctx}
	e.term.Store(t)
	run(ctx)
	e.term.Store(nil)
	cancel()
	t.binding.Lock()
	t.over = true
	t.binding.Unlock()
}

// Ready reports whether the cache of this term is complete.
func (e *Extender) Ready() bool {
	_, err := e.leader()
	return err == nil
}

// leader returns the current term, or an error if this replica does not lead or its cache is incomplete.
func (e *Extender) leader() (*term, error) {
	if t := e.term.Load(); t != nil && t.ctx.Err() == nil && t.cache.Complete() {
		return t, nil
	}
	return nil, wrong{
		http.StatusServiceUnavailable, "the cache of cards is not complete yet, or another replica is the leader",
	}
}

// Handler serves the verbs of the scheduler, and explain.
func (e *Extender) Handler() http.Handler {
	mux := http.NewServeMux()
	for verb, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"filter": e.filter, "prioritize": e.prioritize, "preempt": e.preempt, "bind": e.bind,
	} {
		mux.HandleFunc("/scheduler/"+verb, func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()
			err := serve(w, r)
			if err != nil {
				fail(w, err)
			}
			e.metrics.seconds.WithLabelValues(verb, result(err)).Observe(time.Since(start).Seconds())
		})
	}
	mux.HandleFunc("GET /v1/explain", e.explain)
	return mux
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

func (e *Extender) filter(w http.ResponseWriter, r *http.Request) error {
	m := e.spare()
	defer e.spared(m)
	asked := time.Now()
	q, all, b, err := e.read(w, r, m)
	if err != nil {
		return err
	}
	search := fit.NewSearch(e.rules, &q)
	m.causes = slices.Grow(m.causes[:0], len(all.at))[:len(all.at)]
	size, refused := 256, true
	b.each(m.entries, func(i int, n *fit.Node) {
		cause := fit.UnknownNode
		if n != nil {
			cause = search.Try(n)
		}
		m.causes[i] = cause
		if size += len(all.raw(i)) + 3; cause != fit.Fits {
			size += len(cause.String()) + 3
		} else {
			refused = false
		}
	})
	e.remember(seen{q, asked, refused})
	m.answer = filterResult(slices.Grow(m.answer[:0], size), all, m.causes)
	answer(w, http.StatusOK, m.answer)
	return nil
}

// read reads the arguments of filter and prioritize, and finds the nodes in a cache.
func (e *Extender) read(w http.ResponseWriter, r *http.Request, m *memory) (fit.Request, *names, *Cache, error) {
	var a args
	data, err := body(w, r, m.body)
	if err == nil {
		m.body = data
		err = understood(readArgs(data, m.at, &a))
	}
	if err != nil {
		return fit.Request{}, nil, nil, err
	}
	t, err := e.leader()
	switch {
	case err != nil:
		return fit.Request{}, nil, nil, err
	case a.Pod == nil:
		return fit.Request{}, nil, nil, wrong{http.StatusBadRequest, "there is no Pod in the arguments"}
	case a.NodeNames == nil:
		return fit.Request{}, nil, nil, errors.New("there are no NodeNames in the arguments: set nodeCacheCapable to true")
	}
	m.at = a.NodeNames.at
	m.entries = t.cache.findAll(a.NodeNames, m.entries)
	return a.Pod.request(e.rules), a.NodeNames, t.cache, nil
}

// memory holds the buffers of one answer, some hundred bytes for each node. The next answer reuses them.
type memory struct {
	body, answer []byte
	at           []span
	entries      []*entry
	causes       []fit.Cause
	scores       []int
}

func (e *Extender) spare() *memory {
	if m := e.idle.Swap(nil); m != nil {
		return m
	}
	return &memory{}
}

// maxIdle is the size in bytes of the largest buffers that are kept: enough for 100,000 nodes.
const maxIdle = 16 << 20

// spared returns the buffers for reuse: one set, because the scheduler waits for each answer. It drops references to
// the cache of a term.
func (e *Extender) spared(m *memory) {
	clear(m.entries)
	if cap(m.body)+cap(m.answer) <= maxIdle {
		e.idle.Store(m)
	}
}

// maxScore is the highest score of a node (MaxExtenderPriority of k8s.io/kube-scheduler/extender/v1). A preferred
// card adds preference to it.
const (
	maxScore   = 10
	preference = 3
)

func (e *Extender) prioritize(w http.ResponseWriter, r *http.Request) error {
	m := e.spare()
	defer e.spared(m)
	q, all, b, err := e.read(w, r, m)
	if err != nil {
		return err
	}
	search := fit.NewSearch(e.rules, &q)
	m.scores = slices.Grow(m.scores[:0], len(all.at))[:len(all.at)]
	b.each(m.entries, func(i int, n *fit.Node) {
		if m.scores[i] = 0; n == nil {
			return
		}
		full := n.Fullness()
		if e.packing == Spread {
			full = 1 - full
		}
		m.scores[i] = int(full*(maxScore-preference) + 0.5)
		if search.PrefersFirst(n) {
			m.scores[i] += preference
		}
	})
	m.answer = priorities(m.answer[:0], all, m.scores)
	answer(w, http.StatusOK, m.answer)
	return nil
}

// maxSeen is how many pods are remembered between filter and bind, to say which ones wait.
const maxSeen = 10000

func (e *Extender) remember(q seen) {
	if q.UID == (fit.UID{}) {
		return
	}
	e.seenMu.Lock()
	defer e.seenMu.Unlock()
	if len(e.seen) >= maxSeen {
		clear(e.seen)
	}
	e.seen[q.UID] = q
}

func (e *Extender) bind(w http.ResponseWriter, r *http.Request) error {
	var a bindingArgs
	if err := decode(w, r, &a); err != nil {
		return err
	}
	t, err := e.leader()
	if err != nil {
		return err
	}
	t.binding.RLock()
	defer t.binding.RUnlock()
	if t.over {
		return wrong{http.StatusServiceUnavailable, "the term of this replica is over"}
	}
	ctx, cancel := context.WithTimeout(t.ctx, apiDeadline)
	defer cancel()
	if err := e.bindPod(ctx, t.cache, a); err != nil {
		return err
	}
	answer(w, http.StatusOK, []byte(`{"Error":""}`))
	return nil
}

// bindPod chooses the cards, reserves them, and writes choice and binding in one request. The request is valid only for
// the pod as it has just been read. So if this process is stopped before it sends the request, and continues when
// another replica leads, the API server refuses it: the scheduler has meanwhile given up the binding, and noted that in
// the pod.
func (e *Extender) bindPod(ctx context.Context, b *Cache, a bindingArgs) error {
	p, err := e.podOf(ctx, a)
	if err != nil {
		return err
	}
	q := e.requestFor(p)
	record, cause, err := reserve(ctx, b, &q, a.Node)
	if err != nil {
		return err
	}
	if record == nil {
		return fmt.Errorf("cannot bind pod %s/%s to node %q: %v", a.PodNamespace, a.PodName, a.Node, cause)
	}
	err = e.api.Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: a.PodNamespace, Name: a.PodName, UID: p.UID, ResourceVersion: p.ResourceVersion,
			Annotations: e.annotations(record.Chosen()),
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: a.Node},
	})
	bound := err == nil
	switch {
	case bound || definite(err):
		b.Confirm(q.UID, &bound)
	default: // it may be bound: the cards stay reserved until the API server confirms or denies it
		b.Confirm(q.UID, nil)
	}
	e.seenMu.Lock()
	delete(e.seen, q.UID)
	e.seenMu.Unlock()
	if err != nil {
		return fmt.Errorf("cannot bind pod %s/%s to node %q: %w", a.PodNamespace, a.PodName, a.Node, err)
	}
	return nil
}

// patience is how long a binding waits until the kubelet has taken the previous pod. After that, the scheduler tries
// again later.
const patience = 2 * time.Second

// reserve calls [Cache.Reserve] and waits while the kubelet has not taken earlier pods.
func reserve(ctx context.Context, b *Cache, q *fit.Request, node string) (*fit.Record, fit.Cause, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		record, cause, behind, err := b.Reserve(q, node)
		if behind == nil {
			return record, cause, err
		}
		select {
		case <-behind:
		case <-ctx.Done():
			return nil, cause, fmt.Errorf("cannot bind pod %s/%s to node %q: %w", q.Namespace, q.Name, node, ctx.Err())
		case <-late.C:
			return nil, cause,
				fmt.Errorf("cannot bind pod %s/%s to node %q: its kubelet has not taken a pod with other cards yet",
					q.Namespace, q.Name, node)
		}
	}
}

// definite reports whether an error proves that nothing was written.
func definite(err error) bool {
	return errors.Is(err, leader.ErrUnproven) ||
		apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) ||
		apierrors.IsInvalid(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsUnauthorized(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsAlreadyExists(err)
}

// podOf returns the pod of a binding as the API server has it.
func (e *Extender) podOf(ctx context.Context, a bindingArgs) (*corev1.Pod, error) {
	p, err := e.api.pod(ctx, a.PodNamespace+"/"+a.PodName)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot look at pod %s/%s: %w", a.PodNamespace, a.PodName, err)
	case p == nil || a.PodUID != "" && string(p.UID) != a.PodUID:
		return nil, fmt.Errorf("cannot bind pod %s/%s: it is gone", a.PodNamespace, a.PodName)
	case p.Spec.NodeName != "":
		return nil, fmt.Errorf("cannot bind pod %s/%s: it is bound to node %q", a.PodNamespace, a.PodName,
			p.Spec.NodeName)
	}
	return p, nil
}

func (e *Extender) requestFor(p *corev1.Pod) fit.Request {
	return fit.NewRequest(e.rules, fit.NewUID(string(p.UID)), p.Namespace, p.Name, p.Annotations,
		asks(e.rules, p.Spec.InitContainers, p.Spec.Containers))
}

// annotations returns the annotations of a binding: the time, the cards, the tiles. The time is in Unix nanoseconds
// and unique, so that readers know the order of bindings.
func (e *Extender) annotations(c fit.Choice) map[string]string {
	now := time.Now().UnixNano()
	for {
		last := e.stamp.Load()
		now = max(now, last+1)
		if e.stamp.CompareAndSwap(last, now) {
			break
		}
	}
	a := &e.rules.Annotations
	out := map[string]string{}
	for _, x := range [][2]string{
		{a.Cards, c.Cards},
		{a.Tiles, c.Tiles},
		{a.InitCards, c.InitCards},
		{a.InitTiles, c.InitTiles},
	} {
		if x[1] != "" {
			out[x[0]] = x[1]
			out[a.Time] = strconv.FormatInt(now, 10)
		}
	}
	return out
}
