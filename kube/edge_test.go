package kube

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/acceld/acceld/accel"
)

// TestBlockedIsNotReady: a blocked kind keeps the startup taint, even if nothing else is missing.
func TestBlockedIsNotReady(t *testing.T) {
	if !render(readyMachine()).ready {
		t.Fatal("the machine is not ready as it is")
	}
	blocked := func(m *accel.Machine) {
		for kind, st := range m.Status {
			st.Blocked = &accel.Failure{Problem: accel.Problem{Reason: accel.InUse}}
			m.Status[kind] = st
		}
	}
	if r := render(readyMachine(blocked)); r.ready || !r.settled {
		t.Errorf("ready %t, settled %t", r.ready, r.settled)
	}
}

// TestUnreadMachine: a machine without observations changes nothing on the node, however often it is published.
func TestUnreadMachine(t *testing.T) {
	node := freshNode()
	node.Labels = map[string]string{"acceld.dev/qemu-edu.count": "2"}
	inCluster(t, node, func(c *cluster) {
		unread := readyMachine(none)
		unread.Facts = accel.Facts{}
		c.k.Publish(unread)
		c.after(time.Minute)
		if p := c.patches(); p != nil {
			t.Errorf("writes %v", p)
		}
	})
}

// TestWordsHaveVersions: an upgrade report is written only if the node is still the one that was read, whatever else
// is written with it.
func TestWordsHaveVersions(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", ResourceVersion: "7"}}
	text := "waiting 2.0.0"
	r := render(readyMachine(func(m *accel.Machine) {
		h := m.Have["qemu-edu"]
		h.UpgradeReport = accel.Known(accel.ParseUpgradeReport(text))
		m.Have["qemu-edu"] = h
	}))
	if p := string(metadataPatch(node, r, everything, false)); !strings.Contains(p, `"resourceVersion":"7"`) ||
		strings.Contains(p, "taints") || !strings.Contains(p, text) {
		t.Error(p)
	}
}

// TestConflictsEnd: an agent that loses to another writer every time does not retry without a pause.
func TestConflictsEnd(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		asked := 0
		c.refusing(func(a clienttesting.Action) error {
			if a.GetVerb() != "patch" || a.GetResource().Resource != "nodes" {
				return nil
			}
			if asked++; asked > 1000 {
				return errors.New("it never ends")
			}
			return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "node-a", errors.New("changed"))
		})
		c.k.Publish(readyMachine())
		c.after(200 * time.Millisecond)
		c.mu.Lock()
		defer c.mu.Unlock()
		if asked == 0 || asked > 4*(maxConflicts+1) {
			t.Errorf("asked %d times", asked)
		}
	})
}

// silent is a nodes API that accepts a patch and never answers.
type silent struct{ Nodes }

func (silent) Patch(ctx context.Context, _ string, _ types.PatchType, _ []byte, _ metav1.PatchOptions,
	_ ...string,
) (*corev1.Node, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSilentServer: an API server that does not answer is reported as a problem after a while.
func TestSilentServer(t *testing.T) {
	inCluster(t, freshNode(), func(c *cluster) {
		c.k.Publish(readyMachine())
		c.after(time.Minute)
		if p := c.k.State().Problem; p == nil || p.Reason != accel.APIUnreachable {
			t.Errorf("problem %v", p)
		}
	}, func(c *Config) { c.Client.Nodes = silent{c.Client.Nodes} })
}

// losing is a leases API that loses answers: it applies the next updates, as many as lose says, and returns an error.
type losing struct {
	*leaseServer
	lose atomic.Int64
}

func (s *losing) Update(ctx context.Context, l *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease,
	error,
) {
	made, err := s.leaseServer.Update(ctx, l, o)
	if s.lose.Add(-1) >= 0 {
		return nil, errors.New("the answer is lost")
	}
	return made, err
}

// TestRenewalAnswerLost: a builder keeps its lease if the renewal was applied but the answer was lost.
func TestRenewalAnswerLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &losing{leaseServer: newLeaseServer()}
		release, elected, _, err := NewElection(s, "builder", nil).Elect(t.Context(), buildKey)
		if !elected || err != nil {
			t.Fatal(elected, err)
		}
		defer release()
		s.lose.Store(1)
		next := NewElection(s, "next", nil)
		for range 20 {
			time.Sleep(renewEvery)
			if _, elected, holder, err := next.Elect(t.Context(), buildKey); elected || holder != "builder" ||
				err != nil {
				t.Fatalf("elected %t, holder %q, %v", elected, holder, err)
			}
		}
	})
}

// late is a leases API in which another node creates each lease just before.
type late struct{ *leaseServer }

func (s late) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease,
	error,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	other, quicker := "quicker", l.DeepCopy()
	quicker.Spec.HolderIdentity = &other
	s.put(quicker)
	return nil, apierrors.NewAlreadyExists(s.resource(), l.Name)
}

// TestSomebodyQuicker: a node that loses the election learns which node won.
func TestSomebodyQuicker(t *testing.T) {
	_, elected, holder, err := NewElection(late{newLeaseServer()}, "slow", nil).Elect(t.Context(), buildKey)
	if elected || holder != "quicker" || err != nil {
		t.Errorf("elected %t, holder %q, %v", elected, holder, err)
	}
}

// TestTaintsHaveVersions: the list of taints is replaced only if it is still the one that was read. Our taint is the
// one with our key and effect.
func TestTaintsHaveVersions(t *testing.T) {
	ours := corev1.Taint{Key: TaintKey, Effect: corev1.TaintEffectNoSchedule}
	evicting := corev1.Taint{Key: TaintKey, Effect: corev1.TaintEffectNoExecute}
	theirs := corev1.Taint{Key: "example.com/x", Effect: corev1.TaintEffectNoSchedule}
	for _, c := range []struct {
		name           string
		have, want     []corev1.Taint
		ready, retaint bool
	}{
		{"ready", []corev1.Taint{theirs, ours}, []corev1.Taint{theirs}, true, true},
		{"ready, with one of another effect", []corev1.Taint{evicting, ours}, []corev1.Taint{evicting}, true, true},
		{"ready, with one of another effect only", []corev1.Taint{evicting}, nil, true, true},
		{"ready, and none of ours", []corev1.Taint{theirs}, nil, true, true},
		{"not ready", []corev1.Taint{theirs}, []corev1.Taint{theirs, ours}, false, true},
		{
			"not ready, with one of another effect",
			[]corev1.Taint{evicting},
			[]corev1.Taint{evicting, ours},
			false,
			true,
		},
		{"not ready, and it has been", []corev1.Taint{theirs}, nil, false, false},
		{"not ready, and it is there", []corev1.Taint{ours}, nil, false, true},
	} {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-a", ResourceVersion: "7"},
			Spec:       corev1.NodeSpec{Taints: c.have},
		}
		var patch struct {
			Metadata metav1.ObjectMeta
			Spec     corev1.NodeSpec
		}
		if body := metadataPatch(node, &rendered{ready: c.ready}, everything, c.retaint); body != nil {
			if err := json.Unmarshal(body, &patch); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(c.want, patch.Spec.Taints); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
		if c.want != nil && patch.Metadata.ResourceVersion != "7" {
			t.Errorf("%s: the taints of resource version %q are replaced", c.name, patch.Metadata.ResourceVersion)
		}
	}
}
