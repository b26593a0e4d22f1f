package kube

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/time/rate"
)

const (
	// maxPending limits the events that wait for an API server that does not answer; the oldest are dropped first.
	maxPending = 64
	// repeatWithin is how long equal news increase the count of one event instead of creating another.
	repeatWithin = 10 * time.Minute
	// A node in trouble must not flood the API: first a burst of eventBurst events, then one every eventEvery.
	eventBurst = 25
	eventEvery = 5 * time.Second
)

// pending is news that the API server does not have yet.
type pending struct {
	news
	name        string // end of the event's name: the same for every attempt, so that none is sent twice
	first, last time.Time
	count       int32
}

// reported is news that the API server has.
type reported struct {
	name  string
	last  time.Time
	count int32
}

// outbox holds the events until they are written. Only the task's goroutine uses it.
type outbox struct {
	queue    []pending
	reported map[news]reported
	limit    *rate.Limiter
	added    int64
}

func newOutbox() *outbox {
	return &outbox{reported: map[news]reported{}, limit: rate.NewLimiter(rate.Every(eventEvery), eventBurst)}
}

// add queues news, or increments the count of equal news that still wait.
func (o *outbox) add(n news, at time.Time) {
	for i := range o.queue {
		if o.queue[i].news == n {
			o.queue[i].count++
			o.queue[i].last = at
			return
		}
	}
	if len(o.queue) == maxPending {
		o.queue = o.queue[1:]
	}
	o.added++ // keeps the names of news with the same time distinct
	o.queue = append(o.queue, pending{n, strconv.FormatInt(at.UnixNano()+o.added, 16), at, at, 1})
}

// flush writes the queue in order until the rate limit or the first failure. It returns when to call again, zero if
// nothing waits, and the error that stopped it. It drops an event that the API server refuses, and returns the error.
func (o *outbox) flush(ctx context.Context, api Events, node *corev1.Node, now time.Time) (time.Duration, error) {
	for key, t := range o.reported {
		if now.Sub(t.last) > repeatWithin {
			delete(o.reported, key)
		}
	}
	for len(o.queue) > 0 {
		r := o.limit.ReserveN(now, 1)
		if d := r.DelayFrom(now); d > 0 {
			r.CancelAt(now)
			return d, nil
		}
		err := o.send(ctx, api, node, o.queue[0])
		if err == nil || refused(err) || apierrors.IsNotFound(err) {
			o.queue = o.queue[1:]
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// send creates an event for p, or increments the count of an earlier event with the same news.
func (o *outbox) send(ctx context.Context, api Events, node *corev1.Node, p pending) error {
	if t, ok := o.reported[p.news]; ok {
		t.count, t.last = t.count+p.count, p.last
		body := encode(map[string]any{"series": eventsv1.EventSeries{
			Count:            t.count,
			LastObservedTime: metav1.NewMicroTime(p.last),
		}})
		_, err := api.Patch(ctx, t.name, types.StrategicMergePatchType, body,
			metav1.PatchOptions{FieldManager: FieldManager})
		if err == nil {
			o.reported[p.news] = t
			return nil
		}
		if !apierrors.IsNotFound(err) { // not found: its time to live has ended, so create a new one
			return err
		}
	}
	e := newEvent(node, p)
	_, err := api.Create(ctx, e, metav1.CreateOptions{FieldManager: FieldManager})
	if err == nil || apierrors.IsAlreadyExists(err) { // the answer to a first attempt was lost
		o.reported[p.news] = reported{e.Name, p.last, p.count}
		return nil
	}
	return err
}

// newEvent returns the event for p within the lengths that the API takes (pkg/apis/core/validation/events.go of
// Kubernetes 1.37).
func newEvent(node *corev1.Node, p pending) *eventsv1.Event {
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name:      node.Name[:min(len(node.Name), 230)] + "." + p.name,
			Namespace: EventNamespace,
		},
		EventTime:           metav1.NewMicroTime(p.first),
		ReportingController: Controller,
		ReportingInstance:   node.Name[:min(len(node.Name), 128)],
		Action:              "Observe",
		Reason:              p.reason,
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		Note:                p.note,
		Type:                corev1.EventTypeNormal,
	}
	if p.warning {
		e.Type = corev1.EventTypeWarning
	}
	if p.count > 1 {
		e.Series = &eventsv1.EventSeries{Count: p.count, LastObservedTime: metav1.NewMicroTime(p.last)}
	}
	return e
}
