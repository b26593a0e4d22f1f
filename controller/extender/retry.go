package extender

import (
	"context"
	"sync"
	"time"

	"github.com/acceld/acceld/pace"
)

// The scheduler retries a refused pod as soon as it hears that another pod is gone or that a node has changed. If it
// hears before the extender does, it is told again that the pod does not fit, hears of nothing more, and retries only
// minutes later (podMaxInUnschedulablePodsDuration of kube-scheduler 1.37). So the extender, once it has heard, changes
// an annotation of the node if such a pod may have been refused too early.
const (
	// settled is how long the scheduler has to ask again by itself.
	settled = time.Second
	// lag is how much earlier than the extender the scheduler may hear of a change.
	lag = 30 * time.Second
)

// latest is the node that got room last, and when.
type latest struct {
	mu      sync.Mutex
	node    string
	at      time.Time
	changed chan struct{} // with a buffer of one
}

func (l *latest) set(node string) {
	l.mu.Lock()
	l.node, l.at = node, time.Now()
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *latest) get() (node string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.node, l.at
}

// retry makes the scheduler ask again about pods that it asked about too early, until ctx ends.
func (e *Extender) retry(ctx context.Context, b *Cache) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.room.changed:
		}
		if pace.Sleep(ctx, settled) != nil {
			return
		}
		node, since := b.room.get()
		pod := e.refused(b, since)
		if pod == "" {
			continue
		}
		write, cancel := context.WithTimeout(ctx, apiDeadline)
		err := e.api.Room(write, node, since)
		cancel()
		if err != nil {
			e.log.Warn("cannot tell the scheduler that a node has room again", "node", node, "pod", pod, "error", err)
			continue
		}
		e.log.Info("the scheduler may have asked too early: told it that a node has room again", "node", node, "pod", pod)
	}
}

// refused returns a pod that fitted nowhere shortly before there was room, and that the scheduler has not asked about
// since; "" if there is none.
func (e *Extender) refused(b *Cache, since time.Time) string {
	for _, q := range e.unbound(b) {
		if q.refused && q.at.Before(since) && since.Sub(q.at) < lag {
			return q.Namespace + "/" + q.Name
		}
	}
	return ""
}
