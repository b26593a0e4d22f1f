package kube

import (
	"context"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/acceld/acceld/guard"
)

// Leases is the part of the leases API that is needed; the typed clients of client-go satisfy it.
type Leases interface {
	Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(context.Context, *coordinationv1.Lease, metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(context.Context, *coordinationv1.Lease, metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// LeaseWatch watches leases.
type LeaseWatch interface {
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Namespace is where acceld runs and keeps its leases unless configured otherwise.
const Namespace = "acceld-system"

const (
	// leaseDuration is how long after its last renewal a builder counts as gone. renewEvery allows it two failures.
	leaseDuration = 30 * time.Second
	renewEvery    = 10 * time.Second
	// The name of a lease is leasePrefix and the first keyDigits digits of the key.
	leasePrefix = "acceld-build-"
	keyDigits   = 16
)

// Election elects the node of a cluster that builds a driver for all nodes. It is safe for concurrent use.
type Election struct {
	leases Leases
	node   string
	log    *slog.Logger

	mu   sync.Mutex
	seen map[string]observation
}

// observation is when a version of a lease was first seen, by this process's clock. The clocks of two nodes may differ
// by more than a lease lasts, so the times in a lease are never compared with this clock.
type observation struct {
	version string
	at      time.Time
}

// NewElection returns an election in which this node takes part under its name.
func NewElection(leases Leases, node string, log *slog.Logger) *Election {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Election{leases: leases, node: node, log: log, seen: map[string]observation{}}
}

// Elect makes this node the builder of key, or returns the node that already is. An elected node renews its lease
// until it calls release, which frees the lease at once. An error means that the API server does not answer or
// refuses.
func (e *Election) Elect(ctx context.Context, key string) (release func(), elected bool, holder string, err error) {
	name := leaseName(key)
	asked, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	lease, holder, err := e.take(asked, name)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) { // another node was faster: which one?
		lease, holder, err = e.take(asked, name)
	}
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return nil, false, "unknown", nil
	case err != nil:
		return nil, false, "", problem("ask for lease", name, err)
	case holder != e.node:
		return nil, false, holder, nil
	}
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	guard.Go(func() {
		defer close(done)
		e.renew(renewing, lease)
	})
	return sync.OnceFunc(func() {
		stop()
		<-done
	}), true, e.node, nil
}

// take creates or takes over the lease, and returns its holder: this node, or the other node that holds it.
func (e *Election) take(ctx context.Context, name string) (*coordinationv1.Lease, string, error) {
	lease, err := e.leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		fresh := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{"app.kubernetes.io/name": "acceld"},
		}}
		e.stamp(fresh)
		lease, err = e.leases.Create(ctx, fresh, metav1.CreateOptions{FieldManager: FieldManager})
		return lease, e.node, err
	}
	if err != nil {
		return nil, "", err
	}
	// A lease of this node itself is from before a restart: no two agents run on one node.
	if !e.free(lease) {
		return lease, value(lease.Spec.HolderIdentity), nil
	}
	e.stamp(lease)
	lease, err = e.leases.Update(ctx, lease, metav1.UpdateOptions{FieldManager: FieldManager})
	return lease, e.node, err
}

// expired reports whether this process has seen the lease unchanged for as long as the lease lasts.
func (e *Election) expired(lease *coordinationv1.Lease) bool {
	lasts := leaseDuration
	// Whoever wrote the lease cannot make it last longer, and nothing ends at once.
	if s := value(lease.Spec.LeaseDurationSeconds); s > 0 {
		lasts = min(lasts, time.Duration(s)*time.Second)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s, known := e.seen[lease.Name]
	if !known || s.version != lease.ResourceVersion {
		e.seen[lease.Name] = observation{lease.ResourceVersion, time.Now()}
		return false
	}
	return time.Since(s.at) >= lasts
}

func leaseName(key string) string { return leasePrefix + key[:min(keyDigits, len(key))] }

// stamp makes this node the holder of the lease, from now on.
func (e *Election) stamp(lease *coordinationv1.Lease) {
	now, seconds := metav1.NowMicro(), int32(leaseDuration/time.Second)
	if value(lease.Spec.HolderIdentity) != e.node {
		lease.Spec.AcquireTime = &now
		changes := value(lease.Spec.LeaseTransitions) + 1
		lease.Spec.LeaseTransitions = &changes
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &e.node, &seconds, &now
}

// renew renews the lease until ctx ends, then releases it. A builder that loses the lease continues to build: it
// makes the same artifact as the new holder.
func (e *Election) renew(ctx context.Context, lease *coordinationv1.Lease) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			e.giveBack(lease)
			return
		case <-tick.C:
		}
		e.stamp(lease)
		next, err := e.update(ctx, lease)
		switch {
		case err == nil:
			lease = next
		case apierrors.IsConflict(err):
			if next, err = e.leases.Get(ctx, lease.Name, metav1.GetOptions{}); err == nil &&
				value(next.Spec.HolderIdentity) != e.node {
				e.log.Warn("another node took the lease of a build", "lease", lease.Name)
				return
			}
			if err == nil { // the answer to an earlier renewal was lost
				lease = next
			}
		case ctx.Err() == nil:
			e.log.Warn("cannot renew the lease of a build", "lease", lease.Name, "error", err)
		}
	}
}

func (e *Election) update(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return e.leases.Update(ctx, lease.DeepCopy(), metav1.UpdateOptions{FieldManager: FieldManager})
}

// giveBack lets the next node have the lease at once. If that fails, the lease expires by itself.
func (e *Election) giveBack(lease *coordinationv1.Lease) {
	nobody, now := "", metav1.NowMicro()
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &nobody, &now
	if _, err := e.update(context.Background(), lease); err != nil && !apierrors.IsConflict(err) {
		e.log.Warn("cannot give back the lease of a build", "lease", lease.Name, "error", err)
	}
}

func value[T any](p *T) T {
	if p == nil {
		var none T
		return none
	}
	return *p
}
