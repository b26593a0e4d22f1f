package extender

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/controller/fit"
	"github.com/acceld/acceld/test/fleet"
)

// TestLateBinding: a replica may be stopped after its last check and send a binding when another one leads. The
// scheduler has given it up by then and written so into the pod, so the API server refuses it.
func TestLateBinding(t *testing.T) {
	p := five("p")
	p.ResourceVersion = "7"
	l := leading(t, p)
	l.list(twoCards())
	if !l.passes(p) {
		t.Fatal("the pod does not fit")
	}
	l.during = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		given := p.DeepCopy()
		given.ResourceVersion = "8"
		l.pods["p"] = given
	}
	if text := l.tryBind(p); text == "" || len(l.bound) > 0 {
		t.Errorf("%q, %d bound", text, len(l.bound))
	}
	if text := l.tryBind(p); text != "" || len(l.bound) != 1 {
		t.Errorf("the next attempt: %q, %d bound", text, len(l.bound))
	}
}

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

// TestHostileNode: what one node says of its cards keeps no other node from pods, and explain says what is wrong.
func TestHostileNode(t *testing.T) {
	p := five("p")
	l := leading(t, p)
	hostile := fleet.Node("n0", 2, fleet.Amounts{"shares": "20", "memory": "16G"})
	hostile.Annotations = map[string]string{
		fit.InventoryAnnotation: `[{"name":"card0","has":{"shares":"1E-2147483647","memory":"16G"}}]`,
	}
	listed := make(chan struct{})
	go func() {
		defer close(listed)
		l.list(hostile, twoCards())
	}()
	select {
	case <-listed:
	case <-time.After(20 * time.Second):
		t.Fatal("the annotation of one node keeps the cache from being complete")
	}
	if !l.passes(p) {
		t.Error("the pod does not pass on the other node")
	}
	q := l.requestFor(p)
	for name, want := range map[string]bool{"n0": true, "n1": false} {
		got := explanation(l.cache, l.rules, &q, name, 1).Nodes
		if len(got) != 1 || (got[0].Problem != "") != want || got[0].Fits == want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestHostileRequest: an amount in a request that would take forever to read is the client's mistake.
func TestHostileRequest(t *testing.T) {
	l := leading(t)
	l.list(twoCards())
	answered := make(chan int, 1)
	go func() {
		status, _ := l.post("filter", json.RawMessage(`{"NodeNames":["n1"],"Pod":{"metadata":{"name":"p","uid":"u"},"spec":
			{"containers":[{"name":"m","resources":{"limits":{"`+fleet.Prefix+`shares":"1E-2147483647"}}}]}}}`))
		answered <- status
	}()
	select {
	case status := <-answered:
		if status != http.StatusBadRequest {
			t.Errorf("status %d", status)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a request is never answered")
	}
}

// TestLongChoice: the cards that a pod's annotations name are read up to a size that no choice has.
func TestLongChoice(t *testing.T) {
	l := leading(t)
	p := five("p")
	key := l.rules.Annotations.Cards
	for size, read := range map[int]bool{maxChoice: true, maxChoice + 1: false} {
		p.Annotations = map[string]string{key: strings.Repeat("c", size)}
		if got := l.cache.Trim(p).Chosen().Cards; (got != "") != read {
			t.Errorf("%d bytes: %d are read", size, len(got))
		}
	}
}

// TestForgets: what is remembered of pods is bounded, however many there were.
func TestForgets(t *testing.T) {
	l := leading(t)
	for i := range maxSeen + 10 {
		l.remember(seen{Request: fit.Request{UID: fit.NewUID(strconv.Itoa(i))}})
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
		got, err := strconv.ParseInt(l.annotations(fit.Choice{Cards: "card0"})[l.rules.Annotations.Time], 10, 64)
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
	for k, v := range l.annotations(record.Chosen()) {
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
