package kube

import (
	"context"
	"time"

	"github.com/acceld/acceld/accel"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// deadline is the timeout of one request.
	deadline = 10 * time.Second
	// settle is how long changes are collected into one write.
	settle = 50 * time.Millisecond
	// hold is how long after a start nothing is written that only shows that the agent is starting, so that a restart
	// does not make the node flap.
	hold = 2 * time.Second
)

// session lasts as long as one watch. All of its fields belong to one goroutine.
type session struct {
	k *Kube
	// node is the newest node from the API server; nil while there is no node of that name.
	node *corev1.Node
	// connected is true once the API server answered.
	connected bool
	// failures counts failed writes in a row. due is when the next pass is due; zero if none is.
	failures int
	due      time.Time
	lastTry  time.Time
	// versioned is true once the version of the API server is known. unsaid counts the failed requests for it in a
	// row.
	versioned bool
	unsaid    int
	// untold is true once the API server has refused to take what acceld says about its work on the node.
	untold bool
	// noTotals is true once it has refused the totals of the node's cards.
	noTotals bool
	// extent is how much of the node the API server lets this agent write, as far as is known.
	extent extent
}

// run reads the node, then follows it and the published machines until the watch ends.
func (s *session) run(ctx context.Context) *accel.Problem {
	node, err := s.get(ctx)
	switch {
	case err == nil:
		s.node = node
	case apierrors.IsNotFound(err):
	default:
		return problem("get node", s.k.c.Node, err)
	}
	// Without a resource version, the watch starts with the node as it is. From the version of the node itself it could
	// not start: after a restart, and in a busy cluster, the API server remembers no version that is that old (410).
	o := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", s.k.c.Node).String()}
	w, err := s.k.c.Client.Nodes.Watch(ctx, o)
	if err != nil {
		return problem("watch node", s.k.c.Node, err)
	}
	defer w.Stop()
	s.connected = true
	s.found()
	s.pass(ctx)
	s.version(ctx)
	return s.follow(ctx, w)
}

func (s *session) get(ctx context.Context) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return s.k.c.Client.Nodes.Get(ctx, s.k.c.Node, metav1.GetOptions{})
}

// version requests the version of the API server until it is known. Some definitions wait for it.
func (s *session) version(ctx context.Context) {
	if s.k.c.Client.Version == nil || s.versioned {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	v, err := s.k.c.Client.Version(ctx)
	if err != nil {
		if s.k.first("version") {
			s.k.c.Log.Warn("version of the API server unknown", "error", err)
		}
		s.unsaid++
		s.schedule(time.Now().Add(backoff(s.unsaid)))
		return
	}
	s.versioned = true
	s.k.report(func(y *Sync) { y.ClusterVersion = v })
}

// found reports whether the node exists, and nothing else about it yet.
func (s *session) found() {
	s.k.report(func(y *Sync) {
		y.see(s.node)
		if s.node == nil {
			y.Labelled = false
			y.Problem = accel.Problemf(accel.NodeNotFound, "the cluster has no node %q", s.k.c.Node)
		}
	})
}

// see takes over the labels and annotations of the newest node object.
func (y *Sync) see(node *corev1.Node) {
	y.NodeFound, y.NodeLabels, y.NodeAnnotations, y.Maintenance, y.Asked = node != nil, nil, nil, nil, true
	if node != nil {
		y.NodeLabels, y.NodeAnnotations = node.Labels, node.Annotations
		y.Maintenance = accel.ParseMaintenance(rawConditions(node))
	}
}

// follow is the loop of a session.
func (s *session) follow(ctx context.Context, w watch.Interface) *accel.Problem {
	for {
		var timer <-chan time.Time
		if !s.due.IsZero() {
			timer = time.After(time.Until(s.due))
		}
		s.k.once.Do(func() { close(s.k.ready) })
		select {
		case <-ctx.Done():
			return nil
		case <-s.k.wake:
			s.schedule(s.moment())
		case <-timer:
			s.due = time.Time{}
			s.pass(ctx)
			s.version(ctx)
		case e, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if err := s.take(e); err != nil {
				return err
			}
			s.pass(ctx)
		}
	}
}

// moment returns when to write something new: soon, but after failed writes no faster than the API server can bear.
func (s *session) moment() time.Time {
	at := time.Now().Add(settle)
	if s.failures > 0 && at.Before(s.lastTry.Add(backoffMin)) {
		at = s.lastTry.Add(backoffMin)
	}
	return at
}

// schedule makes a pass due at t unless one is due earlier.
func (s *session) schedule(t time.Time) {
	if s.due.IsZero() || t.Before(s.due) {
		s.due = t
	}
}

// take updates the node from a watch event. It ignores events that are not newer than the answer to an own patch.
func (s *session) take(e watch.Event) *accel.Problem {
	node, _ := e.Object.(*corev1.Node)
	switch e.Type {
	case watch.Added, watch.Modified:
		if node == nil || s.node != nil && s.node.UID == node.UID && !later(node.ResourceVersion,
			s.node.ResourceVersion) {
			return nil
		}
		s.node = node
		s.found()
	case watch.Deleted:
		s.node = nil
		s.found()
	case watch.Error:
		err := apierrors.FromObject(e.Object)
		if apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
			return accel.Problemf(accel.APIUnreachable, "the watch of node %q is too old", s.k.c.Node)
		}
		return problem("watch node", s.k.c.Node, err)
	}
	return nil
}

