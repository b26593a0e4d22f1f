package extender

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/controller/fit"
	"github.com/acceld/acceld/test/fleet"
)

// TestTermOver: a binding that began before the term ended is refused after it.
func TestTermOver(t *testing.T) {
	p := five("p")
	l := leading(t, p)
	l.list(twoCards())
	l.term.Load().over = true
	if code, body := l.post("bind", map[string]any{
		"PodName": p.Name, "PodNamespace": p.Namespace, "PodUID": p.UID,
		"Node": "n1",
	}); code != http.StatusServiceUnavailable || len(l.bound) > 0 {
		t.Errorf("%d %s, %d bound", code, body, len(l.bound))
	}
}

// TestForgets: what is remembered of pods is bounded, however many there were.
func TestForgets(t *testing.T) {
	l := leading(t)
	for i := range maxSeen + 10 {
		l.remember(fit.Request{UID: strconv.Itoa(i)})
	}
	if len(l.seen) > maxSeen {
		t.Errorf("%d pods are remembered, at most %d", len(l.seen), maxSeen)
	}
	for i := range maxShapes + 10 {
		l.cache.shape([]fit.Asked{{Name: "c", Amounts: map[string]int64{fleet.Prefix + "shares": int64(i + 1)}}})
	}
	if len(l.cache.shapes) > maxShapes {
		t.Errorf("%d shapes are remembered, at most %d", len(l.cache.shapes), maxShapes)
	}
}

// TestStamps: each binding has a later time than the previous one, even if the clock stands still or goes back.
func TestStamps(t *testing.T) {
	l := leading(t)
	ahead := time.Now().Add(time.Hour).UnixNano()
	l.stamp.Store(ahead)
	for i := range 3 {
		got, err := strconv.ParseInt(l.annotations(&fit.Record{Cards: "card0"})[l.rules.Annotations.Time], 10, 64)
		if want := ahead + int64(i) + 1; err != nil || got != want {
			t.Errorf("stamp %d is %d, want %d", i, got, want)
		}
	}
}

// TestReservation: a reserved pod cannot be reserved again, and what the API server shows outranks the local result
// of the binding.
func TestReservation(t *testing.T) {
	l := leading(t, five("p"))
	l.list(twoCards())
	q := l.requestFor(l.pods["p"])
	record, cause, _, err := l.cache.Reserve(&q, "n1")
	if record == nil || err != nil {
		t.Fatal(cause, err)
	}
	if again, _, _, err := l.cache.Reserve(&q, "n1"); again != nil || err == nil {
		t.Errorf("reserved twice: %+v, %v", again, err)
	}
	const any = -time.Hour
	if got := l.cache.Unconfirmed(any); len(got) > 0 {
		t.Errorf("a binding that is under way is in doubt: %v", got)
	}
	l.cache.Confirm(q.UID, nil)
	if got := l.cache.Unconfirmed(any); len(got) != 1 {
		t.Errorf("a binding whose answer was lost is not in doubt: %v", got)
	}
	shown := l.pods["p"].DeepCopy()
	shown.Spec.NodeName = "n1"
	for k, v := range l.annotations(record) {
		shown.Annotations[k] = v
	}
	l.cache.SetPod(l.cache.Trim(shown))
	no := false
	l.cache.Confirm(q.UID, &no)
	if l.cache.pods[q.UID] == nil {
		t.Error("a pod that the API server shows as bound is not in the cache")
	}
}

// pipes is a listener whose connections are in memory, so that the test controls the time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error {
	defer func() { _ = recover() }() // closed twice
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// TestSlowClients: the server hangs up on a client that sends no request.
func TestSlowClients(t *testing.T) {
	for text, within := range map[string]time.Duration{
		"": headerTimeout,
		"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{": bodyTimeout,
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			l := make(pipes)
			ended := make(chan error)
			go func() {
				ended <- Serve(ctx, l, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
				}), nil, slog.New(slog.DiscardHandler))
			}()
			ours, theirs := net.Pipe()
			l <- theirs
			began := time.Now()
			go func() { _, _ = ours.Write([]byte(text)) }()
			_, err := io.Copy(io.Discard, ours)
			if took := time.Since(began); took > within+time.Second || errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%q: held for %v (%v), at most %v", text, took, err, within)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
