package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/acceld/acceld/accel"
	"github.com/acceld/acceld/guard"
	"github.com/acceld/acceld/host/hosttest"
)

// TestOccupiedPort: a port that another program has is a problem of the whole agent with a reason, and is taken when it
// is free. The other tasks go on.
func TestOccupiedPort(t *testing.T) {
	squatter, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := squatter.Addr().String()
	a := assembled(t, hosttest.New(t), "endpoint: {listen: '"+address+"'}\n")
	ctx, end := context.WithCancel(a.ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); Serve(ctx, a.Log, func() {}, a.tasks...) }()
	defer func() { end(); <-ended }()
	socket, err := a.Host.Path(a.Config.Socket)
	if err != nil {
		t.Fatal(err)
	}
	local := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	says := func(client *http.Client, host, part, text string) func() bool {
		return func() bool {
			r, err := client.Get("http://" + host + part)
			if err != nil {
				return false
			}
			defer r.Body.Close()
			b, err := io.ReadAll(r.Body)
			return err == nil && strings.Contains(string(b), text)
		}
	}
	await(t, "the reason", says(local, "localhost", "/metrics",
		`acceld_agent_part_problem{part="local port",reason="`+string(accel.EndpointUnavailable)+`"} 1`))
	await(t, "the port in the reason", says(local, "localhost", "/v1/machine", address))
	if err := squatter.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "an answer on the port", says(http.DefaultClient, address, "/metrics", "acceld_"))
	if all := a.faults.list(); len(all) > 1 {
		t.Errorf("other parts failed: %v", all)
	}
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what + ": not within a minute")
		}
	}
}

// servedAlone serves the task of the whole agent that has a name, and returns the agent.
func servedAlone(t *testing.T, name, config string) *Agent {
	t.Helper()
	a := assembled(t, hosttest.New(t), config)
	ctx, end := context.WithCancel(a.ctx)
	var served sync.WaitGroup
	for _, task := range a.tasks {
		if task.String() == name {
			served.Go(func() { Serve(ctx, a.Log, func() {}, task) })
		}
	}
	t.Cleanup(func() { end(); served.Wait() })
	return a
}

// freePort returns an address that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// descriptors returns how many files this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestIdleConnections: a thousand connections to the agent's port that send nothing, or half a request, or nothing
// after a request, keep no client out and cost few descriptors. When they are gone, all is as before.
func TestIdleConnections(t *testing.T) {
	const crowded = 1000
	address := freePort(t)
	servedAlone(t, "local port", "endpoint: {listen: '"+address+"'}\n")
	honest := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answered, slowest := 0, time.Duration(0)
	ask := func() error {
		began := time.Now()
		r, err := honest.Get("http://" + address + "/metrics")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if _, err := io.Copy(io.Discard, r.Body); err != nil || r.StatusCode != http.StatusOK {
			return fmt.Errorf("%s, %v", r.Status, err)
		}
		answered, slowest = answered+1, max(slowest, time.Since(began))
		return nil
	}
	await(t, "the port", func() bool { return ask() == nil })
	before := descriptors(t)
	var idle []net.Conn
	for i := range crowded {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
		if i%3 > 0 { // not answered, or answered and silent since
			_, _ = io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\n"+strings.Repeat("\r\n", i%3-1))
		}
		if i%20 == 0 {
			if err := ask(); err != nil {
				t.Errorf("beside %d connections: %v", i, err)
			}
		}
	}
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err := ask(); err != nil {
			t.Errorf("beside %d connections: %v", crowded, err)
		}
		if n := descriptors(t) - before - crowded; n > maxConnections+10 {
			t.Errorf("the server has %d descriptors for %d connections", n, crowded)
		}
	}
	for _, c := range idle {
		_ = c.Close()
	}
	await(t, "as many descriptors as before", func() bool { return descriptors(t) <= before+1 })
	if err := ask(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	t.Logf("%d answers beside %d connections, the slowest after %v", answered, crowded, slowest)
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
			Serve(guard.Report(ctx, f.note), f.log, func() { ready.Store(true) }, ill, well)
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
