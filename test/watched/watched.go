// Package watched is the memory of an API server, for tests of what follows one: who lists and then watches misses
// nothing in between, and hears of everything in order.
package watched

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"sync"
)

// History is what has changed. The zero value is empty.
type History struct {
	mu     sync.Mutex
	events []event
	more   chan struct{} // closed by the next event
}

type event struct {
	collection string
	version    int
	line       []byte
}

// Add appends a change of an object in a collection. Versions grow.
func (h *History) Add(collection, kind string, version int, object any) {
	line, err := json.Marshal(map[string]any{"type": kind, "object": object})
	if err != nil {
		panic(err) // the object is the test's own
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event{collection, version, append(line, '\n')})
	if h.more != nil {
		close(h.more)
		h.more = nil
	}
}

// after returns the first event of a collection at or beyond a place, the place after it, and where there is none what
// to wait for.
func (h *History) after(collection string, version, at int) (line []byte, next int, more <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ; at < len(h.events); at++ {
		if e := h.events[at]; e.collection == collection && e.version > version {
			return e.line, at + 1, nil
		}
	}
	if h.more == nil {
		h.more = make(chan struct{})
	}
	return nil, at, h.more
}

// Watch is that of kube.API: the changes of a collection since query's resourceVersion, until ctx ends or it is closed.
func (h *History) Watch(ctx context.Context, collection string, query url.Values) (io.ReadCloser, error) {
	version, err := strconv.Atoi(query.Get("resourceVersion"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	return &stream{h: h, done: ctx.Done(), cancel: cancel, collection: collection, version: version}, nil
}

type stream struct {
	h          *History
	done       <-chan struct{}
	cancel     context.CancelFunc
	collection string
	version    int
	at         int
	rest       []byte
}

// Read blocks until there is a change.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		var more <-chan struct{}
		if s.rest, s.at, more = s.h.after(s.collection, s.version, s.at); more == nil {
			continue
		}
		select {
		case <-more:
		case <-s.done:
			return 0, io.EOF
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Close ends a Read.
func (s *stream) Close() error {
	s.cancel()
	return nil
}

// Copy copies an object by way of JSON, as a request does; into may be nil.
func Copy(from, into any) error {
	b, err := json.Marshal(from)
	if err == nil && into != nil {
		err = json.Unmarshal(b, into)
	}
	return err
}
