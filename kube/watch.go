package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acceld/acceld/pace"
)

// events runs one watch. It passes each event to take until take returns false or the watch ends, which is no error.
// An error is the API server's, before the first event or instead of one.
func events[T any](ctx context.Context, api API, path string, query url.Values,
	take func(kind string, x *T) (more bool),
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := api.Watch(ctx, path, query)
	if err != nil {
		return err
	}
	defer stream.Close()
	return deliver(stream, take)
}

// deliver does what [events] does with a watch that is open.
func deliver[T any](stream io.Reader, take func(kind string, x *T) (more bool)) error {
	for d := json.NewDecoder(stream); ; {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if d.Decode(&e) != nil {
			return nil //nolint:nilerr // the stream has ended; the next watch begins where it did
		}
		if e.Type == "ERROR" {
			return ended(e.Object)
		}
		x := new(T)
		if json.Unmarshal(e.Object, x) != nil || !take(e.Type, x) {
			return nil //nolint:nilerr // the next watch begins at the same place
		}
	}
}

// ended returns the error for a status that arrived in a watch.
func ended(status json.RawMessage) error {
	var s metav1.Status
	if err := json.Unmarshal(status, &s); err != nil {
		return fmt.Errorf("a watch has ended: %s", status)
	}
	return &apierrors.StatusError{ErrStatus: s}
}

func tooOld(err error) bool { return apierrors.IsGone(err) || apierrors.IsResourceExpired(err) }

// persist starts a watch again and again, at growing intervals while it ends soon, until watch reports that it is
// over or ctx ends.
func persist(ctx context.Context, watch func() (over bool)) {
	for failures := 1; ctx.Err() == nil; failures++ {
		began := time.Now()
		if watch() {
			return
		}
		if time.Since(began) > backoffMax {
			failures = 0
		}
		_ = pace.Sleep(ctx, again(pace.Backoff{First: backoffMin, Max: backoffMax}, failures))
	}
}

// spread keeps the agents of a cluster from asking at the same moment.
const spread = 5 * time.Second

// again returns how long to wait after n failures in a row until the next request. n is 0 when a watch has ended that
// worked for long. After a restart of the API server, that is so for the watches of all nodes, which must not come back
// within the same second.
func again(b pace.Backoff, n int) time.Duration {
	if n > 0 {
		return b.After(n)
	}
	return b.First + rand.N(min(spread, max(b.Max, 1)))
}
