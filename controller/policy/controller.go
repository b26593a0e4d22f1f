package policy

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/kube"
	"github.com/acceld/acceld/pace"
)

// Options of a [Controller].
type Options struct {
	API kube.API
	// Namespace is the namespace of the agents' DaemonSet.
	Namespace string
	Log       *slog.Logger
	// Registry receives the metrics; it may be nil.
	Registry prometheus.Registerer
	// Passed is called after each pass: nodes or policies may have changed. It must not block; it may be nil.
	Passed func()
}

// Controller is the task that carries out the policies of a cluster. Several may run at a time; the only cost is work
// done twice.
type Controller struct {
	o        Options
	nodes    *kube.Reflector[Node, *Node]
	policies *kube.Reflector[Policy, *Policy]
	agents   *kube.Reflector[agent, *agent]
	others   *kube.Reflector[daemonSet, *daemonSet]
	classes  *kube.Reflector[class, *class]
	maps     *kube.Reflector[configMap, *configMap]
	trials   *kube.Reflector[pod, *pod]
	api      client
	metrics  *metrics
	wake     chan struct{}
	ready    chan struct{}
	started  func() // closes ready once

	// Owned by Run.
	rivals      []rival
	lastWritten map[string]time.Time // when a status without a change of slots was last written, by policy
	missing     map[string]time.Time // since when a node has had no agent, by node
	news        map[string]Condition // the last condition that was compared for events, by policy and type
	drains      *drains
	classed     bool                 // the priority class of validations exists
	bare        map[string]time.Time // since when a serving node offers none of a resource, by "node resource"
	parses      map[string]parsed    // results of parsing definitions, by text
	reported    kube.Reported        // why policies are not up to date
	denials     int                  // how many passes in a row had a denied write
	// again is true when a write of this pass failed, denied when one failed for another reason than a conflict.
	again, denied atomic.Bool
}

const (
	nodesPath   = "/api/v1/nodes"
	classesPath = "/apis/scheduling.k8s.io/v1/priorityclasses"
	// settle batches events: the nodes of a rollout report within the same seconds.
	settle = 100 * time.Millisecond
	// telling is the minimum time between two writes of a status that change no slot.
	telling = 2 * time.Second
	// deadline is the time limit of one request.
	deadline = 15 * time.Second
)

// New returns a controller. It does not contact the API server yet.
func New(o Options) (*Controller, error) {
	rivals, err := rivalTable()
	if err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	c := &Controller{
		o: o, api: client{o.API}, rivals: rivals, wake: make(chan struct{}, 1), ready: ready,
		started:     sync.OnceFunc(func() { close(ready) }),
		lastWritten: map[string]time.Time{}, missing: map[string]time.Time{}, bare: map[string]time.Time{},
		news: map[string]Condition{}, parses: map[string]parsed{}, metrics: newMetrics(o.Registry, ready),
	}
	namespace := "/api/v1/namespaces/" + o.Namespace
	c.nodes = reflector[Node](c, nodesPath, nil)
	c.policies = reflector[Policy](c, kube.PoliciesPath, nil)
	c.agents = reflector[agent](c, namespace+"/pods", url.Values{"labelSelector": {agentSelector}})
	c.others = reflector[daemonSet](c, "/apis/apps/v1/daemonsets", nil)
	c.classes = reflector[class](c, classesPath, url.Values{"labelSelector": {classLabel}})
	c.maps = reflector[configMap](c, namespace+"/configmaps", nil)
	c.trials = reflector[pod](c, trialsPath, url.Values{"labelSelector": {validationSelector}})
	c.policies.Optional, c.others.Optional, c.maps.Optional, c.trials.Optional = true, true, true, true
	c.drains = newDrains(o.API, o.Log, c.poke)
	return c, nil
}

// reflector returns one that requests a pass after each change.
func reflector[T any, P kube.Object[T]](c *Controller, path string, query url.Values) *kube.Reflector[T, P] {
	return &kube.Reflector[T, P]{API: c.o.API, Path: path, Query: query, Changed: c.poke}
}

// Ready is closed when the objects of the cluster have been read and the first decision has been carried out.
func (c *Controller) Ready() <-chan struct{} { return c.ready }

