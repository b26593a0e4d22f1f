package exporter

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/acceld/acceld/accel"
)

// changing is a machine that gets a newer snapshot whenever a test says so.
type changing struct {
	mu       sync.Mutex
	m        accel.Machine
	replaced chan struct{}
}

func (c *changing) follow() (accel.Machine, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m, c.replaced
}

func (c *changing) machine() accel.Machine { m, _ := c.follow(); return m }

func (c *changing) change() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m.Taken = c.m.Taken.Add(time.Nanosecond)
	close(c.replaced)
	c.replaced = make(chan struct{})
}

// ask sends a tag and a preference and returns status, tag and body.
func ask(ctx context.Context, t *testing.T, url, known, prefer string) (int, string, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/machine", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("If-None-Match", known)
	req.Header.Set("Prefer", prefer)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, "", nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, resp.Header.Get("ETag"), body
}

// TestMachineWaits: a client with the newest snapshot is answered when there is a newer one, and not before,
// although the server's read deadline is over by then.
func TestMachineWaits(t *testing.T) {
	c := &changing{m: exampleMachine(), replaced: make(chan struct{})}
	server := httptest.NewUnstartedServer(New(Options{Machine: c.machine, Follow: c.follow}).Handler())
	const reading = 400 * time.Millisecond // a machine at work takes its time to read a request
	server.Config.ReadTimeout = reading
	server.Start()
	defer server.Close()
	status, first, _ := ask(t.Context(), t, server.URL, "", "wait=20")
	if status != http.StatusOK || first == "" {
		t.Fatalf("without a tag: status %d, tag %q", status, first)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		status, second, body := ask(t.Context(), t, server.URL, first, "respond-async, wait=20")
		var m accel.Machine
		if err := json.Unmarshal(body, &m); err != nil || status != http.StatusOK || second == first ||
			!m.Taken.Equal(c.machine().Taken) {
			t.Errorf("after the change: status %d, tag %q (first %q), %v, %v", status, second, first, m.Taken, err)
		}
	}()
	select {
	case <-answered:
		t.Error("it was answered although nothing had changed")
	case <-time.After(4 * reading):
	}
	c.change()
	select {
	case <-answered:
	case <-time.After(10 * time.Second):
		t.Error("it was not told of the change")
	}
}

// TestMachineUnchanged: a wait ends with 304, and a client that does not want to wait, or cannot, gets 304 at once.
func TestMachineUnchanged(t *testing.T) {
	c := &changing{m: exampleMachine(), replaced: make(chan struct{})}
	e := New(Options{Machine: c.machine, Follow: c.follow})
	server := httptest.NewServer(e.Handler())
	defer server.Close()
	_, now, _ := ask(t.Context(), t, server.URL, "", "")
	for _, prefer := range []string{
		"", "wait=0", "wait=-1", "wait=soon", "wait=99999999999", "handling=lenient",
		"wait=1",
	} {
		if status, tag, body := ask(t.Context(), t, server.URL, now, prefer); status != http.StatusNotModified ||
			tag != now || len(body) != 0 {
			t.Errorf("Prefer %q: status %d, tag %q, %d bytes", prefer, status, tag, len(body))
		}
	}
	for range maxWaiting {
		e.waiting <- struct{}{}
	}
	begin := time.Now()
	if status, _, _ := ask(t.Context(), t, server.URL, now, "wait=20"); status != http.StatusNotModified ||
		time.Since(begin) > 10*time.Second {
		t.Errorf("with too many waiting: status %d after %v", status, time.Since(begin))
	}
}

// TestMachineClientGone: a client that disconnects frees its place.
func TestMachineClientGone(t *testing.T) {
	c := &changing{m: exampleMachine(), replaced: make(chan struct{})}
	e := New(Options{Machine: c.machine, Follow: c.follow})
	server := httptest.NewServer(e.Handler())
	defer server.Close()
	_, now, _ := ask(t.Context(), t, server.URL, "", "")
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/v1/machine", nil)
		req.Header.Set("If-None-Match", now)
		req.Header.Set("Prefer", "wait=20")
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			t.Error("it was answered")
		}
	}()
	for len(e.waiting) == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-gone
	for len(e.waiting) > 0 {
		time.Sleep(time.Millisecond)
	}
}
