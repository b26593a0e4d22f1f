package kube

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// follower is a lease watch whose events the test sends.
type follower struct {
	watches chan *watch.FakeWatcher
	asked   metav1.ListOptions
}

func (f *follower) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	f.asked = o
	return <-f.watches, nil
}

// TestAwait: a node that waits for another node's build notices when the lease is released, deleted or no longer
// renewed, even if watches end in between.
func TestAwait(t *testing.T) {
	type scene struct {
		t       *testing.T
		s       *leaseServer
		w       *watch.FakeWatcher
		f       *follower
		release func()
	}
	lease := func(c scene) *coordinationv1.Lease {
		l, err := c.s.Get(c.t.Context(), leaseName(buildKey), metav1.GetOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		return l
	}
	for _, x := range []struct {
		name    string
		happens func(scene)
		after   time.Duration // expected duration of the wait
	}{
		{"given back", func(c scene) { c.release(); c.w.Modify(lease(c)) }, 0},
		{"deleted", func(c scene) { c.w.Delete(lease(c)) }, 0},
		{"the builder died", func(scene) {}, leaseDuration},
		{"renewed, then the builder died", func(c scene) {
			time.Sleep(20 * time.Second)
			c.w.Modify(lease(c))
		}, 20*time.Second + leaseDuration},
		{"the watch ends, given back meanwhile", func(c scene) { c.release(); c.w.Stop() }, time.Second},
		{"the watch fails, then deleted", func(c scene) {
			next := watch.NewFake()
			c.w.Error(&metav1.Status{Code: 410})
			c.f.watches <- next
			next.Delete(lease(c))
		}, time.Second},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLeaseServer()
				release, elected, _, err := NewElection(s, "builder", nil).Elect(t.Context(), buildKey)
				if !elected || err != nil {
					t.Fatal(elected, err)
				}
				c := scene{
					t: t, s: s, w: watch.NewFake(), f: &follower{watches: make(chan *watch.FakeWatcher)},
					release: release,
				}
				done, begin := make(chan error), time.Now()
				go func() { done <- NewElection(s, "waits", nil).Await(t.Context(), c.f, buildKey) }()
				c.f.watches <- c.w
				if want := "metadata.name=acceld-build-0123456789abcdef"; c.f.asked.FieldSelector != want {
					t.Errorf("watches %q, want %q", c.f.asked.FieldSelector, want)
				}
				x.happens(c)
				if err := <-done; err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took < x.after || took > x.after+spread || x.after == 0 && took > 0 {
					t.Errorf("told after %v, want %v", took, x.after)
				}
				release()
			})
		})
	}
}

// TestAwaitFails: a refusal by the API server does not mean that the build has ended.
func TestAwaitFails(t *testing.T) {
	s := newLeaseServer()
	s.fail = errors.New("away")
	if err := NewElection(s, "waits", nil).Await(t.Context(), nil, buildKey); err == nil {
		t.Error("no error")
	}
}
