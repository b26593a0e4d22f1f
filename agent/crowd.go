package agent

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxConnections is how many connections one listener may have open at a time. grace is how long each may take to send
// its next request, however many others wait.
const (
	maxConnections = 64
	grace          = 200 * time.Millisecond
)

// crowd is a listener with at most [maxConnections] open connections. A further one takes the place of the oldest that
// no request is being answered on, so that idle ones keep nobody out for long. It waits while all are being answered.
type crowd struct {
	net.Listener
	mu     sync.Mutex
	free   *sync.Cond // signalled when there may be room
	open   []*member  // the oldest first
	closed bool
}

// member is an open connection.
type member struct {
	net.Conn
	crowd *crowd
	busy  bool      // a request is being answered; guarded by crowd.mu
	since time.Time // of when it is not; guarded by crowd.mu
}

func newCrowd(l net.Listener) *crowd {
	c := &crowd{Listener: l}
	c.free = sync.NewCond(&c.mu)
	return c
}

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.open) >= maxConnections && !c.dismiss() && !c.closed {
		late := time.AfterFunc(grace, c.free.Broadcast)
		c.free.Wait()
		late.Stop()
	}
	m := &member{Conn: conn, crowd: c, since: time.Now()}
	c.open = append(c.open, m)
	return m, nil
}

// dismiss closes the oldest connection that no request is being answered on. The caller holds c.mu.
func (c *crowd) dismiss() bool {
	i := slices.IndexFunc(c.open, func(m *member) bool { return !m.busy && time.Since(m.since) >= grace })
	if i < 0 {
		return false
	}
	_ = c.open[i].Conn.Close() // its server notices
	c.open = slices.Delete(c.open, i, i+1)
	return true
}

// Close implements net.Listener.
func (c *crowd) Close() error {
	c.change(func() { c.closed = true })
	return c.Listener.Close()
}

// change makes a change and lets Accept look again.
func (c *crowd) change(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	c.free.Broadcast()
}

// Close implements net.Conn.
func (m *member) Close() error {
	m.crowd.change(func() {
		m.crowd.open = slices.DeleteFunc(m.crowd.open, func(x *member) bool { return x == m })
	})
	return m.Conn.Close()
}

// memberKey is the key of a request's connection in its context.
type memberKey struct{}

// inCrowd is the ConnContext of an http.Server.
func inCrowd(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, memberKey{}, memberOf(c))
}

// memberOf returns the connection below TLS.
func memberOf(c net.Conn) *member {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	m, _ := c.(*member)
	return m
}

// answering marks the connections of requests that next answers, until [crowd.state] sees that they have been sent.
func (c *crowd) answering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m, _ := r.Context().Value(memberKey{}).(*member); m != nil {
			c.change(func() { m.busy = true })
		}
		next.ServeHTTP(w, r)
	})
}

// state is the ConnState of an http.Server.
func (c *crowd) state(conn net.Conn, s http.ConnState) {
	if m := memberOf(conn); m != nil && s == http.StateIdle {
		c.change(func() { m.busy, m.since = false, time.Now() })
	}
}
