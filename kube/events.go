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
	// maxPending bounds what waits for an API server that does not answer; the oldest go first.
	maxPending = 64
	// repeatWithin is how long equal news count up one event instead of making another.
	repeatWithin = 10 * time.Minute
	// A node in trouble must not flood the API: a burst for a start, then one event every few seconds.
	eventBurst = 25
	eventEvery = 5 * time.Second
)

// pending is news that the API server does not have yet.
type pending struct {
	news
	name        string // end of the event's name: the same for every attempt, so that none is told twice
	first, last time.Time
	count       int32
}

// told is news that the API server has.
type told struct {
	name  string
	last  time.Time
	count int32
}

// outbox holds the events until they are written. It belongs to the task's goroutine.
type outbox struct {
	queue []pending
	told  map[news]told
	limit *rate.Limiter
	added int64
}

func newOutbox() *outbox {
	return &outbox{told: map[news]told{}, limit: rate.NewLimiter(rate.Every(eventEvery), eventBurst)}
}

// add queues news, counting up an equal one that still waits.
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
	o.added++ // news of one moment are several
	o.queue = append(o.queue, pending{n, strconv.FormatInt(at.UnixNano()+o.added, 16), at, at, 1})
}

// flush writes what waits, in order, until the limit or the first failure. It returns when to call again, zero when
// nothing waits, and the error that stopped it. An event that the API server refuses is dropped and its error returned.
func (o *outbox) flush(ctx context.Context, api Events, node *corev1.Node, now time.Time) (time.Duration, error) {
	for key, t := range o.told {
		if now.Sub(t.last) > repeatWithin {
			delete(o.told, key)
		}
	}
	for len(o.queue) > 0 {
		r := o.limit.ReserveN(now, 1)
		if d := r.DelayFrom(now); d > 0 {
			r.CancelAt(now)
			return d, nil
		}
		err := o.send(ctx, api, node, o.queue[0])
		if err != nil && !refused(err) && !apierrors.IsNotFound(err) {
			return 0, err
		}
		o.queue = o.queue[1:]
		if err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// send makes a new event of p or counts up the one that told the same before.
func (o *outbox) send(ctx context.Context, api Events, node *corev1.Node, p pending) error {
	if t, ok := o.told[p.news]; ok {
		t.count, t.last = t.count+p.count, p.last
		body := encode(map[string]any{"series": eventsv1.EventSeries{
			Count:            t.count,
			LastObservedTime: metav1.NewMicroTime(p.last),
		}})
		_, err := api.Patch(ctx, t.name, types.StrategicMergePatchType, body,
			metav1.PatchOptions{FieldManager: FieldManager})
		if err == nil {
			o.told[p.news] = t
			return nil
		}
		if !apierrors.IsNotFound(err) { // else its time to live ended: a new one
			return err
		}
	}
	e := newEvent(node, p)
	_, err := api.Create(ctx, e, metav1.CreateOptions{FieldManager: FieldManager})
	if err == nil || apierrors.IsAlreadyExists(err) { // the answer to a first attempt was lost
		o.told[p.news] = told{e.Name, p.last, p.count}
		return nil
	}
	return err
}

// newEvent renders p within the lengths that the API takes (pkg/apis/core/validation/events.go of Kubernetes 1.37).
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
