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
	// Node is the name of this agent's node.
	Node string
	// Log gets one line when the API server stops accepting writes and one when it accepts them again.
	Log *slog.Logger
	// OnChange is called after [Kube.State] has changed; it must not block. It may be nil.
	OnChange func()
	// Now is the clock for times that are written; nil means time.Now.
	Now func() time.Time
	// Quiet keeps acceld from saying on the node that it works on it; what an earlier agent said is removed.
	Quiet bool
	// Origin is written to [OriginAnnotation] unless it is empty.
	Origin string
	// Past returns in short what a device has been through; false if that is not known. It is called for each new
	// machine and must be quick; nil if nobody knows.
	Past func(kind string, a accel.Accelerator) (accel.Past, bool)
	// TaintOnRegression restores the startup taint when a kind that was ready no longer is. Without it, a regression
	// shows only in labels, condition and events, and the kubelet refuses pods that it cannot serve.
	TaintOnRegression bool
}

// Sync is what the API server has about this node.
type Sync struct {
	// Labelled is true if the node has the feature labels of the newest machine. While the API server does not
	// answer, it keeps its value.
	Labelled bool
	// Problem is why something is not written; nil if everything is.
	Problem *accel.Problem
	// ClusterVersion is the version of the API server, such as "v1.37.1"; empty until it is known.
	ClusterVersion string
	// NodeFound is true if this agent's node exists.
	NodeFound bool
	// NodeLabels and NodeAnnotations are from the same node object, the newest that was read.
	NodeLabels, NodeAnnotations map[string]string
	// Maintenance says who else works on the node, from the same object. Asked is true once the API server has
	// answered for the first time, or has failed to.
	Maintenance []accel.Maintenance
	Asked       bool
}

// Kube is the task that keeps the node in line with the newest machine.
type Kube struct {
	c     Config
	wake  chan struct{}
	ready chan struct{}
	once  sync.Once

	mu     sync.Mutex
	latest accel.Machine
	want   *rendered // nil before the first machine
	news   []stamped // not in the outbox yet
	began  time.Time // when the first machine came
	// proven is true once every kind has been ready; for TaintOnRegression.
	proven bool
	state  Sync

	// Owned by Run.
	outbox *outbox
	writes *rate.Limiter
	silent map[string]bool // what was logged and must not be logged again
}

// stamped is news with its time.
type stamped struct {
	news
	at time.Time
}

const (
	// writeBurst and writeEvery limit the writes if somebody else keeps changing what acceld writes.
	writeBurst = 20
	writeEvery = 5 * time.Second
)

// New returns a task that has not contacted the API server yet.
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

// Ready is closed after the first exchange with the API server, even if that failed: an unreachable API server must
// not keep a host from starting.
func (k *Kube) Ready() <-chan struct{} { return k.ready }

// State returns what the API server has.
func (k *Kube) State() Sync {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Publish hands over the newest machine. It never blocks. If machines come faster than they can be written, only the
// newest is written, but every change of state becomes an event. A machine without observations is ignored.
func (k *Kube) Publish(m accel.Machine) {
	if !observed(m) {
		return
	}
	r := render(m)
	r.origin = k.c.Origin
	if k.c.Past != nil {
		r.devices(m, k.c.Past)
	}
	k.mu.Lock()
	if k.want == nil {
		k.began = time.Now()
	}
	reported := len(k.news)
	for _, n := range transitions(k.latest, m) {
		k.news = append(k.news, stamped{n, k.c.Now()})
	}
	k.news = k.news[max(0, len(k.news)-maxPending):]
	changed := !r.equal(k.want) || len(k.news) != reported
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

// desired returns the newest rendering, nil before the first machine, when that came, and whether to restore the
// taint.
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

// report applies a change to the state, and logs and announces the difference.
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

// first reports whether a recurring condition has not been logged yet.
func (k *Kube) first(what string) bool {
	before := k.silent[what]
	k.silent[what] = true
	return !before
}

// Run keeps the node in line with the newest machine until ctx ends. It then returns nil; failures are retried.
func (k *Kube) Run(ctx context.Context) error {
	failures := 0
	for ctx.Err() == nil {
		select {
		case <-k.wake: // the next session writes what was published so far; do not hurry it
		default:
		}
		failures = k.hold(ctx, failures)
		k.pause(ctx, again(pace.Backoff{First: backoffMin, Max: backoffMax}, failures))
	}
	return nil
}

// hold runs one session. It takes and returns the number of failures in a row.
func (k *Kube) hold(ctx context.Context, failures int) int {
	s := &session{k: k}
	began := time.Now()
	err := s.run(ctx)
	if ctx.Err() != nil {
		return failures
	}
	failures++
	if s.connected && time.Since(began) > backoffMax {
		failures = 0 // the session worked for a long time
	}
	if err != nil && !s.connected { // the API server may end a watch at any time
		k.report(func(y *Sync) { y.Problem, y.Asked = err, true })
	}
	k.once.Do(func() { close(k.ready) })
	return failures
}

// pause waits for d, at least [backoffMin], or less if there is something new to write.
func (k *Kube) pause(ctx context.Context, d time.Duration) {
	if pace.Sleep(ctx, backoffMin) != nil {
		return
	}
	rest := time.NewTimer(d - backoffMin)
	defer rest.Stop()
	select {
	case <-ctx.Done():
	case <-rest.C:
	case <-k.wake: // the next session starts by writing everything that was published
	}
}

const (
	backoffMin = time.Second
	backoffMax = 80 * time.Second
)

// backoff returns the pause after n failures in a row.
func backoff(n int) time.Duration { return pace.Backoff{First: backoffMin, Max: backoffMax}.After(n) }
