package transfer

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestPlainHTTP: nothing goes out without TLS unless that is allowed, not even to a private address.
func TestPlainHTTP(t *testing.T) {
	clear := false
	next := roundTripper(func(*http.Request) (*http.Response, error) { clear = true; return nil, io.EOF })
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://10.0.0.1/v2/", nil)
	if _, err := (guard{next, false, time.Minute}).RoundTrip(r); err == nil || clear {
		t.Error("went out in the clear")
	}
	if _, err := (guard{next, true, time.Minute}).RoundTrip(r); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// TestSlowDisk: what the reader of a transfer does between two reads does not count as a stall of the registry.
func TestSlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = 20 * time.Millisecond
		ctx, cancel := context.WithCancelCause(t.Context())
		w := &watched{
			ReadCloser: io.NopCloser(strings.NewReader("ab")), cause: func() error { return context.Cause(ctx) },
			cancel: cancel, timer: time.AfterFunc(stall, func() { cancel(errStalled) }), stall: stall,
		}
		for range 2 {
			if _, err := w.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
			time.Sleep(3 * stall)
		}
		if err := w.cause(); err != nil {
			t.Error(err)
		}
		_ = w.Close()
	})
}