// pass compares the node with the desired one, writes what differs and reports the result.
func (s *session) pass(ctx context.Context) {
	r, began, retaint := s.k.desired()
	if s.node == nil {
		return
	}
	if r == nil { // nothing to write yet, and the API server answers
		s.k.report(func(y *Sync) { y.Problem = nil })
		return
	}
	if until := began.Add(hold); !r.settled && time.Now().Before(until) {
		s.k.report(func(y *Sync) { y.Labelled, y.Problem = labelled(s.node, r, s.extent), nil })
		s.schedule(until)
		return
	}
	if wait := s.allowance(r, retaint); wait > 0 {
		s.schedule(time.Now().Add(wait))
		return
	}
	s.lastTry = time.Now()
	p, kept := s.write(ctx, r, retaint)
	for _, write := range []func(context.Context, *rendered) *accel.Problem{s.writeTotals, s.writeMaintenance} {
		if unwritten := write(ctx, r); p == nil {
			p = unwritten
		}
	}
	if ctx.Err() != nil {
		return
	}
	s.k.report(func(y *Sync) {
		has := s.node != nil && labelled(s.node, r, s.extent)
		y.Problem = p
		y.see(s.node)
		// an unreachable API server means "don't know"
		y.Labelled = has && (kept || y.Labelled && p != nil && p.Reason == accel.APIUnreachable)
	})
	s.settleAccounts(ctx, p)
}

// settleAccounts schedules the next attempt after a failure, and sends the events while the API server answers.
func (s *session) settleAccounts(ctx context.Context, p *accel.Problem) {
	if p == nil {
		s.failures = 0
	} else {
		s.failures++
		s.extent = everything // somebody may have changed the rules
		s.schedule(time.Now().Add(backoff(s.failures)))
	}
	if s.node == nil || p != nil && p.Reason == accel.APIUnreachable {
		return
	}
	s.k.collect()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	wait, err := s.k.outbox.flush(ctx, s.k.c.Client.Events, s.node, s.k.c.Now())
	switch {
	case err != nil && refused(err):
		if s.k.first("events") {
			s.k.c.Log.Warn("the API server refuses events", "error", err)
		}
		s.schedule(time.Now().Add(settle)) // for the next event
	case err != nil:
		s.schedule(time.Now().Add(backoff(1)))
	case wait > 0:
		s.schedule(time.Now().Add(wait))
	}
}
