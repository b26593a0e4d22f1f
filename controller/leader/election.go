package leader

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/pace"
)

// Election is how the replicas agree on one leader. It is an election of client-go, with two additions: the leader
// writes only while it has a [Proof], and it begins only when no earlier leader can have one.
type Election struct {
	Lock resourcelock.Interface
	// Lease is how long after its last renewal a leader counts as gone, between 10 s and [MaxLease].
	Lease time.Duration
	// Term does the leader's work until ctx ends. Clients with [Transport] write with this ctx only while that is
	// proven.
	Term func(ctx context.Context)
	Log  *slog.Logger

	clock   func() time.Duration // nil means CLOCK_BOOTTIME
	elector atomic.Pointer[leaderelection.LeaderElector]
	seen    atomic.Bool // the lease has been read
}

// Leader returns the name of the leader; empty if it is not known.
func (e *Election) Leader() string {
	if by := e.elector.Load(); by != nil {
		return by.GetLeader()
	}
	return ""
}

// Leads reports whether this replica holds the lease.
func (e *Election) Leads() bool { return e.Leader() == e.Lock.Identity() }

// Seen reports whether the lease has been read.
func (e *Election) Seen() bool { return e.seen.Load() }

// Run stands for election again and again until ctx ends. A term ends before the lease is released.
func (e *Election) Run(ctx context.Context) error {
	if e.clock == nil {
		e.clock = bootTime
	}
	backoff, failures := pace.Backoff{First: time.Second, Max: time.Minute}, 0
	for ctx.Err() == nil {
		err := e.stand(ctx)
		if err == nil {
			failures = 0
			continue
		}
		failures++
		e.Log.Error("the work of the leader has failed", "error", err)
		_ = pace.Sleep(ctx, backoff.After(failures))
	}
	return nil
}

// candidacy is one attempt to become the leader, and the term that follows.
type candidacy struct {
	*Election
	lock *lease
	// left is closed when the term is over; err is why, if it has failed.
	left chan struct{}
	err  error
	// depose ends the term.
	depose context.CancelFunc
}

// stand stands for election once, until ctx ends or the term is over. The election outlives ctx until this replica has
// stepped down.
func (e *Election) stand(ctx context.Context) error {
	election, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	term, depose := context.WithCancel(ctx)
	defer depose()
	c := &candidacy{
		Election: e, left: make(chan struct{}), depose: depose,
		lock: &lease{
			Interface: e.Lock, Proof: &Proof{clock: e.clock}, lasts: e.Lease, valid: e.Lease / 2, lost: depose,
		},
	}
	elector, err := leaderelection.NewLeaderElector(c.config(func() {
		defer end()
		defer close(c.left)
		c.err = guard.Try(func() error { c.lead(term); return nil })
	}))
	if err != nil {
		return fmt.Errorf("cannot stand for election: %w", err)
	}
	e.elector.Store(elector)
	unelected := context.AfterFunc(ctx, func() {
		if !elector.IsLeader() {
			end()
		}
	})
	defer unelected()
	elector.Run(election)
	depose()
	if election.Err() == nil { // the lease was lost
		<-c.left
	}
	select {
	case <-c.left:
		c.giveBack(ctx)
		return c.err
	default: // it has not led
		return nil
	}
}

// config returns the settings of client-go. The lease must be renewed within half of its duration, which is also how
// long a renewal proves leadership: the other half is more than a write in progress takes.
func (c *candidacy) config(lead func()) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock: c.lock, LeaseDuration: c.Lease, RenewDeadline: c.lock.valid, RetryPeriod: c.Lease / 8,
		Name: c.lock.Describe(),
		// client-go would release the lease before it ends the term. If the API server does not answer, that takes
		// until after the lease has expired.
		ReleaseOnCancel: false,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(lost context.Context) {
				defer context.AfterFunc(lost, c.depose)()
				lead()
			},
			OnStoppedLeading: func() {},
			OnNewLeader:      func(string) { c.seen.Store(true) },
		},
	}
}

// lead does the leader's work, once nobody else can be doing it.
func (c *candidacy) lead(ctx context.Context) {
	me := c.Lock.Identity()
	owed := c.lock.owed()
	c.Log.Info("became the leader", "identity", me, "waits", max(owed, 0))
	if owed > 0 && pace.Sleep(ctx, owed) != nil {
		return
	}
	c.Term(c.lock.In(ctx))
	c.Log.Info("no longer the leader", "identity", me)
}

// giveBackLimit is how long a replica tries to release its lease. If it fails, the lease expires by itself.
const giveBackLimit = 2 * time.Second

// giveBack releases the lease if this replica still holds it, so that the next leader need not wait until it expires.
func (c *candidacy) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackLimit)
	defer cancel()
	held, _, err := c.lock.Get(ctx)
	if err == nil && held.HolderIdentity == c.lock.Identity() {
		now := metav1.Now()
		r := release(held.LeaderTransitions)
		r.AcquireTime, r.RenewTime = now, now
		err = c.lock.Update(ctx, r)
	}
	if err != nil {
		c.Log.Warn("cannot release the lease", "error", err)
	}
}
