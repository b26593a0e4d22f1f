package replicas

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/acceld/acceld/test/fleet"
)

// extra creates pods that only the caller binds.
func (b *bench) extra(prefix string, n int) (pods []*corev1.Pod) {
	b.t.Helper()
	for i := range n {
		p := fleet.Pod(fmt.Sprint(prefix, i), "", "", fleet.Amounts{"shares": "1", "memory": "4G"})
		p.UID, p.Status = "", corev1.PodStatus{}
		p.Spec.Containers[0].Image = "none"
		made, err := b.client.CoreV1().Pods("default").Create(b.t.Context(), p, metav1.CreateOptions{})
		check(b.t, err)
		pods = append(pods, made)
	}
	return pods
}

// waiting sends a binding of each pod to a replica, with more time than a stop lasts. The function waits for the
// answers and returns how many were bound and how many refused.
func (b *bench) waiting(x *replica, pods []*corev1.Pod) (answers func() (bound, refused int)) {
	patient := *b.rig
	patient.http = &http.Client{Timeout: 2 * time.Minute, Transport: b.http.Transport}
	var bound atomic.Int64
	var all sync.WaitGroup
	for i, p := range pods {
		all.Go(func() {
			var answer struct{ Error string }
			status, err := patient.ask(b.t.Context(), x, "bind", map[string]any{
				"PodName": p.Name, "PodNamespace": "default", "PodUID": p.UID, "Node": nodeName(i % nodes),
			}, &answer)
			if err == nil && status == http.StatusOK && answer.Error == "" {
				bound.Add(1)
			}
		})
	}
	return func() (int, int) {
		all.Wait()
		return int(bound.Load()), len(pods) - int(bound.Load())
	}
}

// TestStoppedLeader: the leader's process is stopped for longer than its lease, in the midst of bindings that both
// replicas get, and goes on while another one leads. It writes nothing before it has the lease again.
func TestStoppedLeader(t *testing.T) {
	b := newBench(t)
	b.send(6)
	for round := range 2 {
		stopped := b.current
		late := b.extra(fmt.Sprintf("late%d-", round), 2*hands)
		b.send(4)
		before := b.waiting(stopped, late[:hands]) // these are in progress
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
		began := time.Now()
		check(t, stopped.cmd.Process.Signal(syscall.SIGSTOP))
		t.Logf("%s is stopped: the Service leads to another one that answers after %.1f s", stopped.name,
			b.until("another replica answers", b.leader(stopped)).Seconds())
		during := b.waiting(stopped, late[hands:]) // these wait in its sockets
		b.send(4)
		time.Sleep(time.Until(began.Add(lease + 5*time.Second)))
		goesOn := time.Now()
		check(t, stopped.cmd.Process.Signal(syscall.SIGCONT))
		done, undone := before()
		bound, refused := during()
		if bound > 0 {
			t.Errorf("%s has bound %d pods that it was sent after its lease", stopped.name, bound)
		}
		b.until("the one that was stopped is ready", func() bool { return b.ready(stopped) })
		time.Sleep(2 * time.Second)
		for _, w := range stopped.witness.all(goesOn) {
			if w.taken() && !w.ofLease() && !w.ofSecret() {
				t.Errorf("%s wrote %s %s %v after it went on", stopped.name, w.method, w.path, w.at.Sub(goesOn))
			}
		}
		t.Logf("%s goes on after %.1f s: of the bindings in progress at the stop %d were done and %d refused, %d sent "+
			"during it were refused", stopped.name, goesOn.Sub(began).Seconds(), done, undone, refused)
		check(t, b.drop(late))
	}
	b.fill()
}

// drop deletes pods, so that what some of them may have been given is free again.
func (b *bench) drop(pods []*corev1.Pod) error {
	now := int64(0)
	var errs []error
	for _, p := range pods {
		errs = append(errs, b.client.CoreV1().Pods("default").Delete(b.t.Context(), p.Name,
			metav1.DeleteOptions{GracePeriodSeconds: &now}))
	}
	return errors.Join(errs...)
}

// TestEditedLease: somebody who may write the lease does so while both replicas get bindings. Each time a replica leads
// again, and in between nothing is written without a proof.
func TestEditedLease(t *testing.T) {
	b := newBench(t)
	b.edited = true
	leases := b.client.CoordinationV1().Leases(namespace)
	edit := func(change func(*coordinationv1.LeaseSpec)) func() error {
		return func() error {
			return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
				l, err := leases.Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				change(&l.Spec)
				_, err = leases.Update(t.Context(), l, metav1.UpdateOptions{})
				return err
			})
		}
	}
	stranger, nobody, zero, huge := "mallory", "", int32(0), int32(math.MaxInt32)
	usual := int32(lease.Seconds()) // a stranger's huge one is respected for leader.MaxLease, which is minutes
	now := func(later time.Duration) *metav1.MicroTime { return &metav1.MicroTime{Time: time.Now().Add(later)} }
	b.send(4)
	for _, c := range []struct {
		what    string
		edit    func() error
		refused bool
	}{
		{"a duration of 0", edit(func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = &zero }), true},
		{"a huge duration", edit(func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = &huge }), false},
		{"a renewal next year", edit(func(s *coordinationv1.LeaseSpec) { s.RenewTime = now(365 * 24 * time.Hour) }), false},
		{"another holder", edit(func(s *coordinationv1.LeaseSpec) {
			s.HolderIdentity, s.LeaseDurationSeconds, s.RenewTime = &stranger, &usual, now(0)
		}), false},
		{"another holder from next year", edit(func(s *coordinationv1.LeaseSpec) {
			s.HolderIdentity, s.LeaseDurationSeconds, s.RenewTime = &stranger, &usual, now(365*24*time.Hour)
		}), false},
		{"no holder", edit(func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = &nobody }), false},
		{"the most transitions", edit(func(s *coordinationv1.LeaseSpec) {
			s.HolderIdentity, s.LeaseDurationSeconds, s.LeaseTransitions = &stranger, &usual, &huge
		}), false},
		{"no lease", func() error { return leases.Delete(t.Context(), name, metav1.DeleteOptions{}) }, false},
	} {
		err := c.edit()
		if c.refused {
			if !apierrors.IsInvalid(err) {
				t.Errorf("%s: %v", c.what, err)
			}
			continue
		}
		check(t, err)
		sent := b.send(3)
		t.Logf("%s: the next pods are bound after %.1f s", c.what, b.until("they are bound", func() bool {
			return b.areBound(sent)
		}).Seconds())
		b.until("the Service leads to one that answers", b.leader(nil))
		time.Sleep(lease / 4) // until the leader has renewed what was edited
	}
	b.fill()
}

// areBound reports whether pods are bound.
func (b *bench) areBound(pods []*corev1.Pod) bool {
	for _, p := range pods {
		now, err := b.client.CoreV1().Pods("default").Get(b.t.Context(), p.Name, metav1.GetOptions{})
		if err != nil || strings.TrimSpace(now.Spec.NodeName) == "" {
			return false
		}
	}
	return true
}
