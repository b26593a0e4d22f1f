package kube

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/acceld/acceld/pace"
)

// Await returns when the node that builds key has released its lease, or has not renewed it in time: then the
// artifact is there, or another node must stand for election. The error is ctx's, or says that the API server does
// not answer or refuses.
func (e *Election) Await(ctx context.Context, follow LeaseWatch, key string) error {
	name := leaseName(key)
	for {
		lease, err := e.ask(ctx, name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return problem("ask for lease", name, err)
		}
		if e.free(lease) {
			return nil
		}
		over, err := e.follow(ctx, follow, lease)
		if over || err != nil {
			return err
		}
	}
}

func (e *Election) ask(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return e.leases.Get(ctx, name, metav1.GetOptions{})
}

// free reports whether no other node holds the lease any more.
func (e *Election) free(lease *coordinationv1.Lease) bool {
	holder := value(lease.Spec.HolderIdentity)
	return holder == "" || holder == e.node || e.expired(lease)
}

// follow watches a lease until it is free; over is false if the watch ended first.
func (e *Election) follow(ctx context.Context, leases LeaseWatch, lease *coordinationv1.Lease) (over bool, err error) {
	w, err := leases.Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, lease.Name).String(),
		ResourceVersion: lease.ResourceVersion,
	})
	if err != nil {
		return false, problem("watch lease", lease.Name, err)
	}
	defer w.Stop()
	silent := time.NewTimer(leaseDuration)
	defer silent.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-silent.C:
			return true, nil
		case event, open := <-w.ResultChan():
			now, is := event.Object.(*coordinationv1.Lease)
			switch {
			case event.Type == watch.Deleted:
				return true, nil
			case !open, !is: // the API server ended the watch, or cannot resume from that version
				// Do not hammer a server that ends watches at once, and not together with the other nodes.
				return false, pace.Sleep(ctx, again(pace.Backoff{First: time.Second, Max: backoffMax}, 0))
			case e.free(now):
				return true, nil
			}
			silent.Reset(leaseDuration)
		}
	}
}