// poke requests a pass.
func (c *Controller) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run carries out the policies until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	return guard.Together(ctx, c.nodes.Run, c.policies.Run, c.agents.Run, c.others.Run, c.classes.Run, c.maps.Run,
		c.trials.Run, c.passes)
}

// passes makes a pass whenever something has changed or is due, until ctx ends.
func (c *Controller) passes(ctx context.Context) error {
	defer c.drains.end()
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		case <-due:
		}
		if pace.Sleep(ctx, settle) != nil {
			return nil
		}
		select {
		case <-c.wake:
		default:
		}
		due = nil
		if wait := c.pass(ctx); wait > 0 {
			due = time.After(wait)
		}
		if c.o.Passed != nil {
			c.o.Passed()
		}
	}
}

// pass reads, decides and carries out the decision. It returns how long until the next pass is due without an event;
// 0 means never.
func (c *Controller) pass(ctx context.Context) time.Duration {
	nodes, synced := c.nodes.All()
	policies, known := c.policies.All()
	agents, counted := c.agents.All()
	others, looked := c.others.All()
	classes, read := c.classes.All()
	texts, found := c.maps.All()
	_, tried := c.trials.All()
	if !synced || !known || !counted || !looked || !read || !found || !tried {
		return 0 // the last cache to sync starts another pass
	}
	if c.reported.New(c.policies.Err()) {
		c.o.Log.Warn("policies are not up to date; what was read last holds", "error", c.policies.Err())
	}
	if len(policies) == 0 && apierrors.IsForbidden(c.policies.Err()) {
		c.started()
		return 0 // it is unknown whether there are policies, so what they did stays
	}
	c.again.Store(false)
	c.denied.Store(false)
	v := view{
		now: time.Now(), nodes: nodes, policies: ordered(policies), rivals: recognise(c.rivals, others),
		hindered: c.drains.hindered(), defined: map[string]defined{},
	}
	for name, p := range policies {
		v.defined[name] = c.define(p, texts)
	}
	v.unmade = c.makeClasses(ctx, v.policies, classes)
	due := &due{now: v.now}
	verdicts := judge(v)
	held := map[string]bool{} // nodes with a slot
	for _, d := range verdicts {
		c.carryOut(ctx, v, d, verdicts, held, due)
	}
	c.drains.keep(held)
	c.upkeep(ctx, verdicts, held)
	c.validate(ctx, v, verdicts, held, due)
	c.clearAway(ctx, nodes, agents, due)
	for _, d := range verdicts {
		c.mark(ctx, d.policy)
	}
	c.metrics.show(verdicts)
	c.started()
	c.retry(due)
	maps.DeleteFunc(c.lastWritten, func(name string, _ time.Time) bool { return policies[name] == nil })
	return due.wait()
}

// retry makes a pass due after a failed write: soon after a conflict, and less and less often while the API server
// refuses writes.
func (c *Controller) retry(due *due) {
	if !c.denied.Load() {
		c.denials = 0
		if c.again.Load() {
			due.in(settle)
		}
		return
	}
	c.denials++
	due.in(pace.Backoff{First: settle, Max: time.Minute}.After(c.denials))
}

// due is when the next pass must happen if no event comes first.
type due struct{ now, at time.Time }

func (d *due) in(wait time.Duration) { d.on(d.now.Add(wait)) }

func (d *due) on(at time.Time) {
	if !at.IsZero() && (d.at.IsZero() || at.Before(d.at)) {
		d.at = at
	}
}

func (d *due) wait() time.Duration {
	if d.at.IsZero() {
		return 0
	}
	return max(time.Until(d.at), time.Millisecond)
}

// failed records that a write was refused. A conflict is routine: the watch delivers the newer object.
func (c *Controller) failed(ctx context.Context, what, name string, err error) {
	c.again.Store(true)
	switch {
	case ctx.Err() != nil || errors.Is(err, context.Canceled):
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		c.metrics.conflicts.Inc()
		c.o.Log.Debug("something is newer than what was read", "what", what, "name", name, "error", err)
	default:
		c.denied.Store(true)
		c.metrics.failures.Inc()
		c.o.Log.Warn("the API server does not take a write", "what", what, "name", name, "error", err)
	}
}
