package image

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"
)

// Trouble is what a registry does wrong. The zero value does nothing wrong.
type Trouble struct {
	// Match picks the requests that suffer; nil picks all.
	Match func(*http.Request) bool
	// Delay comes before whatever else happens.
	Delay time.Duration
	// Cut ends the connection without an answer.
	Cut bool
	// Status is answered instead of asking the registry.
	Status int
	// Corrupt changes one byte of the answer's body; the header, with the digest and the length, stays.
	Corrupt bool
}

// Behave makes the registry do wrong from now on, or right again with the zero value, and forgets the requests so far.
func (r *Registry) Behave(t Trouble) {
	r.trouble.mu.Lock()
	defer r.trouble.mu.Unlock()
	r.trouble.now, r.trouble.requests = t, nil
}

// Requests are those since the last call of Behave, each as its method and path.
func (r *Registry) Requests() []string {
	r.trouble.mu.Lock()
	defer r.trouble.mu.Unlock()
	return append([]string(nil), r.trouble.requests...)
}

// troubled stands before the registry and does wrong.
type troubled struct {
	behind http.Handler

	mu       sync.Mutex
	now      Trouble
	requests []string
}

func (t *troubled) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.mu.Lock()
	now := t.now
	t.requests = append(t.requests, r.Method+" "+r.URL.Path)
	t.mu.Unlock()
	if now.Match != nil && !now.Match(r) {
		now = Trouble{}
	}
	if now.Delay > 0 {
		late := time.NewTimer(now.Delay)
		defer late.Stop()
		select {
		case <-late.C:
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case now.Cut:
		// The server ends the connection of a handler that panics with this value, and logs nothing.
		panic(http.ErrAbortHandler)
	case now.Status != 0:
		http.Error(w, http.StatusText(now.Status), now.Status)
	case now.Corrupt:
		t.corrupt(w, r)
	default:
		t.behind.ServeHTTP(w, r)
	}
}

// corrupt passes an answer on with one byte changed.
func (t *troubled) corrupt(w http.ResponseWriter, r *http.Request) {
	answer := httptest.NewRecorder()
	t.behind.ServeHTTP(answer, r)
	body := answer.Body.Bytes()
	if len(body) > 0 {
		body[len(body)/2] ^= 1
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(answer.Code)
	// The client may have gone; there is nobody left to tell.
	_, _ = io.Copy(w, bytes.NewReader(body))
}
