package deadline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/acceld/acceld/guard"
)

// ofDevice is how long a device may take to answer.
const ofDevice = 5 * time.Second

// ErrNoAnswer is the error of an operation that a device did not complete in time.
var ErrNoAnswer = errors.New("it did not answer")

// Operations are the operations in progress. The zero value has none. It is safe for concurrent use.
type Operations struct {
	mu    sync.Mutex
	asked map[string]*operation
}

// operation is an operation in progress.
type operation struct {
	late  chan struct{} // closed when its limit is exceeded
	ended chan struct{} // closed when it has returned
	err   error         // what it returned
}

// Do runs an operation on a device, with the default time limit. Name identifies the operation, such as "bind
// 0000:01:00.0".
func (o *Operations) Do(ctx context.Context, name string, do func() error) error {
	return o.Within(ctx, ofDevice, name, do)
}

// Within is Do with a limit of its own. Operations of one name run one after another, and the limit of each begins when
// its turn comes. The error has [ErrNoAnswer] in its chain if the limit is exceeded, or if an operation of that name
// has exceeded its own and still has not returned.
func (o *Operations) Within(ctx context.Context, limit time.Duration, name string, do func() error) error {
	op := &operation{late: make(chan struct{}), ended: make(chan struct{})}
	for before := o.begin(name, op); before != nil; before = o.begin(name, op) {
		select {
		case <-before.ended:
		case <-before.late:
			return fmt.Errorf("%w in time, and still does not", ErrNoAnswer)
		case <-ctx.Done():
			return calledOff(ctx)
		}
	}
	over := time.AfterFunc(limit, func() { close(op.late) })
	guard.Go(func() {
		op.err = guard.Try(do)
		over.Stop()
		o.end(name)
		close(op.ended)
	})
	select {
	case <-op.ended:
		return op.err
	case <-op.late:
		return fmt.Errorf("%w within %v", ErrNoAnswer, limit)
	case <-ctx.Done():
		return calledOff(ctx)
	}
}

// begin makes op the operation in progress under a name, unless there is one, which it returns.
func (o *Operations) begin(name string, op *operation) *operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	if before := o.asked[name]; before != nil {
		return before
	}
	if o.asked == nil {
		o.asked = map[string]*operation{}
	}
	o.asked[name] = op
	return nil
}

func (o *Operations) end(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.asked, name)
}

func calledOff(ctx context.Context) error { return errors.Join(errors.New("called off"), ctx.Err()) }
