package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
)

// TestOccupiedPort: a port that another program has is a problem with a reason, and is taken when it is free. Nothing
// else ends.
func TestOccupiedPort(t *testing.T) {
	squatter, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := squatter.Addr().String()
	f := &faults{log: slog.New(slog.DiscardHandler), changed: func() {}}
	other := make(chan struct{})
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Serve(ctx, f.log, f.note, func() {}, newEndpoint("local port", http.NotFoundHandler(), nil, nil, port(address)),
			newTask("other", func(ctx context.Context) error { close(other); <-ctx.Done(); return nil }))
	}()
	<-other
	await(t, "the reason", func() bool { return len(f.list()) == 1 })
	if p := f.list()[0]; p.Part != "local port" || p.Reason != accel.EndpointUnavailable ||
		!strings.Contains(p.Message, address) {
		t.Errorf("the problem is %+v", p)
	}
	if err := squatter.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "an answer", func() bool {
		r, err := http.Get("http://" + address)
		if err == nil {
			_ = r.Body.Close()
		}
		return err == nil && r.StatusCode == http.StatusNotFound
	})
	end()
	<-ended
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what + ": not within a minute")
		}
	}
}

// TestIdleConnections: connections that send nothing are few, and do not keep a client out.
func TestIdleConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open atomic.Int32
	counted := &counting{Listener: l, open: &open}
	e := newEndpoint("x", http.NotFoundHandler(), nil, nil, already(counted, nil))
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- e.Run(ctx) }()
	for range 3 * maxConnections {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	await(t, "all that may be open", func() bool { return counted.most.Load() >= maxConnections })
	probe := &http.Client{Timeout: 5 * time.Second} // of the DaemonSet's probes
	r, err := probe.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	_ = r.Body.Close()
	if n := counted.most.Load(); n > maxConnections+1 {
		t.Errorf("%d connections were open", n)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

type counting struct {
	net.Listener
	open *atomic.Int32
	most atomic.Int32
}

func (l *counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.most.Store(max(l.most.Load(), l.open.Add(1)))
	return &counted{Conn: c, open: l.open}, nil
}

type counted struct {
	net.Conn
	open *atomic.Int32
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// TestFaultInATask: a task that panics or fails ends alone, is a problem with a reason, and is run again.
func TestFaultInATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes, runs, alive atomic.Int32
		var ready atomic.Bool
		f := &faults{log: slog.New(slog.DiscardHandler), changed: func() { changes.Add(1) }}
		ill := newTask("ill", func(ctx context.Context) error {
			switch runs.Add(1) {
			case 1:
				panic("an index out of range")
			case 2:
				return errors.New("it failed")
			case 3:
				var group guard.Group
				group.Go(func() { panic("one of its goroutines") })
				group.Wait()
			}
			<-ctx.Done()
			return nil
		})
		well := newTask("well", func(ctx context.Context) error {
			for ctx.Err() == nil {
				time.Sleep(time.Second)
				alive.Add(1)
			}
			return nil
		})
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			Serve(ctx, f.log, f.note, func() { ready.Store(true) }, ill, well)
		}()
		var seen []string
		for range 40 {
			time.Sleep(time.Second / 2)
			synctest.Wait()
			for _, p := range f.list() {
				if len(seen) == 0 || seen[len(seen)-1] != p.Message {
					seen = append(seen, p.Message)
				}
			}
		}
		want := "panic: an index out of range|it failed|panic: one of its goroutines"
		if got := strings.Join(seen, "|"); got != want || !ready.Load() || runs.Load() != 4 {
			t.Errorf("%d runs, ready %t: %s", runs.Load(), ready.Load(), got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if left := f.list(); len(left) > 0 || alive.Load() < 115 || changes.Load() != 4 {
			t.Errorf("at last %+v after %d changes, the other one ran for %d seconds", left, changes.Load(), alive.Load())
		}
		end()
		<-done
	})
}
