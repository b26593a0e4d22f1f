package agent

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener without a network, for the clock of synctest. Its queue is as long as that of a socket
// (net.core.somaxconn).
type pipes struct {
	queue  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{queue: make(chan net.Conn, 4096), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.queue:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return address("127.0.0.1:9480") }

// dial connects from an address.
func (p *pipes) dial(ctx context.Context, from string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.queue <- incoming{theirs, address(from)}:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

type incoming struct {
	net.Conn
	remote address
}

func (c incoming) RemoteAddr() net.Addr { return c.remote }

// The hostile clients: each uses a connection for as long as it is open.
var hostile = map[string]func(net.Conn){
	"silent": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
	"slow header": func(c net.Conn) {
		_, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: a\r\nX: ")
		for ; err == nil; time.Sleep(time.Second) {
			_, err = c.Write([]byte("x"))
		}
	},
	"poller": func(c net.Conn) {
		for get(c, "/livez") == nil {
			time.Sleep(requestTime - time.Second)
		}
	},
	"busy poller": func(c net.Conn) {
		for get(c, "/livez") == nil {
			time.Sleep(foothold - 10*time.Millisecond)
		}
	},
	"long answer": func(c net.Conn) {
		for {
			if get(c, "/long") != nil {
				return
			}
		}
	},
}

// get asks once on an open connection.
func get(c net.Conn, path string) error {
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r.Body)
	return err
}

// attack is a hostile client that connects again as soon as it has lost its connection.
func attack(ctx context.Context, p *pipes, from string, use func(net.Conn)) {
	for ctx.Err() == nil {
		c, err := p.dial(ctx, from)
		if err != nil {
			return
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		use(c)
		stop()
		_ = c.Close()
	}
}

// handler answers /livez at once, and /long like a client that waits for a change.
func handler(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/long" {
		select {
		case <-time.After(20 * time.Second):
		case <-r.Context().Done():
		}
	}
	_, _ = io.WriteString(w, "ok\n")
}

// distant is a connection to another machine: what is written takes a while, a handshake longer than any connection
// has to stay.
type distant struct{ net.Conn }

func (d distant) Write(b []byte) (int, error) {
	time.Sleep(foothold)
	return d.Conn.Write(b)
}

// besieged serves n clients of each hostile kind from an address, and reports what an honest client from 127.0.0.1 does
// not get within a second.
func besieged(t *testing.T, c *tls.Config, n int, from string, kinds ...func(net.Conn)) {
	p := newPipes()
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	e := newEndpoint("x", http.HandlerFunc(handler), c, nil, already(p, nil))
	go func() { ended <- e.Run(ctx) }()
	var attackers sync.WaitGroup
	for _, use := range kinds {
		for i := range n {
			attackers.Go(func() { attack(ctx, p, fmt.Sprintf("%s:%d", from, i), use) })
		}
	}
	scheme := "http"
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return p.dial(ctx, "127.0.0.1:1")
	}}
	if c != nil {
		scheme = "https"
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := p.dial(ctx, "127.0.0.1:1")
			return distant{c}, err
		}
	}
	for i := range 4 {
		transport.DisableKeepAlives = i%2 == 0
		time.Sleep(time.Second)
		client := &http.Client{Transport: transport, Timeout: time.Second}
		r, err := client.Get(scheme + "://localhost/livez")
		if err != nil {
			t.Errorf("request %d: %v", i, err)
			continue
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	transport.CloseIdleConnections()
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	attackers.Wait()
	time.Sleep(2 * requestTime) // both ends of a TLS connection may wait to say goodbye
}

// TestSiege: whatever a thousand hostile clients do with their connections, a client with a timeout of a second gets
// each of its answers.
func TestSiege(t *testing.T) {
	for name, use := range hostile {
		for _, n := range []int{64, 1000} {
			t.Run(fmt.Sprint(n, " ", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { besieged(t, nil, n, "127.0.0.1", use) })
			})
		}
	}
	t.Run("all of them", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			besieged(t, nil, 200, "127.0.0.1", slices.Collect(maps.Values(hostile))...)
		})
	})
}

// TestSiegeWithoutCertificate: strangers who never end their TLS handshake keep nobody out, however far away the honest
// client is.
func TestSiegeWithoutCertificate(t *testing.T) {
	example := httptest.NewTLSServer(nil)
	example.Close()
	synctest.Test(t, func(t *testing.T) { besieged(t, example.TLS, 1000, "10.0.0.6", hostile["silent"]) })
}
