package kube

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/pace"
	"golang.org/x/time/rate"
)

// Config of a [Kube].
type Config struct {
	Client Client
	// Node is the name of the own node.
	Node string
	// Log gets one line when the API server stops and starts to take what is written.
	Log *slog.Logger
	// OnChange is called after [Kube.State] changed; it must not block. May be nil.
	OnChange func()
	// Now is the clock of what is written; nil is time.Now.
	Now func() time.Time
	// Origin is written to [OriginAnnotation]; nothing is when it is empty.
	Origin string
	// TaintOnRegression puts the startup taint back when a kind that was ready is not any more. Without it a regression
	// shows in labels, condition and events only, and the kubelet refuses what it cannot serve.
	TaintOnRegression bool
}

// Sync is what the API server holds of this node.
type Sync struct {
	// Labelled is true when the node has the feature labels of the newest machine. While the API server does not answer
	// it stays as it was.
	Labelled bool
	// Problem says why something is not written; nil when everything is.
	Problem *accel.Problem
	// ClusterVersion is the version of the API server, such as "v1.37.1"; empty until it was asked.
	ClusterVersion string
	// NodeFound is true when the own node exists.
	NodeFound bool
	// NodeLabels and NodeAnnotations are those of one node object, the newest that was read.
	NodeLabels, NodeAnnotations map[string]string
}

// Kube is the task that keeps the own node as the newest machine says.
type Kube struct {
	c     Config
	wake  chan struct{}
	ready chan struct{}
	once  sync.Once

	mu     sync.Mutex
	latest accel.Machine
	want   *rendered // nil before the first machine
	news   []stamped // told by nobody yet
	began  time.Time // of the first machine
	// proven is true once every kind was ready; read for TaintOnRegression.
	proven bool
	state  Sync

	// Owned by Run.
	outbox *outbox
	writes *rate.Limiter
	silent map[string]bool // what was logged once and is not to be logged again
}

// stamped is news with its time.
type stamped struct {
	news
	at time.Time
}

const (
	// writeBurst and writeEvery bound the war with somebody who keeps changing what acceld writes.
	writeBurst = 20
	writeEvery = 5 * time.Second
)

// New returns a task that has not spoken with the API server yet.
func New(c Config) *Kube {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.OnChange == nil {
		c.OnChange = func() {}
	}
	return &Kube{
		c: c, wake: make(chan struct{}, 1), ready: make(chan struct{}), outbox: newOutbox(),
		writes: rate.NewLimiter(rate.Every(writeEvery), writeBurst), silent: map[string]bool{},
	}
}

// String names the task.
func (k *Kube) String() string { return "node " + k.c.Node }

// Ready is closed after the first exchange with the API server, failed or not: an API server that is away must not
// keep a host from starting.
func (k *Kube) Ready() <-chan struct{} { return k.ready }

// State returns what the API server holds.
func (k *Kube) State() Sync {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Publish hands over the newest machine. It never blocks; of machines that come faster than they can be written only
// the newest is, but every change of state becomes an event. A machine that nobody has observed yet is ignored.
func (k *Kube) Publish(m accel.Machine) {
	if !observed(m) {
		return
	}
	r := render(m)
	r.origin = k.c.Origin
	k.mu.Lock()
	if k.want == nil {
		k.began = time.Now()
	}
	told := len(k.news)
	for _, n := range transitions(k.latest, m) {
		k.news = append(k.news, stamped{n, k.c.Now()})
	}
	k.news = k.news[max(0, len(k.news)-maxPending):]
	changed := !r.equal(k.want) || len(k.news) != told
	k.latest, k.want, k.proven = m, r, k.proven || r.ready
	k.mu.Unlock()
	if changed {
		k.poke()
	}
}

// poke wakes the task.
func (k *Kube) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// desired returns the newest rendering and when the first one came; nil before that.
func (k *Kube) desired() (r *rendered, began time.Time, retaint bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.want, k.began, k.c.TaintOnRegression && k.proven
}

// collect moves the news to the outbox.
func (k *Kube) collect() {
	k.mu.Lock()
	fresh := k.news
	k.news = nil
	k.mu.Unlock()
	for _, n := range fresh {
		k.outbox.add(n.news, n.at)
	}
}

// report makes change of the state known.
func (k *Kube) report(change func(*Sync)) {
	k.mu.Lock()
	before := k.state
	change(&k.state)
	after := k.state
	k.mu.Unlock()
	if reflect.DeepEqual(before, after) {
		return
	}
	switch {
	case after.Problem != nil && (before.Problem == nil || before.Problem.Reason != after.Problem.Reason):
		k.c.Log.Warn("the API server does not take the node's state", "node", k.c.Node, "reason", after.Problem.Reason,
			"problem", after.Problem.Message)
	case after.Problem == nil && before.Problem != nil:
		k.c.Log.Info("the API server has the node's state again", "node", k.c.Node)
	}
	k.c.OnChange()
}

// first reports whether what goes on and on was not logged yet.
func (k *Kube) first(what string) bool {
	before := k.silent[what]
	k.silent[what] = true
	return !before
}

// Run keeps the node as the newest machine says until ctx ends. It returns nil then: what fails is tried again.
func (k *Kube) Run(ctx context.Context) error {
	failures := 0
	for ctx.Err() == nil {
		select {
		case <-k.wake: // what was published before now is part of this session, and no reason to hurry the next
		default:
		}
		failures = k.hold(ctx, failures)
		k.pause(ctx, backoff(failures))
	}
	return nil
}

// hold is one session, until it ends. It takes and returns the number of failures in a row.
func (k *Kube) hold(ctx context.Context, failures int) int {
	s := &session{k: k}
	began := time.Now()
	err := s.run(ctx)
	if ctx.Err() != nil {
		return failures
	}
	failures++
	if s.connected && time.Since(began) > backoffMax {
		failures = 1 // it was well for long
	}
	if err != nil && !s.connected { // that a watch ends is the API server's right
		k.report(func(y *Sync) { y.Problem = err })
	}
	k.once.Do(func() { close(k.ready) })
	return failures
}

// pause waits d, which [backoff] gave, and less when there is something new to write.
func (k *Kube) pause(ctx context.Context, d time.Duration) {
	if pace.Sleep(ctx, backoffMin) != nil {
		return
	}
	rest := time.NewTimer(d - backoffMin)
	defer rest.Stop()
	select {
	case <-ctx.Done():
	case <-rest.C:
	case <-k.wake: // a session begins with everything that was published
	}
}

const (
	backoffMin = time.Second
	backoffMax = 80 * time.Second
)

// backoff is the pause after n failures in a row.
func backoff(n int) time.Duration { return pace.Backoff{First: backoffMin, Max: backoffMax}.After(n) }
