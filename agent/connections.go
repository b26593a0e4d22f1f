package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/acceld/acceld/pace"
)

const (
	// maxConnections is how many connections one listener may have open at a time.
	maxConnections = 256
	// foothold is how long a connection stays at least: enough for a TLS handshake and a short answer. With half of
	// the connections to choose from, more than 2,500 new ones a second get in.
	foothold = 50 * time.Millisecond
)

// connections is a listener that never makes a client wait for connections that others keep open: when there are too
// many, a new one takes the place of another. Half of the places are for requests that are being answered, half for
// connections without a request. The half with more connections loses one: of the address that has most of them, the
// one that has been without a request, or busy with the same one, for the longest time.
type connections struct {
	net.Listener
	sleep func(time.Duration) error // fails when the listener's work ends

	mu   sync.Mutex
	open map[net.Conn]*connection
}

// connection is what is known of an open connection.
type connection struct {
	from   string    // the address of the client, without the port
	born   time.Time // when it was accepted
	active bool      // its request is being answered; otherwise it may be in a TLS handshake or inside a header
	since  time.Time // when that began
}

// stays returns for how long the connection may not be closed yet.
func (x *connection) stays(now time.Time) time.Duration { return max(0, foothold-now.Sub(x.born)) }

func newConnections(ctx context.Context, l net.Listener) *connections {
	return &connections{
		Listener: l, open: map[net.Conn]*connection{},
		sleep: func(d time.Duration) error { return pace.Sleep(ctx, d) },
	}
}

// Accept implements [net.Listener].
func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for wait := c.enter(conn); wait > 0 && c.sleep(wait) == nil; {
		wait = c.enter(conn)
	}
	return conn, nil // when the work has ended, the server closes it
}

// enter gives a connection a place, if need be that of another one, which it closes. If none may be closed yet, it
// returns how long to wait.
func (c *connections) enter(conn net.Conn) (wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if len(c.open) >= maxConnections {
		last := c.last(now)
		if wait := c.open[last].stays(now); wait > 0 {
			return wait
		}
		delete(c.open, last)
		_ = last.Close() // its server sees the end
	}
	from := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(from); err == nil {
		from = host
	}
	c.open[conn] = &connection{from: from, born: now, since: now}
	return 0
}

// last returns the connection that loses its place now, or else the one that does not have to stay first.
func (c *connections) last(now time.Time) net.Conn {
	active := 0
	for _, x := range c.open {
		if x.active {
			active++
		}
	}
	var half []net.Conn
	of := map[string]int{}
	for conn, x := range c.open {
		if x.active == (active > len(c.open)/2) {
			half = append(half, conn)
			of[x.from]++
		}
	}
	return slices.MinFunc(half, func(a, b net.Conn) int {
		x, y := c.open[a], c.open[b]
		return cmp.Or(cmp.Compare(of[y.from], of[x.from]), cmp.Compare(x.stays(now), y.stays(now)),
			x.since.Compare(y.since))
	})
}

// note is the server's ConnState.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == http.StateClosed || c.open[conn] == nil { // nil: it has lost its place
		delete(c.open, conn)
		return
	}
	c.open[conn].active, c.open[conn].since = state == http.StateActive, time.Now()
}
