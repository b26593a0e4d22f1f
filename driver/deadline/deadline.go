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
	asked map[string]chan error
}

// Do runs an operation on a device, with the default time limit. Name identifies the operation, such as "bind
// 0000:01:00.0".
func (o *Operations) Do(ctx context.Context, name string, do func() error) error {
	return o.Within(ctx, ofDevice, name, do)
}

// Within is Do with a limit of its own. The error has [ErrNoAnswer] in its chain if the limit is exceeded, or if the
// same operation from an earlier call has still not returned.
func (o *Operations) Within(ctx context.Context, limit time.Duration, name string, do func() error) error {
	done := make(chan error, 1)
	o.mu.Lock()
	before, asked := o.asked[name]
	hangs := asked && len(before) == 0
	if !hangs { // the result of one that has returned since is outdated
		if o.asked == nil {
			o.asked = map[string]chan error{}
		}
		o.asked[name] = done
	}
	o.mu.Unlock()
	if hangs {
		return fmt.Errorf("%w in time, and still does not", ErrNoAnswer)
	}
	guard.Go(func() { done <- guard.Try(do) })
	over := time.NewTimer(limit)
	defer over.Stop()
	select {
	case err := <-done:
		o.answered(name)
		return err
	case <-over.C:
		return fmt.Errorf("%w within %v", ErrNoAnswer, limit)
	case <-ctx.Done():
		return errors.Join(errors.New("called off"), ctx.Err())
	}
}

func (o *Operations) answered(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.asked, name)
}
