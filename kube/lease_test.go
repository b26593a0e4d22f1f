package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// leaseServer is the part of an API server that leases need, with conflicts between versions.
type leaseServer struct {
	mu     sync.Mutex
	leases map[string]*coordinationv1.Lease
	n      int
	fail   error
	writes int
	during func() // is called once, after a lease was read
}

func (s *leaseServer) resource() schema.GroupResource {
	return schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
}

func (s *leaseServer) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	if s.during != nil {
		defer s.during()
		s.during = nil
	}
	if l, ok := s.leases[name]; ok {
		return l.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(s.resource(), name)
}

func (s *leaseServer) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease,
	error,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.leases[l.Name]; ok {
		return nil, apierrors.NewAlreadyExists(s.resource(), l.Name)
	}
	return s.put(l), s.fail
}

func (s *leaseServer) Update(_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease,
	error,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	if have := s.leases[l.Name]; have == nil || have.ResourceVersion != l.ResourceVersion {
		return nil, apierrors.NewConflict(s.resource(), l.Name, errors.New("changed"))
	}
	return s.put(l), nil
}

func (s *leaseServer) put(l *coordinationv1.Lease) *coordinationv1.Lease {
	s.n++
	s.writes++
	l = l.DeepCopy()
	l.ResourceVersion = fmt.Sprint(s.n)
	s.leases[l.Name] = l
	return l.DeepCopy()
}

func newLeaseServer() *leaseServer { return &leaseServer{leases: map[string]*coordinationv1.Lease{}} }

const buildKey = "0123456789abcdef0123456789abcdef"

func TestElectOneBuilder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLeaseServer()
		var mu sync.Mutex
		var builders []string
		var releases []func()
		holders := map[string]int{}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				node := fmt.Sprint("node-", i)
				release, elected, holder, err := NewElection(s, node, nil).Elect(t.Context(), buildKey)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Error(err)
				case elected:
					builders, releases = append(builders, node), append(releases, release)
				default:
					holders[holder]++
				}
			})
		}
		all.Wait()
		if len(builders) != 1 || holders[builders[0]]+holders["unknown"] != 19 {
			t.Fatalf("builders %v, the others name %v", builders, holders)
		}
		if s.leases["acceld-build-0123456789abcdef"] == nil {
			t.Errorf("leases %v", s.leases)
		}
		// Other drivers have other builders.
		other, elected, _, err := NewElection(s, "node-x", nil).Elect(t.Context(), "ffff")
		if !elected || err != nil {
			t.Fatal("another key is not free", err)
		}
		other()
		// A long build keeps its lease, and the next node gets it as soon as the build ends.
		next := NewElection(s, "next", nil)
		for range 12 {
			if _, elected, holder, err := next.Elect(t.Context(), buildKey); elected || holder != builders[0] ||
				err != nil {
				t.Fatal(elected, holder, err)
			}
			time.Sleep(15 * time.Second)
		}
		releases[0]()
		releases[0]() // a second call does no harm
		release, elected, _, err := next.Elect(t.Context(), buildKey)
		if !elected || err != nil {
			t.Fatal(elected, err)
		}
		release()
	})
}

// TestElectAfterACrash: the lease of a builder that died expires, however wrong its clock was.
func TestElectAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLeaseServer()
		first, elected, _, err := NewElection(s, "first", nil).Elect(t.Context(), buildKey)
		if !elected || err != nil {
			t.Fatal(err)
		}
		lease := s.leases["acceld-build-0123456789abcdef"].DeepCopy()
		first()
		wrong := metav1.NewMicroTime(time.Now().Add(-24 * time.Hour))
		lease.Spec.RenewTime = &wrong // as a node with a wrong clock writes it
		forever := int32(1 << 30)
		lease.Spec.LeaseDurationSeconds = &forever // as somebody with a stolen token writes it
		// A server whose lease is neither renewed nor released.
		frozen := &leaseServer{leases: map[string]*coordinationv1.Lease{lease.Name: lease}, n: 100}
		second := NewElection(frozen, "second", nil)
		began := time.Now()
		for {
			release, elected, holder, err := second.Elect(t.Context(), buildKey)
			if err != nil {
				t.Fatal(err)
			}
			if elected {
				release()
				break
			}
			if holder != "first" || time.Since(began) > time.Minute {
				t.Fatal(holder, time.Since(began))
			}
			time.Sleep(5 * time.Second)
		}
		if d := time.Since(began); d < leaseDuration || d > leaseDuration+10*time.Second {
			t.Errorf("taken over after %v", d)
		}
		// The holder itself, after a restart, continues at once.
		lease = frozen.leases["acceld-build-0123456789abcdef"]
		name := "second"
		lease.Spec.HolderIdentity = &name
		lease.Spec.LeaseDurationSeconds = nil
		release, elected, _, err := NewElection(frozen, "second", nil).Elect(t.Context(), buildKey)
		if !elected || err != nil {
			t.Fatal(elected, err)
		}
		release()
	})
}

func TestElectWithoutAnswer(t *testing.T) {
	s := newLeaseServer()
	for _, c := range []struct {
		err  error
		says string
	}{
		{apierrors.NewForbidden(s.resource(), "x", errors.New("no rule")), "APIForbidden"},
		{errors.New("connection refused"), "APIUnreachable"},
	} {
		s.fail = c.err
		if _, elected, _, err := NewElection(s, "a", nil).Elect(t.Context(), buildKey); elected || err == nil ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %t %v", c.err, elected, err)
		}
	}
}

// TestElectAtOnce: a node that loses against another write reads the lease again, and then knows the builder or
// builds itself.
func TestElectAtOnce(t *testing.T) {
	const name = leasePrefix + "0123456789abcdef"
	lease := func(holder string) *coordinationv1.Lease {
		seconds := int32(30)
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds},
		}
	}
	for _, c := range []struct {
		name          string
		before, after *coordinationv1.Lease
		want          string
	}{
		{"another one makes it", nil, lease("first"), "first"},
		{"another one takes it", lease(""), lease("first"), "first"},
		{"another one makes it and gives it back", nil, lease(""), "second"},
		{"another one takes it and gives it back", lease(""), lease(""), "second"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLeaseServer()
				if c.before != nil {
					_ = s.put(c.before)
				}
				s.during = func() { _ = s.put(c.after) }
				release, elected, holder, err := NewElection(s, "second", nil).Elect(t.Context(), buildKey)
				if elected != (c.want == "second") || holder != c.want || err != nil {
					t.Errorf("elected %t, holder %q, %v", elected, holder, err)
				}
				if release != nil {
					release()
				}
			})
		})
	}
}
